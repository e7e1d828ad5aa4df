/* One column times the types with a scale per 32 weights. Eight rows at a time: the halves of a longer register would
 * come from two panels, and putting them together costs what it saves. */
#include "matmul_avx512.h"

#if MF_HAVE_AVX2

/* Weights 4g to 4g + 3 of every row, unsigned: the offset stays in. high: a block's fifth bits. */
MF_AVX512_INLINE __m256i group(int type, int g, const uint8_t *quants, __m256i high) {
    if (type == MF_Q8_0) return _mm256_xor_si256(mf_load(quants + 32 * g), _mm256_set1_epi8((char)0x80));
    const __m256i x = mf_load(quants + 32 * (g % 4));
    const __m256i v = _mm256_and_si256(g < 4 ? x : _mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
    if (!mf_has_fifth_bit(type)) return v;
    const __m256i at = g < 4 ? _mm256_slli_epi16(high, 4 - g) : _mm256_srli_epi16(high, g - 4);
    return _mm256_ternarylogic_epi32(v, at, _mm256_set1_epi8(16), 0xf8); /* v | at & 16 */
}

/* Integer dot products of 8 rows with a block of activations. */
MF_AVX512_INLINE __m256i dot(int type, const uint8_t *quants, const mf_column *x, int64_t b) {
    const int offset = type == MF_Q8_0 ? 128 : type == MF_Q5_0 ? 16 : type == MF_Q4_0 ? 8 : 0;
    const int8_t *q = x->q + MF_BLOCK * b;
    const __m256i high = mf_has_fifth_bit(type) ? mf_load(quants + 128) : _mm256_setzero_si256();
    __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    if (offset) sum[0] = _mm256_dpwssd_epi32(sum[0], _mm256_set1_epi16((short)-offset), mf_word(x->pairs + b));
    MF_UNROLL for (int g = 0; g < 4; g++) {
        sum[0] = _mm256_dpbusd_epi32(sum[0], group(type, g, quants, high), mf_word(q + 4 * g));
        sum[1] = _mm256_dpbusd_epi32(sum[1], group(type, g + 4, quants, high), mf_word(q + 16 + 4 * g));
    }
    return _mm256_add_epi32(sum[0], sum[1]);
}

/* Panels [first, first + streams), a block of each in turn. */
MF_AVX512_INLINE void panels(int type, int reading, int streams, const mf_span *span, int64_t first, const mf_column *x,
                             int64_t column) {
    const int scale_bytes = mf_scale_bytes_32(type), block_bytes = mf_block_bytes_32(type);
    const int64_t blocks = span->weight->k / MF_BLOCK, scales_at = blocks * mf_quant_bytes_32(type);
    const int64_t ahead = mf_ahead_of(reading, span->weight, streams);
    const uint8_t *panel[MF_ADJACENT];
    __m256 acc[MF_ADJACENT], minimum[MF_ADJACENT];
    MF_UNROLL for (int a = 0; a < streams; a++) {
        panel[a] = mf_panel(span->weight, first + a);
        acc[a] = minimum[a] = _mm256_setzero_ps();
    }
    for (int64_t b = 0; b < blocks; b++) {
        const __m256 dx = _mm256_broadcast_ss(x->d + b);
        MF_UNROLL for (int a = 0; a < streams; a++) {
            const uint8_t *quants = panel[a] + b * mf_quant_bytes_32(type), *scales = panel[a] + scales_at + b * scale_bytes;
            if (reading == MF_READ_PANEL) {
                mf_ask(reading, quants, ahead, mf_quant_bytes_32(type));
                mf_ask(reading, scales, ahead, 1);
            } else {
                mf_ask(reading, panel[a] + b * block_bytes, ahead, block_bytes);
            }
            const __m256 d = _mm256_mul_ps(mf_halves(scales), dx);
            acc[a] = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(dot(type, quants, x, b)), acc[a]);
            if (mf_has_minimum(type))
                minimum[a] = _mm256_fmadd_ps(mf_halves(scales + 16), _mm256_broadcast_ss(x->s + b), minimum[a]);
        }
    }
    MF_UNROLL for (int a = 0; a < streams; a++)
        mf_emit(span, column, first + a, mf_has_minimum(type) ? _mm256_add_ps(acc[a], minimum[a]) : acc[a]);
}

MF_AVX512_INLINE void gemv(int type, const mf_span *span, const mf_column *x, int64_t column) {
    int64_t p = span->first;
    if (mf_reads_one_stream()) {
        const int64_t quants = span->weight->k / MF_BLOCK * mf_quant_bytes_32(type);
        if (quants <= MF_AHEAD)
            for (; p < span->last; p++) panels(type, MF_READ_LINE, 1, span, p, x, column);
        else
            for (; p < span->last; p++) panels(type, MF_READ_PANEL, 1, span, p, x, column);
        return;
    }
    if (MF_ADJACENT * span->weight->panel_bytes <= MF_ADJACENT_BYTES)
        for (; p + MF_ADJACENT <= span->last; p += MF_ADJACENT) panels(type, MF_READ_ADJACENT, MF_ADJACENT, span, p, x, column);
    for (; p + 2 <= span->last; p += 2) panels(type, MF_READ_ADJACENT, 2, span, p, x, column);
    if (p < span->last) panels(type, MF_READ_ADJACENT, 1, span, p, x, column);
}

MF_AVX512 void mf_avx512_gemv(const mf_span *span, const uint8_t *activation, int64_t column) {
    const mf_column x = mf_column_of(MF_ACTIVATION_Q8, span->weight->k, activation);
#define CALL(type) gemv(type, span, &x, column)
    MF_FOR_TYPE_32(span->weight->type, CALL)
#undef CALL
}

#endif
