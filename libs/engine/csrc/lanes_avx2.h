/* Eight float lanes as AVX2 + FMA + F16C. Include inside a region compiled for that target. */
#ifndef MINFER_LANES_AVX2_H
#define MINFER_LANES_AVX2_H

#include <immintrin.h>
#include <stdint.h>

typedef __m256 v8;

static inline v8 v8_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v8_store(float *p, v8 a) { _mm256_storeu_ps(p, a); }
static inline v8 v8_set(float a) { return _mm256_set1_ps(a); }
static inline v8 v8_add(v8 a, v8 b) { return _mm256_add_ps(a, b); }
static inline v8 v8_sub(v8 a, v8 b) { return _mm256_sub_ps(a, b); }
static inline v8 v8_mul(v8 a, v8 b) { return _mm256_mul_ps(a, b); }
static inline v8 v8_div(v8 a, v8 b) { return _mm256_div_ps(a, b); }
static inline v8 v8_fma(v8 a, v8 b, v8 c) { return _mm256_fmadd_ps(a, b, c); }
/* a > b ? a : b, so b where one of them is not a number */
static inline v8 v8_max(v8 a, v8 b) { return _mm256_max_ps(a, b); }
static inline v8 v8_min(v8 a, v8 b) { return _mm256_min_ps(a, b); }
static inline v8 v8_abs(v8 a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
/* a with the sign bit of b flipped in where b is negative */
static inline v8 v8_xor_sign(v8 a, v8 b) { return _mm256_xor_ps(a, _mm256_and_ps(b, _mm256_set1_ps(-0.0f))); }
/* a < b ? yes : no */
static inline v8 v8_select_less(v8 a, v8 b, v8 yes, v8 no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
/* the bits of a shifted left by 23: the exponent that an integer in the low bits means */
static inline v8 v8_shift_to_exponent(v8 a) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a), 23));
}
static inline v8 v8_load_half(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline void v8_store_half(uint16_t *p, v8 a) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
/* Over all lanes, as a tree: halves first. */
static inline float v8_sum(v8 a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
static inline float v8_greatest(v8 a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
/* Whole numbers: 32 bits a lane, or pairs of 16 bits. */
typedef __m256i v8i;

static inline v8i v8_load_pairs(const int32_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline void v8_store_pairs(int32_t *p, v8i a) { _mm256_storeu_si256((__m256i *)p, a); }
static inline v8i v8_spread(int32_t a) { return _mm256_set1_epi32(a); }
static inline v8 v8_from_whole(v8i a) { return _mm256_cvtepi32_ps(a); }
static inline v8i v8_round(v8 a) { return _mm256_cvtps_epi32(a); } /* the low 16 bits are 0 if a is no number */
/* the low 16 bits of each, one after the other */
static inline void v8_store_shorts(void *p, v8i a) {
    const __m256i low = _mm256_and_si256(a, _mm256_set1_epi32(0xffff)), packed = _mm256_packus_epi32(low, low);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}
/* c + the products of both halves. The sum by name: gcc 12 keeps moving a dozen of them between registers and memory
 * around the intrinsic. */
static inline v8i v8_dot(v8i a, v8i b, v8i c) {
    const v8i products = _mm256_madd_epi16(a, b);
    __asm__("vpaddd %1, %0, %0" : "+x"(c) : "x"(products));
    return c;
}
static inline int v8_any_above(v8 a, v8 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)); }

#endif
