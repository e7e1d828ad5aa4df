/* One column times the K types. */
#include "matmul_avx2.h"

#if MF_HAVE_AVX2

/* Two sub-blocks of 32 whose nibbles share bytes. high: a Q5_K block's fifth bits, first: the pair's even number. */
MF_AVX2_INLINE __m256i pair_dot(int type, const uint8_t *quants, const uint8_t *high, int first, const int8_t *q,
                                __m256i scales) {
    const __m256i low = _mm256_set1_epi8(15), bit = _mm256_set1_epi8(16);
    const __m256i scale_even = mf_both_even(scales), scale_odd = mf_both_odd(scales);
    __m256i total = _mm256_setzero_si256();
    MF_HIDE(high);
    MF_UNROLL for (int part = 0; part < 8; part += 4) {
        __m256i even = _mm256_setzero_si256(), odd = even;
        MF_UNROLL for (int g = part; g < part + 4; g++) {
            const __m256i x = mf_load(quants + 32 * g);
            __m256i a = _mm256_and_si256(x, low), b = _mm256_and_si256(_mm256_srli_epi16(x, 4), low);
            if (type == MF_Q5_K) {
                const __m256i h = mf_load(high + 32 * g);
                const __m256i e = first < 4 ? _mm256_slli_epi16(h, 4 - first) : _mm256_srli_epi16(h, first - 4);
                const __m256i o = first < 3 ? _mm256_slli_epi16(h, 3 - first) : _mm256_srli_epi16(h, first - 3);
                a = _mm256_or_si256(a, _mm256_and_si256(e, bit));
                b = _mm256_or_si256(b, _mm256_and_si256(o, bit));
            }
            even = _mm256_add_epi16(even, MF_PAIRS(a, mf_words(q + 4 * g)));
            MF_KEEP(even);
            odd = _mm256_add_epi16(odd, MF_PAIRS(b, mf_words(q + 32 + 4 * g)));
            MF_KEEP(odd);
        }
        total = _mm256_add_epi32(total, _mm256_madd_epi16(scale_even, even));
        total = _mm256_add_epi32(total, _mm256_madd_epi16(scale_odd, odd));
    }
    return total;
}

MF_AVX2_INLINE __m256i minima(const uint8_t *scales, const int32_t *pairs32) {
    __m256i total = _mm256_setzero_si256();
    MF_UNROLL for (int p = 0; p < MF_PAIRS_K; p++) {
        const __m256i minimum = mf_widen(scales + MF_K_MIN + 16 * p);
        const __m256i even = _mm256_set1_epi32(pairs32[2 * p]), odd = _mm256_set1_epi32(pairs32[2 * p + 1]);
        total = _mm256_add_epi32(total, _mm256_madd_epi16(mf_both_even(minimum), even));
        total = _mm256_add_epi32(total, _mm256_madd_epi16(mf_both_odd(minimum), odd));
    }
    return total;
}

MF_AVX2_INLINE __m256 block_q45(int type, const uint8_t *quants, const uint8_t *scales, const mf_column *x, int64_t b,
                                const uint8_t *ahead, __m256 acc) {
    const int part = ((type == MF_Q4_K ? 1024 : 1280) + MF_K_SCALE_BYTES) / MF_PAIRS_K;
    __m256i dot = _mm256_setzero_si256();
    MF_UNROLL for (int p = 0; p < MF_PAIRS_K; p++) {
        const int8_t *q = x->q + b * MF_BLOCK_K + 64 * p;
        MF_HIDE(q);
        mf_prefetch(ahead + p * part, part);
        const __m256i scale = mf_widen(scales + MF_K_SCALE + 16 * p);
        dot = _mm256_add_epi32(dot, pair_dot(type, quants + 256 * p, quants + 1024, 2 * p, q, scale));
    }
    const __m256 d = _mm256_broadcast_ss(x->d + b);
    acc = _mm256_fmadd_ps(_mm256_mul_ps(mf_halves(scales), d), _mm256_cvtepi32_ps(dot), acc);
    const __m256 low = _mm256_cvtepi32_ps(minima(scales, x->pairs32 + 8 * b));
    return _mm256_fnmadd_ps(_mm256_mul_ps(mf_halves(scales + MF_K_DMIN), d), low, acc);
}

/* Four weights of each row, sub-block s of a half: a nibble and two high bits. */
MF_AVX2_INLINE __m256i q6_group(int s, __m256i nibbles, __m256i high) {
    const __m256i low = _mm256_set1_epi8(15), two = _mm256_set1_epi8(48);
    const __m256i n = s < 2 ? nibbles : _mm256_srli_epi16(nibbles, 4);
    const __m256i h = s < 2 ? _mm256_slli_epi16(high, 4 - 2 * s) : _mm256_srli_epi16(high, 2 * s - 4);
    return _mm256_or_si256(_mm256_and_si256(n, low), _mm256_and_si256(h, two));
}

