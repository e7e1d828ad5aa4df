/* Sine and cosine in double precision from basic arithmetic alone, so that every machine has the same tables. */
#ifndef MINFER_ANGLES_H
#define MINFER_ANGLES_H

#include <stdint.h>

/* |angle| below 1.6e6; error below 1e-11, far under the float the result becomes. */
static inline void mf_sine_cosine(double angle, double *sine, double *cosine) {
    const double half_pi_high = 0x1.921fb544p+0, half_pi_low = 0x1.0b4611a626331p-34; /* high: 33 bits, k * high exact */
    double turns = angle * 0x1.45f306dc9c883p-1;
    int64_t k = (int64_t)(turns < 0 ? turns - 0.5 : turns + 0.5);
    double r = (angle - (double)k * half_pi_high) - (double)k * half_pi_low, q = r * r;
    double s = -1.0 / 1307674368000, c = -1.0 / 87178291200;
    s = s * q + 1.0 / 6227020800;
    s = s * q - 1.0 / 39916800;
    s = s * q + 1.0 / 362880;
    s = s * q - 1.0 / 5040;
    s = s * q + 1.0 / 120;
    s = s * q - 1.0 / 6;
    s = s * q * r + r;
    c = c * q + 1.0 / 479001600;
    c = c * q - 1.0 / 3628800;
    c = c * q + 1.0 / 40320;
    c = c * q - 1.0 / 720;
    c = c * q + 1.0 / 24;
    c = c * q - 0.5;
    c = c * q + 1.0;
    switch (k & 3) {
        case 0: *sine = s, *cosine = c; break;
        case 1: *sine = c, *cosine = -s; break;
        case 2: *sine = -s, *cosine = -c; break;
        default: *sine = -c, *cosine = s; break;
    }
}

#endif
