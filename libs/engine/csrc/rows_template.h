/* Kernels on one row, written once over eight lanes. Included by one translation unit per instruction set. */

#define EACH(i, n) for (int64_t i = 0; i < (n); i += 8)

static void norm_apply(int64_t n, const float *x, const float *weight, const float *bias, float shift, float factor,
                       float *y) {
    v8 s = v8_set(factor), m = v8_set(shift);
    EACH(i, n) {
        v8 value = v8_mul(v8_sub(v8_load_up_to(x + i, n - i, 0), m), s);
        if (weight) value = v8_mul(value, v8_load_up_to(weight + i, n - i, 0));
        if (bias) value = v8_add(value, v8_load_up_to(bias + i, n - i, 0));
        v8_store_up_to(y + i, n - i, value);
    }
}

static float sum_of_squares(int64_t n, const float *x, float mean) {
    v8 low = v8_set(0), high = v8_set(0), m = v8_set(mean);
    for (int64_t i = 0; i < n; i += 16) {
        v8 a = v8_sub(v8_load_up_to(x + i, n - i, mean), m);
        low = v8_fma(a, a, low);
        if (i + 8 < n) {
            v8 b = v8_sub(v8_load_up_to(x + i + 8, n - i - 8, mean), m);
            high = v8_fma(b, b, high);
        }
    }
    return v8_sum_16(low, high);
}

static float sum_of(int64_t n, const float *x) {
    v8 low = v8_set(0), high = v8_set(0);
    for (int64_t i = 0; i < n; i += 16) {
        low = v8_add(low, v8_load_up_to(x + i, n - i, 0));
        if (i + 8 < n) high = v8_add(high, v8_load_up_to(x + i + 8, n - i - 8, 0));
    }
    return v8_sum_16(low, high);
}

static void norm_rms(int64_t n, const float *x, const float *weight, const float *bias, float eps, float *y) {
    float mean_square = sum_of_squares(n, x, 0) / (float)n;
    norm_apply(n, x, weight, bias, 0, 1.0f / sqrtf(mean_square + eps), y);
}

static void norm_layer(int64_t n, const float *x, const float *weight, const float *bias, float eps, float *y) {
    float mean = sum_of(n, x) / (float)n;
    float variance = sum_of_squares(n, x, mean) / (float)n;
    norm_apply(n, x, weight, bias, mean, 1.0f / sqrtf(variance + eps), y);
}

static void norm_l2(int64_t n, const float *x, float *y) {
    float length = sqrtf(sum_of_squares(n, x, 0));
    norm_apply(n, x, NULL, NULL, 0, 1.0f / (length > 1e-12f ? length : 1e-12f), y);
}

static inline v8 activation_of(int function, v8 x) {
    switch (function) {
        case MF_SILU: return v8_mul(x, v8_sigmoid(x));
        case MF_GELU: {
            v8 erf = v8_erf(v8_mul(x, v8_set(0.70710678118654752f)));
            return v8_mul(v8_mul(v8_set(0.5f), x), v8_add(v8_set(1.0f), erf));
        }
        case MF_GELU_TANH: { /* (1 + tanh(u)) / 2 = sigmoid(2u) */
            v8 inner = v8_fma(v8_mul(v8_set(0.044715f), x), v8_mul(x, x), x);
            return v8_mul(x, v8_sigmoid(v8_mul(v8_set(1.59576912160573f), inner)));
        }
        case MF_RELU: return v8_max(v8_set(0.0f), x);
        case MF_RELU_SQUARED: {
            v8 positive = v8_max(v8_set(0.0f), x);
            return v8_mul(positive, positive);
        }
        default: return v8_sigmoid(x);
    }
}

static void activate(int function, int64_t n, const float *x, float *y) {
    EACH(i, n) v8_store_up_to(y + i, n - i, activation_of(function, v8_load_up_to(x + i, n - i, 0)));
}

