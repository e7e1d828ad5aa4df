/* One column times the K types. */
#include "matmul_avx512.h"

#if MF_HAVE_AVX2

enum { STREAMS = 2 }; /* panels are long */

/* The even or the odd of each pair of 16 bits, as 32. */
MF_AVX512_INLINE __m256i even32(__m256i x) { return _mm256_srai_epi32(_mm256_slli_epi32(x, 16), 16); }
MF_AVX512_INLINE __m256i odd32(__m256i x) { return _mm256_srai_epi32(x, 16); }

/* Weights 4g to 4g + 3 of sub-block s, unsigned. */
MF_AVX512_INLINE __m256i group(int type, const uint8_t *quants, int s, int g) {
    const __m256i low = _mm256_set1_epi8(15);
    if (type == MF_Q6_K) {
        const int half = s / 4, part = s % 4;
        const __m256i x = mf_load(quants + 512 * half + 256 * (part % 2) + 32 * g);
        const __m256i high = mf_load(quants + 1024 + 256 * half + 32 * g);
        const __m256i v = _mm256_and_si256(part < 2 ? x : _mm256_srli_epi16(x, 4), low);
        const __m256i at = part < 2 ? _mm256_slli_epi16(high, 4 - 2 * part) : _mm256_srli_epi16(high, 2 * part - 4);
        return _mm256_ternarylogic_epi32(v, at, _mm256_set1_epi8(48), 0xf8); /* v | at & 48 */
    }
    const __m256i x = mf_load(quants + 256 * (s / 2) + 32 * g);
    const __m256i v = _mm256_and_si256(s % 2 ? _mm256_srli_epi16(x, 4) : x, low);
    if (type == MF_Q4_K) return v;
    const __m256i high = mf_load(quants + 1024 + 32 * g);
    const __m256i at = s < 4 ? _mm256_slli_epi16(high, 4 - s) : _mm256_srli_epi16(high, s - 4);
    return _mm256_ternarylogic_epi32(v, at, _mm256_set1_epi8(16), 0xf8);
}

/* Groups [first, first + groups) of sub-block s. */
MF_AVX512_INLINE __m256i dot(int type, const uint8_t *quants, int s, int first, int groups, const int8_t *q, __m256i sum) {
    MF_UNROLL for (int g = first; g < first + groups; g++)
        sum = _mm256_dpbusd_epi32(sum, group(type, quants, s, g), mf_word(q + MF_BLOCK * s + 4 * g));
    return sum;
}

/* Sub-block s of a block, scaled. scale: those of sub-blocks s and s + 1, of Q6_K of its own halves. */
MF_AVX512_INLINE __m256i sub_block(int type, const uint8_t *quants, int s, __m256i scale, const mf_column *x, int64_t b) {
    const int8_t *q = x->q + MF_BLOCK_K * b;
    MF_HIDE(q);
    const __m256i zero = _mm256_setzero_si256();
    if (type != MF_Q6_K)
        return _mm256_mullo_epi32(dot(type, quants, s, 0, 8, q, zero), s % 2 ? odd32(scale) : even32(scale));
    const __m256i minus = _mm256_set1_epi16(-32);
    const int32_t *pairs = x->pairs16 + 16 * b + 2 * s;
    const __m256i low = dot(type, quants, s, 0, 4, q, _mm256_dpwssd_epi32(zero, minus, mf_word(pairs)));
    const __m256i high = dot(type, quants, s, 4, 4, q, _mm256_dpwssd_epi32(zero, minus, mf_word(pairs + 1)));
    return _mm256_add_epi32(_mm256_mullo_epi32(low, even32(scale)), _mm256_mullo_epi32(high, odd32(scale)));
}

MF_AVX512_INLINE __m256i minima(const uint8_t *scales, const int32_t *pairs32) {
    __m256i total = _mm256_setzero_si256();
    MF_UNROLL for (int p = 0; p < MF_PAIRS_K; p++) {
        const __m256i minimum = mf_widen(scales + MF_K_MIN + 16 * p);
        total = _mm256_dpwssd_epi32(total, mf_both_even(minimum), mf_word(pairs32 + 2 * p));
        total = _mm256_dpwssd_epi32(total, mf_both_odd(minimum), mf_word(pairs32 + 2 * p + 1));
    }
    return total;
}

