/* Eight float lanes in plain C: the definition that other instruction sets repeat bit for bit. */
#ifndef MINFER_LANES_SCALAR_H
#define MINFER_LANES_SCALAR_H

#include <math.h>
#include <stdint.h>

#include "half.h"

typedef struct {
    float lane[8];
} v8;

#define V8_EACH(expression)                                    \
    do {                                                       \
        v8 result;                                             \
        for (int i = 0; i < 8; i++) result.lane[i] = expression; \
        return result;                                         \
    } while (0)

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
static inline int v8_any_above(v8 a, v8 b) {
    int mask = 0;
    for (int i = 0; i < 8; i++) mask |= (a.lane[i] > b.lane[i]) << i;
    return mask;
}

#endif