static void glu_clamped(float limit, int64_t n, const float *gate, const float *up, float *y) {
    v8 top = v8_set(limit), bottom = v8_set(-limit), one = v8_set(1.0f);
    EACH(i, n) {
        v8 g = v8_min(top, v8_load_up_to(gate + i, n - i, 0));
        v8 u = v8_max(bottom, v8_min(top, v8_load_up_to(up + i, n - i, 0)));
        v8 swish = v8_mul(g, v8_sigmoid(v8_mul(v8_set(1.702f), g)));
        v8_store_up_to(y + i, n - i, v8_mul(v8_add(u, one), swish));
    }
}

static void glu(int function, float limit, int64_t n, const float *gate, const float *up, float *y) {
    if (limit > 0) {
        glu_clamped(limit, n, gate, up, y);
        return;
    }
    EACH(i, n) {
        v8 g = activation_of(function, v8_load_up_to(gate + i, n - i, 0));
        v8_store_up_to(y + i, n - i, v8_mul(g, v8_load_up_to(up + i, n - i, 0)));
    }
}

static void add(int64_t n, const float *a, const float *b, float *y) {
    EACH(i, n) {
        v8_store_up_to(y + i, n - i, v8_add(v8_load_up_to(a + i, n - i, 0), v8_load_up_to(b + i, n - i, 0)));
    }
}

static void mul(int64_t n, const float *a, const float *b, float *y) {
    EACH(i, n) {
        v8_store_up_to(y + i, n - i, v8_mul(v8_load_up_to(a + i, n - i, 0), v8_load_up_to(b + i, n - i, 0)));
    }
}

static void scale(int64_t n, const float *x, float factor, float *y) {
    v8 f = v8_set(factor);
    EACH(i, n) v8_store_up_to(y + i, n - i, v8_mul(v8_load_up_to(x + i, n - i, 0), f));
}

static void add_scaled(int64_t n, const float *x, float factor, float *y) {
    v8 f = v8_set(factor);
    EACH(i, n) {
        v8 sum = v8_fma(v8_load_up_to(x + i, n - i, 0), f, v8_load_up_to(y + i, n - i, 0));
        v8_store_up_to(y + i, n - i, sum);
    }
}

static void softcap(int64_t n, const float *x, float cap, float *y) {
    v8 c = v8_set(cap);
    EACH(i, n) v8_store_up_to(y + i, n - i, v8_mul(c, v8_tanh(v8_div(v8_load_up_to(x + i, n - i, 0), c))));
}

static void rope_halves(int64_t n, const float *cosine, const float *sine, const float *x, float *y) {
    const v8 zero = v8_set(0);
    EACH(i, n) {
        v8 c = v8_load_up_to(cosine + i, n - i, 0), s = v8_load_up_to(sine + i, n - i, 0);
        v8 a = v8_load_up_to(x + i, n - i, 0), b = v8_load_up_to(x + n + i, n - i, 0);
        v8_store_up_to(y + i, n - i, v8_fma(v8_sub(zero, b), s, v8_mul(a, c)));
        v8_store_up_to(y + n + i, n - i, v8_fma(a, s, v8_mul(b, c)));
    }
}

static void rope_neighbours(int64_t n, const float *cosine, const float *sine, const float *x, float *y) {
    for (int64_t i = 0; i < n; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = fmaf(-b, sine[i], a * cosine[i]);
        y[2 * i + 1] = fmaf(a, sine[i], b * cosine[i]);
    }
}

static float maximum(int64_t n, const float *x) {
    v8 low = v8_set(-INFINITY), high = v8_set(-INFINITY);
    int64_t i = 0;
#ifdef SIXTEEN_LANES
    v16 all = v16_set(-INFINITY);
    for (; i + 16 <= n; i += 16) all = v16_max(all, v16_load(x + i));
    low = v16_low(all), high = v16_high(all);
#endif
    for (; i < n; i += 16) {
        low = v8_max(low, v8_load_up_to(x + i, n - i, -INFINITY));
        if (i + 8 < n) high = v8_max(high, v8_load_up_to(x + i + 8, n - i - 8, -INFINITY));
    }
    return v8_max_16(low, high);
}

