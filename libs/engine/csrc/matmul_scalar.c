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

static void quantize(int kind, int64_t k, const float *x, void *target) {
    if (kind == MF_ACTIVATION_F32) {
        memcpy(target, x, (size_t)k * 4);
        return;
    }
    const mf_column column = mf_column_of(kind, k, target);
    const int block = kind == MF_ACTIVATION_Q8 ? MF_BLOCK : MF_BLOCK_K;
    for (int64_t b = 0; b < k / block; b++) {
        int8_t *q = (int8_t *)column.q + b * block;
        const float d = quantize_block(x + b * block, block, q);
        ((float *)column.d)[b] = d;
        int32_t sum = 0;
        for (int i = 0; i < block; i++) {
            sum += q[i];
            if (kind == MF_ACTIVATION_Q8_K && i % 16 == 15) {
                ((int16_t *)column.sum16)[b * 16 + i / 16] = (int16_t)sum;
                sum = 0;
            }
        }
        if (kind == MF_ACTIVATION_Q8) {
            ((int32_t *)column.sum)[b] = sum;
            ((float *)column.s)[b] = d * (float)sum;
        }
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

/* Panel by column kernels: eight results each. */
static void panel_32(const mf_weight *w, const uint8_t *panel, const mf_column *x, float *result) {
    const mf_format *format = mf_format_of(w->type);
    const int64_t blocks = w->k / MF_BLOCK;
    const uint8_t *scales = panel + blocks * format->quant_bytes;
    float acc[MF_PANEL_ROWS] = {0}, minimum[MF_PANEL_ROWS] = {0};
    for (int64_t b = 0; b < blocks; b++, scales += format->scale_bytes) {
        panel_quants q;
        unpack_32(w->type, panel + b * format->quant_bytes, q);
        for (int r = 0; r < MF_PANEL_ROWS; r++) {
            const int32_t isum = dot(q[r], x->q + b * MF_BLOCK, MF_BLOCK);
            acc[r] = fmaf(mf_half(mf_load16(scales + 2 * r)) * x->d[b], (float)isum, acc[r]);
            if (format->scale_bytes == 32)
                minimum[r] = fmaf(mf_half(mf_load16(scales + 16 + 2 * r)), x->s[b], minimum[r]);
        }
    }
    for (int r = 0; r < MF_PANEL_ROWS; r++) result[r] = format->scale_bytes == 32 ? acc[r] + minimum[r] : acc[r];
}

static int32_t row_minimum(const uint8_t *scales, int r, const int16_t *sum16) {
    int32_t sum = 0;
    for (int s = 0; s < 8; s++) {
        const int32_t sum32 = sum16[2 * s] + sum16[2 * s + 1];
        sum += sum32 * scales[MF_K_MIN + 16 * (s / 2) + 2 * r + s % 2];
    }
    return sum;
}

static void panel_k(const mf_weight *w, const uint8_t *panel, const mf_column *x, float *result) {
    const mf_format *format = mf_format_of(w->type);
    const int64_t blocks = w->k / MF_BLOCK_K;
    const uint8_t *scales = panel + blocks * format->quant_bytes;
    const int sub = w->type == MF_Q6_K ? 16 : 32;
    for (int r = 0; r < MF_PANEL_ROWS; r++) result[r] = 0;
    for (int64_t b = 0; b < blocks; b++, scales += format->scale_bytes) {
        panel_quants q;
        unpack_k(w->type, panel + b * format->quant_bytes, q);
        for (int r = 0; r < MF_PANEL_ROWS; r++) {
            const uint8_t *scale = scales + (w->type == MF_Q6_K ? MF_Q6K_SCALE : MF_K_SCALE) + 2 * r;
            int32_t isum = 0;
            for (int s = 0; s < MF_BLOCK_K / sub; s++)
                isum += (int8_t)scale[16 * (s / 2) + s % 2] * dot(q[r] + sub * s, x->q + b * MF_BLOCK_K + sub * s, sub);
            result[r] = fmaf(mf_half(mf_load16(scales + 2 * r)) * x->d[b], (float)isum, result[r]);
            if (w->type == MF_Q6_K) continue;
            const float dmin = mf_half(mf_load16(scales + MF_K_DMIN + 2 * r));
            result[r] = fmaf(-(dmin * x->d[b]), (float)row_minimum(scales, r, x->sum16 + 16 * b), result[r]);
        }
    }
}

static void panel_float(const mf_weight *w, const uint8_t *panel, const float *x, float *result) {
    for (int r = 0; r < MF_PANEL_ROWS; r++) {
        float acc = 0;
        for (int64_t k = 0; k < w->k; k++) {
            const int64_t i = MF_PANEL_ROWS * k + r;
            const float weight = w->type == MF_F32   ? mf_bits_float(mf_load32(panel + 4 * i))
                                 : w->type == MF_F16 ? mf_half(mf_load16(panel + 2 * i))
                                                     : mf_bfloat(mf_load16(panel + 2 * i));
            acc = fmaf(weight, x[k], acc);
        }
        result[r] = acc;
    }
}

static void matmul(const mf_weight *weight, const void *activations, int64_t first, int64_t last, int64_t first_column,
                   int64_t last_column, const mf_output *out) {
    const int64_t bytes = mf_activation_bytes(weight->activation, weight->k);
    for (int64_t c = first_column; c < last_column; c++) {
        const void *base = (const uint8_t *)activations + c * bytes;
        const mf_column column = mf_column_of(weight->activation, weight->k, base);
        for (int64_t p = first; p < last; p++) {
            float result[MF_PANEL_ROWS];
            if (weight->activation == MF_ACTIVATION_F32) panel_float(weight, mf_panel(weight, p), base, result);
            else if (weight->activation == MF_ACTIVATION_Q8) panel_32(weight, mf_panel(weight, p), &column, result);
            else panel_k(weight, mf_panel(weight, p), &column, result);
            mf_store(out, c, p * MF_PANEL_ROWS, weight->rows, result);
        }
    }
}

const mf_kernels mf_kernels_scalar = {"scalar", mf_repack_panels, quantize, matmul, mf_gather_row};
