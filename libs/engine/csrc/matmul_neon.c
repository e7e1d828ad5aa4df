/* The NEON table, and panels of the types with one scale per 32 weights and of the float types. */
#include "matmul_neon.h"

#if MF_HAVE_NEON

/* Offsets come off here: dot products of signed bytes cannot overflow 32 bits. */
MF_NEON_INLINE void unpack(int type, const uint8_t *quants, mf_neon_groups v) {
    if (type == MF_Q8_0) {
        MF_UNROLL for (int g = 0; g < 8; g++) MF_UNROLL for (int h = 0; h < 2; h++)
            v[g][h] = vreinterpretq_s8_u8(vld1q_u8(quants + 32 * g + 16 * h));
        return;
    }
    const int has_fifth = type == MF_Q5_0 || type == MF_Q5_1;
    const int8x16_t offset = vdupq_n_s8(type == MF_Q4_0 ? 8 : type == MF_Q5_0 ? 16 : 0);
    MF_UNROLL for (int h = 0; h < 2; h++) {
        const uint8x16_t high = has_fifth ? vld1q_u8(quants + 128 + 16 * h) : vdupq_n_u8(0);
        MF_UNROLL for (int g = 0; g < 8; g++) {
            const uint8x16_t x = vld1q_u8(quants + 32 * (g % 4) + 16 * h);
            uint8x16_t q = g < 4 ? vandq_u8(x, vdupq_n_u8(15)) : vshrq_n_u8(x, 4);
            if (has_fifth)
                q = vorrq_u8(q, vandq_u8(vshlq_u8(high, vdupq_n_s8((int8_t)(4 - g))), vdupq_n_u8(16)));
            v[g][h] = vsubq_s8(vreinterpretq_s8_u8(q), offset);
        }
    }
}

MF_NEON_INLINE void panel_32(int type, const mf_weight *w, const uint8_t *panel, const mf_neon_columns *columns,
                             mf_neon_results results) {
    const mf_format *format = mf_format_of(type);
    const int has_minimum = type == MF_Q4_1 || type == MF_Q5_1;
    const int64_t blocks = w->k / MF_BLOCK;
    const uint8_t *scales = panel + blocks * format->quant_bytes;
    float32x4_t acc[MF_NEON_COLUMNS][2], minimum[MF_NEON_COLUMNS][2];
    for (int c = 0; c < MF_NEON_COLUMNS; c++) for (int h = 0; h < 2; h++) acc[c][h] = minimum[c][h] = vdupq_n_f32(0);
    for (int64_t b = 0; b < blocks; b++, scales += format->scale_bytes) {
        mf_neon_groups v;
        unpack(type, panel + b * format->quant_bytes, v);
        for (int c = 0; c < columns->n; c++) {
            const mf_column *x = &columns->x[c];
            const int8x16_t low = vld1q_s8(x->q + b * MF_BLOCK), high = vld1q_s8(x->q + b * MF_BLOCK + 16);
            MF_UNROLL for (int h = 0; h < 2; h++) {
                const int32x4_t dot = mf_neon_dot16(mf_neon_dot16(vdupq_n_s32(0), v, 0, h, low), v, 4, h, high);
                const float32x4_t d = vmulq_n_f32(mf_neon_halves(scales + 8 * h), x->d[b]);
                acc[c][h] = vfmaq_f32(acc[c][h], d, vcvtq_f32_s32(dot));
                if (has_minimum)
                    minimum[c][h] = vfmaq_n_f32(minimum[c][h], mf_neon_halves(scales + 16 + 8 * h), x->s[b]);
            }
        }
    }
    for (int c = 0; c < columns->n; c++)
        for (int h = 0; h < 2; h++)
            vst1q_f32(results[c] + 4 * h, has_minimum ? vaddq_f32(acc[c][h], minimum[c][h]) : acc[c][h]);
}