static float sum_exp(int64_t n, const float *x, float peak) {
    v8 low = v8_set(0), high = v8_set(0), p = v8_set(peak);
    int64_t i = 0;
#ifdef SIXTEEN_LANES
    v16 all = v16_set(0);
    for (; i + 16 <= n; i += 16) all = v16_add(all, v16_exp(v16_sub(v16_load(x + i), v16_set(peak))));
    low = v16_low(all), high = v16_high(all);
#endif
    for (; i + 8 <= n; i += 8) {
        v8 e = v8_exp(v8_sub(v8_load(x + i), p));
        if (i & 8) {
            high = v8_add(high, e);
        } else {
            low = v8_add(low, e);
        }
    }
    if (n % 8) {
        float rest[8], kept[8];
        v8_store(rest, v8_exp(v8_sub(v8_load_up_to(x + n - n % 8, n % 8, peak), p)));
        for (int i = 0; i < 8; i++) kept[i] = i < n % 8 ? rest[i] : 0;
        if ((n - n % 8) & 8) {
            high = v8_add(high, v8_load(kept));
        } else {
            low = v8_add(low, v8_load(kept));
        }
    }
    return v8_sum_16(low, high);
}

static void softmax(int64_t n, const float *x, float *y) {
    float peak = maximum(n, x), sum = sum_exp(n, x, peak);
    v8 p = v8_set(peak), s = v8_set(sum);
    EACH(i, n) {
        v8_store_up_to(y + i, n - i, v8_div(v8_exp(v8_sub(v8_load_up_to(x + i, n - i, 0), p)), s));
    }
}

static float exponential(float x) { return first_lane(v8_exp(v8_set(x))); }

static int above(const float *x, float bar) { return v8_any_above(v8_load(x), v8_set(bar)); }

/* values[n] = next_values * take + values * keep */
static void merge_values(int64_t n, float *values, float keep, const float *next_values, float take) {
    int64_t i = 0;
#ifdef SIXTEEN_LANES
    for (; i + 16 <= n; i += 16) {
        v16 kept = v16_mul(v16_load(values + i), v16_set(keep));
        v16_store(values + i, v16_fma(v16_load(next_values + i), v16_set(take), kept));
    }
#endif
    for (; i < n; i += 8) {
        v8 kept = v8_mul(v8_load(values + i), v8_set(keep));
        v8_store(values + i, v8_fma(v8_load(next_values + i), v8_set(take), kept));
    }
}

static void attend_merge(int64_t rows, int64_t n, float *peak, float *sum, float *values, const float *next_peak,
                         const float *next_sum, const float *next_values) {
    for (int64_t row = 0; row < rows; row += 8) {
        const int64_t left = rows - row;
        const v8 old = v8_load_up_to(peak + row, left, 0), new = v8_load_up_to(next_peak + row, left, 0);
        const v8 both = v8_max(old, new), keep = v8_exp2(v8_sub(old, both)), take = v8_exp2(v8_sub(new, both));
        const v8 kept = v8_mul(v8_load_up_to(sum + row, left, 0), keep);
        float keeps[8], takes[8];
        v8_store(keeps, keep);
        v8_store(takes, take);
        v8_store_up_to(peak + row, left, both);
        v8_store_up_to(sum + row, left, v8_fma(v8_load_up_to(next_sum + row, left, 0), take, kept));
        for (int64_t r = row; r < rows && r < row + 8; r++) {
            merge_values(n, values + r * n, keeps[r - row], next_values + r * n, takes[r - row]);
        }
    }
}

static void attend_finish(int64_t n, float peak, float sum, const float *values, int has_sink, float sink, float *y) {
    float keep = 1;
    if (has_sink) {
        float logit = sink * LOG2_E, both = peak > logit ? peak : logit;
        keep = first_lane(v8_exp2(v8_set(peak - both)));
        sum = fmaf(sum, keep, first_lane(v8_exp2(v8_set(logit - both))));
    }
    v8 factor = v8_set(keep / sum);
    EACH(i, n) v8_store_up_to(y + i, n - i, v8_mul(v8_load_up_to(values + i, n - i, 0), factor));
}
