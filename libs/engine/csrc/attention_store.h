/* Keys and values on their way into the cache: a position becomes whole numbers once, when it is stored, and in the order
 * in which attention_whole.h multiplies them. Decoding reads each a single time for a few rows, and would spend longer on
 * turning halves into numbers than on their products. */

enum { VALUE_BITS = 12 };

static inline float power_of_two(int exponent) { return mf_float_of_bits((uint32_t)(127 + exponent) << 23); }

static inline int exponent_of(uint16_t half) { return (half >> 10 & 31) < 1 ? 1 : half >> 10 & 31; }

/* The greatest magnitude of n floats: as bits, where what is no number is above all. */
static uint32_t greatest_bits(int64_t n, const float *x) {
    uint32_t bits = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t size = mf_bits_of_float(x[i]) & 0x7fffffff;
        bits = size > bits ? size : bits;
    }
    return bits;
}

static uint16_t greatest_half(int64_t n, const float *x) { return mf_half_of_float(mf_float_of_bits(greatest_bits(n, x))); }

/* n floats, rounded to halves, times `factor`, as whole numbers: y has room for a multiple of eight, zeros after n. */
static void whole_numbers(int64_t n, const float *x, float factor, int16_t *y) {
    EACH(i, n) {
        uint16_t half[8];
        v8_store_half(half, v8_load_up_to(x + i, n - i, 0));
        v8_store_shorts(y + i, v8_round(v8_mul(v8_load_half(half), v8_set(factor))));
    }
}

/* A position's key and value into its place of a block, whose other positions other threads may be storing. */
static void store_whole(int64_t dk, int64_t dv, const float *key, const float *value, int place, uint8_t *block) {
    enum { PART = 64 };
    int16_t *values = (int16_t *)block + 2 * mf_key_pairs(dk), part[PART];
    uint16_t *sizes = (uint16_t *)values + 2 * mf_value_pairs((dv + 15) / 16 * 16);
    sizes[place] = greatest_half(dk, key), sizes[16 + place] = greatest_half(dv, value);
    const int key_exponent = exponent_of(sizes[place]), value_exponent = exponent_of(sizes[16 + place]);
    const int is_finite = key_exponent < 31 && value_exponent < 31;
    const float key_factor = is_finite ? power_of_two(mf_key_bits(dk) + 14 - key_exponent) : 0;
    const float value_factor = is_finite ? power_of_two(VALUE_BITS + 14 - value_exponent) : 0;
    for (int64_t d = 0; d < dk; d += PART) {
        const int64_t n = dk - d < PART ? dk - d : PART;
        whole_numbers(n, key + d, key_factor, part);
        for (int64_t i = 0; i < n; i += 2) memcpy(block + 32 * (d + i) + 4 * place, part + i, 4);
    }
    for (int64_t d = 0; d < dv; d += PART) {
        const int64_t n = dv - d < PART ? dv - d : PART;
        whole_numbers(n, value + d, value_factor, part);
        int16_t *to = values + 16 * d + 32 * (place / 2) + place % 2;
        for (int64_t i = 0; i < n; i++) to[i / 16 * 256 + 2 * (i % 16)] = part[i];
    }
}