enum { Q6_BYTES = 1536 + MF_Q6K_SCALE_BYTES };

/* Half a block, 128 weights: four sub-blocks of 32 with two scales each. */
MF_AVX2_INLINE __m256i q6_half(const uint8_t *low, const uint8_t *high, const uint8_t *scales, const int8_t *q,
                               const int32_t *pairs16, const uint8_t *ahead) {
    __m256i total = _mm256_setzero_si256();
    MF_UNROLL for (int s = 0; s < 4; s++) {
        mf_prefetch(ahead + s * (Q6_BYTES / 8), Q6_BYTES / 8);
        const __m256i pair = mf_widen(scales + 16 * s);
        const __m256i scale[2] = {mf_both_even(pair), mf_both_odd(pair)};
        MF_HIDE(low);
        MF_HIDE(high);
        MF_UNROLL for (int part = 0; part < 2; part++) {
            __m256i sum = _mm256_sub_epi16(_mm256_setzero_si256(), mf_offset_pair(5, pairs16[2 * s + part]));
            MF_UNROLL for (int g = 4 * part; g < 4 * part + 4; g++) {
                const __m256i v = q6_group(s, mf_load(low + 256 * (s % 2) + 32 * g), mf_load(high + 32 * g));
                sum = _mm256_add_epi16(sum, MF_PAIRS(v, mf_words(q + 32 * s + 4 * g)));
                MF_KEEP(sum);
            }
            total = _mm256_add_epi32(total, _mm256_madd_epi16(scale[part], sum));
            MF_KEEP(total);
        }
    }
    return total;
}

MF_AVX2_INLINE __m256 block_q6(const uint8_t *quants, const uint8_t *scales, const mf_column *x, int64_t b,
                               const uint8_t *ahead, __m256 acc) {
    const int8_t *q = x->q + b * MF_BLOCK_K;
    const int32_t *pairs16 = x->pairs16 + 16 * b;
    MF_HIDE(q);
    const uint8_t *scale = scales + MF_Q6K_SCALE;
    __m256i dot = q6_half(quants, quants + 1024, scale, q, pairs16, ahead);
    ahead += Q6_BYTES / 2;
    dot = _mm256_add_epi32(dot, q6_half(quants + 512, quants + 1280, scale + 64, q + 128, pairs16 + 8, ahead));
    const __m256 d = _mm256_mul_ps(mf_halves(scales), _mm256_broadcast_ss(x->d + b));
    return _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(dot), acc);
}

/* One panel of each of `streams` streams. */
MF_AVX2_INLINE void panels(int type, int streams, const mf_span *span, int64_t first, int64_t step, const mf_column *x,
                           int64_t column) {
    const int quant_bytes = type == MF_Q4_K ? 1024 : type == MF_Q5_K ? 1280 : 1536;
    const int scale_bytes = type == MF_Q6_K ? MF_Q6K_SCALE_BYTES : MF_K_SCALE_BYTES;
    const int64_t blocks = span->weight->k / MF_BLOCK_K;
    const uint8_t *panel[MF_STREAMS];
    __m256 acc[MF_STREAMS];
    MF_UNROLL for (int a = 0; a < streams; a++) {
        panel[a] = mf_panel(span->weight, first + a * step);
        acc[a] = _mm256_setzero_ps();
    }
    for (int64_t b = 0; b < blocks; b++)
        for (int a = 0; a < streams; a++) {
            const uint8_t *ahead = panel[a] + b * (quant_bytes + scale_bytes);
            const uint8_t *quants = panel[a] + b * quant_bytes;
            const uint8_t *scales = panel[a] + blocks * quant_bytes + b * scale_bytes;
            acc[a] = type == MF_Q6_K ? block_q6(quants, scales, x, b, ahead, acc[a])
                                     : block_q45(type, quants, scales, x, b, ahead, acc[a]);
        }
    MF_UNROLL for (int a = 0; a < streams; a++) mf_emit(span, column, first + a * step, acc[a]);
}

MF_AVX2_INLINE void gemv(int type, const mf_span *span, const mf_column *x, int64_t column) {
    const int64_t step = (span->last - span->first) / MF_STREAMS;
    for (int64_t i = 0; i < step; i++) panels(type, MF_STREAMS, span, span->first + i, step, x, column);
    for (int64_t i = span->first + MF_STREAMS * step; i < span->last; i++) panels(type, 1, span, i, 0, x, column);
}

MF_AVX2 void mf_avx2_gemv_k(const mf_span *span, const uint8_t *activation, int64_t column) {
    const mf_column x = mf_column_of(MF_ACTIVATION_Q8_K, span->weight->k, activation);
#define CALL(type) gemv(type, span, &x, column)
    MF_FOR_TYPE_K(span->weight->type, CALL)
#undef CALL
}

#endif
