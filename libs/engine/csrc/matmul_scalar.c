/* The numerics' definition: plain C, one row and one column at a time. Every other instruction set equals it bitwise. */
#include "matmul_layout.h"

#include <math.h>

/* Largest magnitude of n floats, as bits: NaN above infinity above every number. */
static uint32_t largest_bits(const float *x, int n) {
    uint32_t largest = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t bits = mf_float_bits(x[i]) & 0x7fffffffu;
        if (bits > largest) largest = bits;
    }
    return largest;
}

/* Quantize n values to one scale; returns the scale. Rounds to nearest, ties to even, without depending on the mode. */
static float quantize_block(const float *x, int n, int8_t *q) {
    const uint32_t largest = largest_bits(x, n);
    const float amax = mf_bits_float(largest);
    if (largest >= 0x7f800000u || amax < MF_SMALLEST_AMAX) {
        memset(q, 0, (size_t)n);
        return largest >= 0x7f800000u ? NAN : 0.0f;
    }
    const float inverse = 127.0f / amax;
    for (int i = 0; i < n; i++) q[i] = (int8_t)((x[i] * inverse + 0x1.8p23f) - 0x1.8p23f);
    return amax / 127.0f;
}

static int32_t sum_pair(const int8_t *q, int n) {
    int32_t low = 0, high = 0;
    for (int i = 0; i < n; i += 4) {
        low += q[i] + q[i + 1];
        high += q[i + 2] + q[i + 3];
    }
    return mf_pair(low, high);
}

void mf_quantize_scalar(int kind, int64_t k, const float *x, void *target) {
    if (kind == MF_ACTIVATION_F32) {
        memcpy(target, x, (size_t)k * 4);
        return;
    }
    const mf_column column = mf_column_of(kind, k, target);
    const int block = kind == MF_ACTIVATION_Q8 ? MF_BLOCK : MF_BLOCK_K;
    int8_t *q = (int8_t *)target;
    for (int64_t b = 0; b < k / block; b++) {
        const float d = quantize_block(x + b * block, block, q + b * block);
        ((float *)column.d)[b] = d;
        if (kind == MF_ACTIVATION_Q8) {
            const int32_t pair = sum_pair(q + b * block, block);
            ((int32_t *)column.pairs)[b] = pair;
            ((float *)column.s)[b] = d * (float)mf_pair_total(pair);
        }
    }
    if (kind == MF_ACTIVATION_Q8_K) {
        for (int64_t i = 0; i < k / 16; i++) ((int32_t *)column.pairs16)[i] = sum_pair(q + 16 * i, 16);
        for (int64_t i = 0; i < k / 32; i++) ((int32_t *)column.pairs32)[i] = sum_pair(q + 32 * i, 32);
    }
}

/* The eight rows of a panel's block as small integers, weight i of row r at [r][i]. */
typedef int8_t panel_quants[MF_PANEL_ROWS][MF_BLOCK_K];

static uint8_t byte_of(const uint8_t *words, int row, int i) { return words[32 * (i / 4) + 4 * row + i % 4]; }

static void unpack_32(int type, const uint8_t *quants, panel_quants out) {
    const int offset = type == MF_Q4_0 ? 8 : type == MF_Q5_0 ? 16 : 0;
    for (int r = 0; r < MF_PANEL_ROWS; r++) {
        for (int i = 0; i < MF_BLOCK; i++) {
            if (type == MF_Q8_0) {
                out[r][i] = (int8_t)byte_of(quants, r, i);
                continue;
            }
            int q = byte_of(quants, r, i % 16) >> (i < 16 ? 0 : 4) & 15;
            if (type == MF_Q5_0 || type == MF_Q5_1) q |= (quants[128 + 4 * r + i % 4] >> (i / 4) & 1) << 4;
            out[r][i] = (int8_t)(q - offset);
        }
    }
}

static void unpack_k(int type, const uint8_t *quants, panel_quants out) {
    for (int r = 0; r < MF_PANEL_ROWS; r++) {
        for (int i = 0; i < MF_BLOCK_K; i++) {
            const int s = i / 32, l = i % 32;
            if (type == MF_Q6_K) {
                const int half = i / 128, quarter = s % 4;
                const int low = byte_of(quants + 512 * half + 256 * (quarter % 2), r, l) >> (4 * (quarter / 2)) & 15;
                const int high = byte_of(quants + 1024 + 256 * half, r, l) >> (2 * quarter) & 3;
                out[r][i] = (int8_t)((low | high << 4) - 32);
            } else {
                int q = byte_of(quants + 256 * (s / 2), r, l) >> (4 * (s % 2)) & 15;
                if (type == MF_Q5_K) q |= (byte_of(quants + 1024, r, l) >> s & 1) << 4;
                out[r][i] = (int8_t)q;
            }
        }
    }
}

