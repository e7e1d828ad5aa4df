/* Eight float lanes in plain C: the definition that other instruction sets repeat bit for bit. */
#ifndef MINFER_LANES_SCALAR_H
#define MINFER_LANES_SCALAR_H

#include <math.h>
#include <stdint.h>

#include "half.h"

typedef struct {
    float lane[8];
} v8;

#define V8_EACH_AS(type, expression)                           \
    do {                                                       \
        type result;                                           \
        for (int i = 0; i < 8; i++) result.lane[i] = expression; \
        return result;                                         \
    } while (0)
#define V8_EACH(expression) V8_EACH_AS(v8, expression)

static inline v8 v8_load(const float *p) { V8_EACH(p[i]); }
static inline void v8_store(float *p, v8 a) {
    for (int i = 0; i < 8; i++) p[i] = a.lane[i];
}
static inline v8 v8_set(float a) { V8_EACH(a); }
static inline v8 v8_add(v8 a, v8 b) { V8_EACH(a.lane[i] + b.lane[i]); }
static inline v8 v8_sub(v8 a, v8 b) { V8_EACH(a.lane[i] - b.lane[i]); }
static inline v8 v8_mul(v8 a, v8 b) { V8_EACH(a.lane[i] * b.lane[i]); }
static inline v8 v8_div(v8 a, v8 b) { V8_EACH(a.lane[i] / b.lane[i]); }
static inline v8 v8_fma(v8 a, v8 b, v8 c) { V8_EACH(fmaf(a.lane[i], b.lane[i], c.lane[i])); }
/* a > b ? a : b, so b where one of them is not a number */
static inline v8 v8_max(v8 a, v8 b) { V8_EACH(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]); }
static inline v8 v8_min(v8 a, v8 b) { V8_EACH(a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]); }
static inline v8 v8_abs(v8 a) { V8_EACH(mf_float_of_bits(mf_bits_of_float(a.lane[i]) & 0x7fffffff)); }
/* a with the sign bit of b flipped in where b is negative */
static inline v8 v8_xor_sign(v8 a, v8 b) {
    V8_EACH(mf_float_of_bits(mf_bits_of_float(a.lane[i]) ^ (mf_bits_of_float(b.lane[i]) & 0x80000000)));
}
/* a < b ? yes : no */
static inline v8 v8_select_less(v8 a, v8 b, v8 yes, v8 no) {
    V8_EACH(a.lane[i] < b.lane[i] ? yes.lane[i] : no.lane[i]);
}
/* the bits of a shifted left by 23: the exponent that an integer in the low bits means */
static inline v8 v8_shift_to_exponent(v8 a) { V8_EACH(mf_float_of_bits(mf_bits_of_float(a.lane[i]) << 23)); }
static inline v8 v8_load_half(const uint16_t *p) { V8_EACH(mf_float_of_half(p[i])); }
static inline void v8_store_half(uint16_t *p, v8 a) {
    for (int i = 0; i < 8; i++) p[i] = mf_half_of_float(a.lane[i]);
}
/* Over all lanes, as a tree: halves first. */
static inline float v8_sum(v8 a) {
    for (int width = 4; width; width /= 2) {
        for (int i = 0; i < width; i++) a.lane[i] += a.lane[i + width];
    }
    return a.lane[0];
}
static inline float v8_greatest(v8 a) {
    for (int width = 4; width; width /= 2) {
        for (int i = 0; i < width; i++) a.lane[i] = a.lane[i] > a.lane[i + width] ? a.lane[i] : a.lane[i + width];
    }
    return a.lane[0];
}
/* Whole numbers: 32 bits a lane, or pairs of 16 bits. */
typedef struct {
    int32_t lane[8];
} v8i;

#define V8I_EACH(expression) V8_EACH_AS(v8i, expression)

static inline v8i v8_load_pairs(const int32_t *p) { V8I_EACH(p[i]); }
static inline void v8_store_pairs(int32_t *p, v8i a) {
    for (int i = 0; i < 8; i++) p[i] = a.lane[i];
}
static inline v8i v8_spread(int32_t a) { V8I_EACH(a); }
static inline v8 v8_from_whole(v8i a) { V8_EACH((float)a.lane[i]); }
/* To nearest, of less than 2^22; 0 where it is no number. */
static inline int32_t mf_round_lane(float a) {
    return a == a ? (int32_t)(mf_bits_of_float(a + ROUNDING) - mf_bits_of_float(ROUNDING)) : 0;
}
static inline v8i v8_round(v8 a) { V8I_EACH(mf_round_lane(a.lane[i])); }
/* the low 16 bits of each, one after the other */
static inline void v8_store_shorts(void *p, v8i a) {
    int16_t low[8];
    for (int i = 0; i < 8; i++) low[i] = (int16_t)a.lane[i];
    memcpy(p, low, sizeof low);
}
/* c + the products of both halves, as far as 32 bits go */
static inline int32_t mf_dot_lane(int32_t a, int32_t b, int32_t c) {
    const int32_t low = (int16_t)a * (int16_t)b, high = (int16_t)(a >> 16) * (int16_t)(b >> 16);
    return (int32_t)((uint32_t)c + (uint32_t)low + (uint32_t)high);
}
static inline v8i v8_dot(v8i a, v8i b, v8i c) { V8I_EACH(mf_dot_lane(a.lane[i], b.lane[i], c.lane[i])); }
static inline int v8_any_above(v8 a, v8 b) {
    int mask = 0;
    for (int i = 0; i < 8; i++) mask |= (a.lane[i] > b.lane[i]) << i;
    return mask;
}

#endif
