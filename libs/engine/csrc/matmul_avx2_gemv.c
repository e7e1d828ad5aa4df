/* One column times the types with a scale per 32 weights: weights stream past once, so it is bound by memory. */
#include "matmul_avx2.h"

#if MF_HAVE_AVX2


/* Integer dot products of 8 rows with 32 activations. start: in 16-bit halves, zero or minus the offset. */
MF_AVX2_INLINE __m256i dot_4bit(const __m256i v[8], const int8_t *q, __m256i start) {
    __m256i low = _mm256_add_epi16(start, MF_PAIRS(v[0], mf_words(q))), high = MF_PAIRS(v[4], mf_words(q + 16));
    MF_UNROLL for (int g = 1; g < 4; g++) {
        low = _mm256_add_epi16(low, MF_PAIRS(v[g], mf_words(q + 4 * g)));
        high = _mm256_add_epi16(high, MF_PAIRS(v[g + 4], mf_words(q + 16 + 4 * g)));
    }
    return _mm256_madd_epi16(_mm256_set1_epi16(1), _mm256_add_epi16(low, high));
}

/* Weights of 0 to 31 without an offset: the sum of eight does not fit 16 bits. */
MF_AVX2_INLINE __m256i dot_5bit(const __m256i v[8], const int8_t *q) {
    const __m256i one = _mm256_set1_epi16(1);
    __m256i low = MF_PAIRS(v[0], mf_words(q)), high = MF_PAIRS(v[4], mf_words(q + 16));
    MF_UNROLL for (int g = 1; g < 4; g++) {
        low = _mm256_add_epi16(low, MF_PAIRS(v[g], mf_words(q + 4 * g)));
        high = _mm256_add_epi16(high, MF_PAIRS(v[g + 4], mf_words(q + 16 + 4 * g)));
    }
    return _mm256_add_epi32(_mm256_madd_epi16(one, low), _mm256_madd_epi16(one, high));
}

/* Signed weights: magnitudes times activations that carry the weight's sign. A weight of -128 has magnitude 128. */
MF_AVX2_INLINE __m256i dot_8bit(const uint8_t *quants, const int8_t *q) {
    const __m256i one = _mm256_set1_epi16(1);
    __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    MF_UNROLL for (int g = 0; g < 8; g++) {
        const __m256i x = mf_load(quants + 32 * g);
        const __m256i pairs = MF_PAIRS(_mm256_abs_epi8(x), _mm256_sign_epi8(mf_words(q + 4 * g), x));
        sum[g % 2] = _mm256_add_epi32(sum[g % 2], _mm256_madd_epi16(one, pairs));
    }
    return _mm256_add_epi32(sum[0], sum[1]);
}

/* One block of one panel. */
MF_AVX2_INLINE void block(int type, const uint8_t *quants, const uint8_t *scales, const mf_column *x, int64_t b,
                          __m256 *acc, __m256 *minimum) {
    const int8_t *q = x->q + b * MF_BLOCK;
    MF_HIDE(q);
    __m256i dot;
    if (type == MF_Q8_0) {
        dot = dot_8bit(quants, q);
    } else {
        __m256i v[8], start = _mm256_setzero_si256();
        mf_unpack_32(type, quants, v);
        if (mf_offset_shift(type)) start = _mm256_sub_epi16(start, mf_offset_pair(mf_offset_shift(type), x->pairs[b]));
        dot = type == MF_Q5_1 ? dot_5bit(v, q) : dot_4bit(v, q, start);
    }
    const __m256 d = _mm256_mul_ps(mf_halves(scales), _mm256_broadcast_ss(x->d + b));
    *acc = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(dot), *acc);
    if (mf_has_minimum(type)) *minimum = _mm256_fmadd_ps(mf_halves(scales + 16), _mm256_broadcast_ss(x->s + b), *minimum);
}

/* One panel of each of `streams` streams. */
MF_AVX2_INLINE void panels(int type, int streams, const mf_span *span, int64_t first, int64_t step, const mf_column *x,
                           int64_t column) {
    const int quant_bytes = type == MF_Q8_0 ? 256 : mf_has_fifth_bit(type) ? 160 : 128;
    const int scale_bytes = mf_has_minimum(type) ? 32 : 16, block_bytes = quant_bytes + scale_bytes;
    const int64_t blocks = span->weight->k / MF_BLOCK, scales_at = blocks * quant_bytes;
    const uint8_t *panel[MF_STREAMS];
    __m256 acc[MF_STREAMS], minimum[MF_STREAMS];
    MF_UNROLL for (int a = 0; a < streams; a++) {
        panel[a] = mf_panel(span->weight, first + a * step);
        acc[a] = minimum[a] = _mm256_setzero_ps();
    }
    for (int64_t b = 0; b < blocks; b++) {
        MF_UNROLL for (int a = 0; a < streams; a++) {
            mf_prefetch(panel[a] + b * block_bytes, block_bytes);
            const uint8_t *scales = panel[a] + scales_at + b * scale_bytes;
            block(type, panel[a] + b * quant_bytes, scales, x, b, &acc[a], &minimum[a]);
        }
    }
    MF_UNROLL for (int a = 0; a < streams; a++)
        mf_emit(span, column, first + a * step, mf_has_minimum(type) ? _mm256_add_ps(acc[a], minimum[a]) : acc[a]);
}

MF_AVX2_INLINE void gemv(int type, const mf_span *span, const mf_column *x, int64_t column) {
    const int64_t step = (span->last - span->first) / MF_STREAMS;
    for (int64_t i = 0; i < step; i++) panels(type, MF_STREAMS, span, span->first + i, step, x, column);
    for (int64_t i = span->first + MF_STREAMS * step; i < span->last; i++) panels(type, 1, span, i, 0, x, column);
}

MF_AVX2 void mf_avx2_gemv(const mf_span *span, const uint8_t *activation, int64_t column) {
    const mf_column x = mf_column_of(MF_ACTIVATION_Q8, span->weight->k, activation);
#define CALL(type) gemv(type, span, &x, column)
    MF_FOR_TYPE_32(span->weight->type, CALL)
#undef CALL
}

#endif
