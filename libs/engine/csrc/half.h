/* IEEE half precision in software, rounding to nearest even: what F16C does, bit for bit. */
#ifndef MINFER_HALF_H
#define MINFER_HALF_H

#include <stdint.h>
#include <string.h>

/* 1.5 * 2^23: added to a float of less than 2^22 it leaves the nearest whole number in the low bits. */
#define ROUNDING 12582912.0f

static inline float mf_float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t mf_bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float mf_float_of_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 31) {
        uint32_t quiet = fraction ? 0x400000 : 0;
        return mf_float_of_bits(sign | 0x7f800000 | quiet | fraction << 13);
    }
    if (exponent == 0) {
        float tiny = (float)fraction * 0x1p-24f; /* exact */
        return mf_float_of_bits(sign | mf_bits_of_float(tiny));
    }
    return mf_float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static inline uint16_t mf_half_of_float(float value) {
    uint32_t bits = mf_bits_of_float(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds past 65504 */
    if (rest < 0x38800000) { /* below the smallest normal half: count units of 2^-24, rounded by the adder */
        float shifted = mf_float_of_bits(rest) + 0.5f;
        return (uint16_t)(sign | (mf_bits_of_float(shifted) - 0x3f000000));
    }
    uint32_t odd = rest >> 13 & 1;
    return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + odd) >> 13);
}

#endif