MF_NEON void mf_neon_panel(const mf_weight *w, const uint8_t *panel, const mf_neon_columns *columns,
                           mf_neon_results results) {
    switch (w->type) {
    case MF_Q8_0: panel_32(MF_Q8_0, w, panel, columns, results); break;
    case MF_Q4_0: panel_32(MF_Q4_0, w, panel, columns, results); break;
    case MF_Q4_1: panel_32(MF_Q4_1, w, panel, columns, results); break;
    case MF_Q5_0: panel_32(MF_Q5_0, w, panel, columns, results); break;
    default: panel_32(MF_Q5_1, w, panel, columns, results); break;
    }
}

MF_NEON_INLINE float32x4_t floats(int type, const uint8_t *p) {
    if (type == MF_F32) return vld1q_f32((const float *)(const void *)p);
    if (type == MF_F16) return mf_neon_halves(p);
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)(const void *)p), 16));
}

MF_NEON_INLINE void panel_float(int type, const mf_weight *w, const uint8_t *panel, const mf_neon_columns *columns,
                                mf_neon_results results) {
    const int bytes = type == MF_F32 ? 32 : 16;
    float32x4_t acc[MF_NEON_COLUMNS][2];
    for (int c = 0; c < MF_NEON_COLUMNS; c++) for (int h = 0; h < 2; h++) acc[c][h] = vdupq_n_f32(0);
    for (int64_t k = 0; k < w->k; k++)
        MF_UNROLL for (int h = 0; h < 2; h++) {
            const float32x4_t weight = floats(type, panel + k * bytes + bytes / 2 * h);
            for (int c = 0; c < columns->n; c++)
                acc[c][h] = vfmaq_n_f32(acc[c][h], weight, ((const float *)columns->base[c])[k]);
        }
    for (int c = 0; c < columns->n; c++) for (int h = 0; h < 2; h++) vst1q_f32(results[c] + 4 * h, acc[c][h]);
}

MF_NEON void mf_neon_panel_float(const mf_weight *w, const uint8_t *panel, const mf_neon_columns *columns,
                                 mf_neon_results results) {
    switch (w->type) {
    case MF_F16: panel_float(MF_F16, w, panel, columns, results); break;
    case MF_BF16: panel_float(MF_BF16, w, panel, columns, results); break;
    default: panel_float(MF_F32, w, panel, columns, results); break;
    }
}

static void panel_times(const mf_weight *w, int64_t panel, const mf_neon_columns *columns, mf_neon_results results) {
    if (w->activation == MF_ACTIVATION_F32) mf_neon_panel_float(w, mf_panel(w, panel), columns, results);
    else if (w->activation == MF_ACTIVATION_Q8) mf_neon_panel(w, mf_panel(w, panel), columns, results);
    else mf_neon_panel_k(w, mf_panel(w, panel), columns, results);
}

static void matmul(const mf_weight *weight, const void *activations, int64_t first, int64_t last, int64_t first_column,
                   int64_t last_column, const mf_output *out) {
    const int64_t bytes = mf_activation_bytes(weight->activation, weight->k);
    for (int64_t p = first; p < last; p++)
        for (int64_t from = first_column; from < last_column; from += MF_NEON_COLUMNS) {
            mf_neon_columns columns;
            mf_neon_results results;
            columns.n = last_column - from < MF_NEON_COLUMNS ? (int)(last_column - from) : MF_NEON_COLUMNS;
            for (int c = 0; c < columns.n; c++) {
                columns.base[c] = (const uint8_t *)activations + (from + c) * bytes;
                columns.x[c] = mf_column_of(weight->activation, weight->k, columns.base[c]);
            }
            panel_times(weight, p, &columns, results);
            for (int c = 0; c < columns.n; c++) mf_store(out, from + c, p * MF_PANEL_ROWS, weight->rows, results[c]);
        }
}

/* Plain C quantizes: compilers turn those loops into vectors by themselves. */
const mf_kernels mf_kernels_neon = {"neon", 64, mf_repack_panels, mf_quantize_scalar, matmul, mf_gather_row};

#else

#include "matmul_layout.h"

const mf_kernels mf_kernels_neon = {"neon", 64, 0, 0, 0, 0};

#endif