static int32_t dot(const int8_t *a, const int8_t *b, int n) {
    int32_t sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Columns that share the unpacking of a panel. */
enum { GROUP = 32 };

typedef struct column_group {
    mf_column x[GROUP];
    const float *values[GROUP];
    int n;
    float acc[GROUP][MF_PANEL_ROWS], minimum[GROUP][MF_PANEL_ROWS];
} column_group;

static void panel_32(const mf_weight *w, const uint8_t *panel, column_group *group) {
    const mf_format *format = mf_format_of(w->type);
    const int64_t blocks = w->k / MF_BLOCK;
    const uint8_t *scales = panel + blocks * format->quant_bytes;
    for (int64_t b = 0; b < blocks; b++, scales += format->scale_bytes) {
        panel_quants q;
        unpack_32(w->type, panel + b * format->quant_bytes, q);
        for (int r = 0; r < MF_PANEL_ROWS; r++) {
            const float d = mf_half(mf_load16(scales + 2 * r));
            for (int c = 0; c < group->n; c++) {
                const mf_column *x = &group->x[c];
                const int32_t isum = dot(q[r], x->q + b * MF_BLOCK, MF_BLOCK);
                group->acc[c][r] = fmaf(d * x->d[b], (float)isum, group->acc[c][r]);
                if (format->scale_bytes == 32)
                    group->minimum[c][r] = fmaf(mf_half(mf_load16(scales + 16 + 2 * r)), x->s[b], group->minimum[c][r]);
            }
        }
    }
    if (format->scale_bytes == 32)
        for (int c = 0; c < group->n; c++)
            for (int r = 0; r < MF_PANEL_ROWS; r++) group->acc[c][r] += group->minimum[c][r];
}

static int32_t row_minimum(const uint8_t *scales, int r, const int32_t *pairs32) {
    int32_t sum = 0;
    for (int s = 0; s < 8; s++) sum += mf_pair_total(pairs32[s]) * scales[MF_K_MIN + 16 * (s / 2) + 2 * r + s % 2];
    return sum;
}

/* One row of a K block times one column. */
static float row_k(int type, const int8_t *q, const uint8_t *scales, int r, const mf_column *x, int64_t b, float acc) {
    const int sub = type == MF_Q6_K ? 16 : 32;
    const uint8_t *scale = scales + (type == MF_Q6_K ? MF_Q6K_SCALE : MF_K_SCALE) + 2 * r;
    int32_t isum = 0;
    for (int s = 0; s < MF_BLOCK_K / sub; s++)
        isum += (int8_t)scale[16 * (s / 2) + s % 2] * dot(q + sub * s, x->q + b * MF_BLOCK_K + sub * s, sub);
    acc = fmaf(mf_half(mf_load16(scales + 2 * r)) * x->d[b], (float)isum, acc);
    if (type == MF_Q6_K) return acc;
    const float dmin = mf_half(mf_load16(scales + MF_K_DMIN + 2 * r));
    return fmaf(-(dmin * x->d[b]), (float)row_minimum(scales, r, x->pairs32 + 8 * b), acc);
}

static void panel_k(const mf_weight *w, const uint8_t *panel, column_group *group) {
    const mf_format *format = mf_format_of(w->type);
    const int64_t blocks = w->k / MF_BLOCK_K;
    const uint8_t *scales = panel + blocks * format->quant_bytes;
    for (int64_t b = 0; b < blocks; b++, scales += format->scale_bytes) {
        panel_quants q;
        unpack_k(w->type, panel + b * format->quant_bytes, q);
        for (int r = 0; r < MF_PANEL_ROWS; r++)
            for (int c = 0; c < group->n; c++)
                group->acc[c][r] = row_k(w->type, q[r], scales, r, &group->x[c], b, group->acc[c][r]);
    }
}

static void panel_float(const mf_weight *w, const uint8_t *panel, column_group *group) {
    for (int64_t i = 0; i < MF_PANEL_ROWS * w->k; i++) {
        const float weight = w->type == MF_F32   ? mf_bits_float(mf_load32(panel + 4 * i))
                             : w->type == MF_F16 ? mf_half(mf_load16(panel + 2 * i))
                                                 : mf_bfloat(mf_load16(panel + 2 * i));
        for (int c = 0; c < group->n; c++) {
            float *acc = &group->acc[c][i % MF_PANEL_ROWS];
            *acc = fmaf(weight, group->values[c][i / MF_PANEL_ROWS], *acc);
        }
    }
}

static void panel_times(const mf_weight *weight, int64_t panel, column_group *group) {
    memset(group->acc, 0, sizeof group->acc);
    memset(group->minimum, 0, sizeof group->minimum);
    if (weight->activation == MF_ACTIVATION_F32) panel_float(weight, mf_panel(weight, panel), group);
    else if (weight->activation == MF_ACTIVATION_Q8) panel_32(weight, mf_panel(weight, panel), group);
    else panel_k(weight, mf_panel(weight, panel), group);
}

static void matmul(const mf_weight *weight, const void *activations, int64_t first, int64_t last, int64_t first_column,
                   int64_t last_column, const mf_output *out) {
    const int64_t bytes = mf_activation_bytes(weight->activation, weight->k);
    column_group group;
    for (int64_t from = first_column; from < last_column; from += GROUP) {
        group.n = last_column - from < GROUP ? (int)(last_column - from) : GROUP;
        for (int c = 0; c < group.n; c++) {
            const void *base = (const uint8_t *)activations + (from + c) * bytes;
            group.x[c] = mf_column_of(weight->activation, weight->k, base);
            group.values[c] = base;
        }
        for (int64_t p = first; p < last; p++) {
            panel_times(weight, p, &group);
            for (int c = 0; c < group.n; c++)
                mf_store(out, from + c, p * MF_PANEL_ROWS, weight->rows, group.acc[c]);
        }
    }
}

const mf_kernels mf_kernels_scalar = {"scalar", 64, mf_repack_panels, mf_quantize_scalar, matmul, mf_gather_row};
