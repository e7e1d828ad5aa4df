/* Elementary functions and reductions on eight lanes; the same bits on every instruction set.
 * Included after a lanes_*.h, once in each of its translation units. */
#ifndef MINFER_LANES_MATH_H
#define MINFER_LANES_MATH_H

#include <string.h>

#define LOG2_E 1.44269504088896341f
#define LOG2_E_REST 1.92596299112661746887e-8f /* log2(e) - (float)log2(e) */

/* 2^t, relative error 1e-7 and rounding; 0 below 2^-126.5, infinity from 2^127.5. Fitted on [-1/2, 1/2].
 * Adding `magic` leaves round(t) + 127 in the low bits. */
#define EXP2_MAGIC (ROUNDING + 127.0f)
#define DEFINE_EXP2_OF_FRACTION(V) \
    static inline V V##_exp2_of_fraction(V f) { \
        V p = V##_fma(V##_set(1.326472779e-3f), f, V##_set(9.671512997e-3f)); \
        p = V##_fma(p, f, V##_set(5.550733744e-2f)); \
        p = V##_fma(p, f, V##_set(2.402224208e-1f)); \
        p = V##_fma(p, f, V##_set(6.931469776e-1f)); \
        return V##_fma(p, f, V##_set(1.0f)); \
    }
DEFINE_EXP2_OF_FRACTION(v8)

static inline v8 v8_exp2(v8 t) {
    const v8 magic = v8_set(EXP2_MAGIC);
    t = v8_min(v8_set(128.0f), v8_max(v8_set(-127.0f), t));
    const v8 biased = v8_add(t, magic);
    return v8_mul(v8_exp2_of_fraction(v8_sub(t, v8_sub(biased, magic))), v8_shift_to_exponent(biased));
}

#ifdef SIXTEEN_LANES
DEFINE_EXP2_OF_FRACTION(v16)

/* The same for t up to 127: what would be below 2^-126.5 is left out, so that nothing needs a limit. */
static inline v16 v16_exp2(v16 t) {
    const v16 magic = v16_set(EXP2_MAGIC), biased = v16_add(t, magic), whole = v16_sub(biased, magic);
    return v16_times_power_unless_below(v16_exp2_of_fraction(v16_sub(t, whole)), whole, biased, EXP2_MAGIC - 126.0f);
}
#endif

#define DEFINE_EXP(V) \
    static inline V V##_exp(V x) { \
        const V magic = V##_set(EXP2_MAGIC); \
        x = V##_min(V##_set(89.0f), V##_max(V##_set(-88.0f), x)); \
        V biased = V##_add(V##_mul(x, V##_set(LOG2_E)), magic); \
        V n = V##_sub(biased, magic); \
        V f = V##_fma(x, V##_set(LOG2_E_REST), V##_fma(x, V##_set(LOG2_E), V##_sub(V##_set(0.0f), n))); \
        V p = V##_fma(V##_set(1.535335916e-4f), f, V##_set(1.339887475e-3f)); \
        p = V##_fma(p, f, V##_set(9.618437371e-3f)); \
        p = V##_fma(p, f, V##_set(5.550332470e-2f)); \
        p = V##_fma(p, f, V##_set(2.402264791e-1f)); \
        p = V##_fma(p, f, V##_set(6.931472029e-1f)); \
        p = V##_fma(p, f, V##_set(1.0f)); \
        return V##_mul(p, V##_shift_to_exponent(biased)); \
    }
DEFINE_EXP(v8)
#ifdef SIXTEEN_LANES
DEFINE_EXP(v16)
#endif

static inline v8 v8_sigmoid(v8 x) {
    return v8_div(v8_set(1.0f), v8_add(v8_set(1.0f), v8_exp(v8_sub(v8_set(0.0f), x))));
}

/* Below 0.35 the odd series, so that small arguments keep their relative precision. */
static inline v8 v8_tanh(v8 x) {
    v8 size = v8_abs(x), square = v8_mul(x, x);
    v8 e = v8_exp(v8_mul(v8_set(-2.0f), size));
    v8 large = v8_div(v8_sub(v8_set(1.0f), e), v8_add(v8_set(1.0f), e));
    v8 p = v8_fma(v8_set(-7.896723839e-3f), square, v8_set(2.177438484e-2f));
    p = v8_fma(p, square, v8_set(-5.396441490e-2f));
    p = v8_fma(p, square, v8_set(1.333332793e-1f));
    p = v8_fma(p, square, v8_set(-3.333333332e-1f));
    v8 small = v8_fma(v8_mul(p, square), x, x);
    return v8_select_less(size, v8_set(0.35f), small, v8_xor_sign(large, x));
}

/* Abramowitz and Stegun 7.1.26, absolute error 1.5e-7. */
static inline v8 v8_erf(v8 x) {
    v8 size = v8_abs(x);
    v8 t = v8_div(v8_set(1.0f), v8_fma(v8_set(0.3275911f), size, v8_set(1.0f)));
    v8 p = v8_fma(v8_set(1.061405429f), t, v8_set(-1.453152027f));
    p = v8_fma(p, t, v8_set(1.421413741f));
    p = v8_fma(p, t, v8_set(-0.284496736f));
    p = v8_fma(p, t, v8_set(0.254829592f));
    v8 tail = v8_mul(v8_mul(p, t), v8_exp(v8_sub(v8_set(0.0f), v8_mul(x, x))));
    return v8_xor_sign(v8_sub(v8_set(1.0f), tail), x);
}

static inline v8 v8_load_up_to(const float *p, int64_t n, float filler) {
    if (n >= 8) return v8_load(p);
    float part[8];
    for (int i = 0; i < 8; i++) part[i] = i < n ? p[i] : filler;
    return v8_load(part);
}

static inline void v8_store_up_to(float *p, int64_t n, v8 a) {
    if (n >= 8) {
        v8_store(p, a);
    } else {
        float part[8];
        v8_store(part, a);
        for (int i = 0; i < n; i++) p[i] = part[i];
    }
}

/* The fixed tree over 16 strided partial sums: element i of a row went into lane i % 16. */
static inline float v8_sum_16(v8 low, v8 high) { return v8_sum(v8_add(low, high)); }
static inline float v8_max_16(v8 low, v8 high) { return v8_greatest(v8_max(low, high)); }

static inline float first_lane(v8 a) {
    float lane[8];
    v8_store(lane, a);
    return lane[0];
}

#endif
