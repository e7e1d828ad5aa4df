/* Sixteen float lanes beside the eight of lanes_avx2.h, for what takes the time: attention. */
#ifndef MINFER_LANES_AVX512_H
#define MINFER_LANES_AVX512_H

#include "lanes_avx2.h"

typedef __m512 v16;

static inline v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v16_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
static inline v16 v16_set(float a) { return _mm512_set1_ps(a); }
static inline v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
static inline v16 v16_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
static inline v16 v16_shift_to_exponent(v16 a) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a), 23));
}
/* a * 2^whole, or 0 where b < bar */
static inline v16 v16_times_power_unless_below(v16 a, v16 whole, v16 b, float bar) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(b, _mm512_set1_ps(bar), _CMP_NLT_UQ), a, whole);
}
static inline v8 v16_low(v16 a) { return _mm512_castps512_ps256(a); }
static inline v8 v16_high(v16 a) { return _mm512_extractf32x8_ps(a, 1); }

typedef __m512i v16i;

static inline v16i v16_load_pairs(const int32_t *p) { return _mm512_loadu_si512(p); }
static inline void v16_store_pairs(int32_t *p, v16i a) { _mm512_storeu_si512(p, a); }
static inline v16i v16_spread(int32_t a) { return _mm512_set1_epi32(a); }
static inline v16 v16_from_whole(v16i a) { return _mm512_cvtepi32_ps(a); }
static inline v16i v16_round(v16 a) { return _mm512_cvtps_epi32(a); }
static inline void v16_store_shorts(void *p, v16i a) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(a)); }
static inline v16i v16_shift_left_8(v16i a) { return _mm512_slli_epi32(a, 8); }
static inline v16i v16_shift_right_8(v16i a) { return _mm512_srli_epi32(a, 8); }
static inline v16i v16_choose(v16i mask, v16i yes, v16i no) { return _mm512_ternarylogic_epi32(mask, yes, no, 0xca); }
/* 2^16 high + 2^8 middle + low */
static inline v16i v16_plus_shifted(v16i high, v16i middle, v16i low) {
    return _mm512_add_epi32(_mm512_slli_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, 8), middle), 8), low);
}
/* lanes 0, 2, 4, … of both, and 1, 3, 5, … */
static inline v16i v16_even_lanes(v16i a, v16i b) {
    const v16i at = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_epi32(a, at, b);
}
static inline v16i v16_odd_lanes(v16i a, v16i b) {
    const v16i at = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi32(a, at, b);
}
/* By name: gcc 12 keeps moving sums from one register to another around the intrinsic. */
static inline v16i v16_dot(v16i a, v16i b, v16i c) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
}

#endif
