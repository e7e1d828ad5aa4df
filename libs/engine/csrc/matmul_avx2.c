/* The AVX2 table: quantization of activations, and the choice between one column and many. */
#include "matmul_avx2.h"

#if MF_HAVE_AVX2

#include <math.h>

/* Largest magnitude as bits, so that NaN ranks above infinity and infinity above every number. */
MF_AVX2_INLINE uint32_t largest_bits(const float *x, int n) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8) largest = _mm256_max_epi32(largest, _mm256_and_si256(mf_load(x + i), magnitude));
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(half);
}

/* 32 scaled values to bytes, in order. */
MF_AVX2_INLINE __m256i quantize_32(const float *x, __m256 inverse) {
    const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
    const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inverse));
    const __m256i c = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16), inverse));
    const __m256i d = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 24), inverse));
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The sum pairs of the two halves of 32 bytes. */
MF_AVX2_INLINE void half_pairs(__m256i q, int32_t pairs[2]) {
    __m256i sums = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    sums = _mm256_add_epi16(sums, _mm256_shuffle_epi32(sums, 0x4e));
    sums = _mm256_add_epi16(sums, _mm256_shuffle_epi32(sums, 0xb1));
    pairs[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(sums));
    pairs[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1));
}

MF_AVX2_INLINE int32_t add_pairs(int32_t a, int32_t b) {
    return _mm_cvtsi128_si32(_mm_add_epi16(_mm_cvtsi32_si128(a), _mm_cvtsi32_si128(b)));
}

/* The scale and its inverse of a block; an inverse of 0 makes every q 0. */
MF_AVX2_INLINE float scale_of(uint32_t largest, float *inverse) {
    const float amax = mf_bits_float(largest);
    *inverse = 0.0f;
    if (largest >= 0x7f800000u) return NAN;
    if (amax < MF_SMALLEST_AMAX) return 0.0f;
    *inverse = 127.0f / amax;
    return amax / 127.0f;
}

MF_AVX2_INLINE void quantize_block(const float *x, int n, float *d, int8_t *q, int32_t *pairs16) {
    float inverse;
    *d = scale_of(largest_bits(x, n), &inverse);
    for (int i = 0; i < n; i += MF_BLOCK) {
        const __m256i bytes = inverse > 0 ? quantize_32(x + i, _mm256_set1_ps(inverse)) : _mm256_setzero_si256();
        _mm256_storeu_si256((__m256i *)(void *)(q + i), bytes);
        half_pairs(bytes, pairs16 + i / 16);
    }
}

MF_AVX2 void mf_avx2_quantize(int kind, int64_t k, const float *x, void *target) {
    if (kind == MF_ACTIVATION_F32) {
        memcpy(target, x, (size_t)k * 4);
        return;
    }
    const mf_column column = mf_column_of(kind, k, target);
    int8_t *q = (int8_t *)target;
    float *d = (float *)column.d, *s = (float *)column.s;
    int32_t *pairs16 = (int32_t *)column.pairs16, *pairs32 = (int32_t *)column.pairs32, halves[2];
    if (kind == MF_ACTIVATION_Q8) {
        for (int64_t b = 0; b < k / MF_BLOCK; b++) {
            quantize_block(x + b * MF_BLOCK, MF_BLOCK, &d[b], q + b * MF_BLOCK, halves);
            const int32_t pair = add_pairs(halves[0], halves[1]);
            ((int32_t *)column.pairs)[b] = pair;
            s[b] = d[b] * (float)mf_pair_total(pair);
        }
    } else {
        for (int64_t b = 0; b < k / MF_BLOCK_K; b++)
            quantize_block(x + b * MF_BLOCK_K, MF_BLOCK_K, &d[b], q + b * MF_BLOCK_K, pairs16 + 16 * b);
        for (int64_t i = 0; i < k / 32; i++) pairs32[i] = add_pairs(pairs16[2 * i], pairs16[2 * i + 1]);
    }
}

static void matmul(const mf_weight *weight, const void *activations, int64_t first, int64_t last, int64_t first_column,
                   int64_t last_column, const mf_output *out) {
    const mf_span span = {weight, out, first, last};
    if (last_column - first_column != 1) {
        mf_avx2_gemm(&span, (const uint8_t *)activations, first_column, last_column);
        return;
    }
    const int64_t bytes = mf_activation_bytes(weight->activation, weight->k);
    const uint8_t *column = (const uint8_t *)activations + first_column * bytes;
    if (weight->activation == MF_ACTIVATION_F32) mf_avx2_gemv_float(&span, column, first_column);
    else if (weight->activation == MF_ACTIVATION_Q8) mf_avx2_gemv(&span, column, first_column);
    else mf_avx2_gemv_k(&span, column, first_column);
}

const mf_kernels mf_kernels_avx2 = {"avx2", 64, mf_repack_panels, mf_avx2_quantize, matmul, mf_gather_row};

#else

const mf_kernels mf_kernels_avx2 = {"avx2", 64, 0, 0, 0, 0};

#endif