MF_AVX512_INLINE int quant_bytes(int type) { return type == MF_Q4_K ? 1024 : type == MF_Q5_K ? 1280 : 1536; }
MF_AVX512_INLINE int scale_bytes(int type) { return type == MF_Q6_K ? MF_Q6K_SCALE_BYTES : MF_K_SCALE_BYTES; }

MF_AVX512_INLINE __m256 block(int type, int reading, const uint8_t *panel, int64_t scales_at, const mf_column *x, int64_t b,
                              int64_t ahead, __m256 acc) {
    const uint8_t *quants = panel + b * quant_bytes(type), *scales = panel + scales_at + b * scale_bytes(type);
    const int bytes = quant_bytes(type) + (reading == MF_READ_PANEL ? 0 : scale_bytes(type));
    const uint8_t *place = panel + b * bytes;
    if (reading == MF_READ_PANEL) mf_ask(reading, scales, ahead, scale_bytes(type));
    __m256i total = _mm256_setzero_si256();
    MF_UNROLL for (int s = 0; s < 8; s++) {
        mf_ask(reading, place + s * (bytes / 8), ahead, bytes / 8);
        const __m256i scale = mf_widen(scales + (type == MF_Q6_K ? MF_Q6K_SCALE + 16 * s : MF_K_SCALE + 16 * (s / 2)));
        total = _mm256_add_epi32(total, sub_block(type, quants, s, scale, x, b));
    }
    const __m256 d = _mm256_broadcast_ss(x->d + b);
    acc = _mm256_fmadd_ps(_mm256_mul_ps(mf_halves(scales), d), _mm256_cvtepi32_ps(total), acc);
    if (type == MF_Q6_K) return acc;
    const __m256 low = _mm256_cvtepi32_ps(minima(scales, x->pairs32 + 8 * b));
    return _mm256_fnmadd_ps(_mm256_mul_ps(mf_halves(scales + MF_K_DMIN), d), low, acc);
}

/* Panels [first, first + streams), a block of each in turn. */
MF_AVX512_INLINE void panels(int type, int reading, int streams, const mf_span *span, int64_t first, const mf_column *x,
                             int64_t column) {
    const int64_t blocks = span->weight->k / MF_BLOCK_K, ahead = mf_ahead_of(reading, span->weight, streams);
    const uint8_t *panel[STREAMS];
    __m256 acc[STREAMS];
    MF_UNROLL for (int a = 0; a < streams; a++) {
        panel[a] = mf_panel(span->weight, first + a);
        acc[a] = _mm256_setzero_ps();
    }
    for (int64_t b = 0; b < blocks; b++)
        for (int a = 0; a < streams; a++)
            acc[a] = block(type, reading, panel[a], blocks * quant_bytes(type), x, b, ahead, acc[a]);
    MF_UNROLL for (int a = 0; a < streams; a++) mf_emit(span, column, first + a, acc[a]);
}

MF_AVX512_INLINE void gemv(int type, const mf_span *span, const mf_column *x, int64_t column) {
    int64_t p = span->first;
    if (mf_reads_one_stream()) {
        for (; p < span->last; p++) panels(type, MF_READ_PANEL, 1, span, p, x, column);
        return;
    }
    for (; p + STREAMS <= span->last; p += STREAMS) panels(type, MF_READ_ADJACENT, STREAMS, span, p, x, column);
    if (p < span->last) panels(type, MF_READ_ADJACENT, 1, span, p, x, column);
}

MF_AVX512 void mf_avx512_gemv_k(const mf_span *span, const uint8_t *activation, int64_t column) {
    const mf_column x = mf_column_of(MF_ACTIVATION_Q8_K, span->weight->k, activation);
#define CALL(type) gemv(type, span, &x, column)
    MF_FOR_TYPE_K(span->weight->type, CALL)
#undef CALL
}

#endif
