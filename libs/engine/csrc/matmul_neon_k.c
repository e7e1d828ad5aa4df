/* Panels of the K types, NEON. */
#include "matmul_neon.h"

#if MF_HAVE_NEON

/* Sub-block s of 32 weights of a K block, without the offset of Q6_K. */
MF_NEON_INLINE void unpack(int type, const uint8_t *quants, int s, mf_neon_groups v) {
    MF_UNROLL for (int g = 0; g < 8; g++) MF_UNROLL for (int h = 0; h < 2; h++) {
        const int at = 32 * g + 16 * h;
        if (type == MF_Q6_K) {
            const int half = s / 4, quarter = s % 4;
            const uint8x16_t x = vld1q_u8(quants + 512 * half + 256 * (quarter % 2) + at);
            const uint8x16_t high = vld1q_u8(quants + 1024 + 256 * half + at);
            const uint8x16_t low = vandq_u8(vshlq_u8(x, vdupq_n_s8((int8_t)(-4 * (quarter / 2)))), vdupq_n_u8(15));
            const uint8x16_t two = vandq_u8(vshlq_u8(high, vdupq_n_s8((int8_t)(4 - 2 * quarter))), vdupq_n_u8(48));
            v[g][h] = vsubq_s8(vreinterpretq_s8_u8(vorrq_u8(low, two)), vdupq_n_s8(32));
        } else {
            const uint8x16_t x = vld1q_u8(quants + 256 * (s / 2) + at);
            uint8x16_t q = vandq_u8(vshlq_u8(x, vdupq_n_s8((int8_t)(-4 * (s % 2)))), vdupq_n_u8(15));
            if (type == MF_Q5_K) {
                const uint8x16_t high = vshlq_u8(vld1q_u8(quants + 1024 + at), vdupq_n_s8((int8_t)(4 - s)));
                q = vorrq_u8(q, vandq_u8(high, vdupq_n_u8(16)));
            }
            v[g][h] = vreinterpretq_s8_u8(q);
        }
    }
}

/* Scales of sub-blocks 2p and 2p + 1 of rows 4h..4h+3, from pairs of bytes. */
MF_NEON_INLINE int32x4x2_t scale_pair(const uint8_t *pairs, int h) {
    const int16x8_t both = vmovl_s8(vld1_s8((const int8_t *)pairs + 8 * h));
    const int16x4x2_t split = vuzp_s16(vget_low_s16(both), vget_high_s16(both));
    const int32x4x2_t result = {{vmovl_s16(split.val[0]), vmovl_s16(split.val[1])}};
    return result;
}

/* Minima times activation sums over a block, rows 4h..4h+3. */
MF_NEON_INLINE int32x4_t minima(const uint8_t *scales, int h, const int32_t *pairs32) {
    int32x4_t total = vdupq_n_s32(0);
    MF_UNROLL for (int p = 0; p < MF_PAIRS_K; p++) {
        const int32x4x2_t minimum = scale_pair(scales + MF_K_MIN + 16 * p, h);
        total = vmlaq_n_s32(total, minimum.val[0], mf_pair_total(pairs32[2 * p]));
        total = vmlaq_n_s32(total, minimum.val[1], mf_pair_total(pairs32[2 * p + 1]));
    }
    return total;
}

typedef int32x4_t column_sums[MF_NEON_COLUMNS][2];

/* The scaled integer sums of one block. */
MF_NEON_INLINE void block_sums(int type, const uint8_t *quants, const uint8_t *scales, int64_t b,
                               const mf_neon_columns *columns, column_sums sums) {
    for (int c = 0; c < columns->n; c++) sums[c][0] = sums[c][1] = vdupq_n_s32(0);
    for (int s = 0; s < 8; s++) {
        mf_neon_groups v;
        unpack(type, quants, s, v);
        MF_UNROLL for (int h = 0; h < 2; h++) {
            const int32x4x2_t pair = scale_pair(
                scales + (type == MF_Q6_K ? MF_Q6K_SCALE + 16 * s : MF_K_SCALE + 16 * (s / 2)), h);
            const int32x4_t whole = s % 2 ? pair.val[1] : pair.val[0];
            for (int c = 0; c < columns->n; c++) {
                const int8_t *q = columns->x[c].q + b * MF_BLOCK_K + MF_BLOCK * s;
                const int32x4_t low = mf_neon_dot16(vdupq_n_s32(0), v, 0, h, vld1q_s8(q));
                const int32x4_t high = mf_neon_dot16(vdupq_n_s32(0), v, 4, h, vld1q_s8(q + 16));
                sums[c][h] = vmlaq_s32(sums[c][h], low, type == MF_Q6_K ? pair.val[0] : whole);
                sums[c][h] = vmlaq_s32(sums[c][h], high, type == MF_Q6_K ? pair.val[1] : whole);
            }
        }
    }
}

MF_NEON_INLINE void panel_k(int type, const mf_weight *w, const uint8_t *panel, const mf_neon_columns *columns,
                            mf_neon_results results) {
    const mf_format *format = mf_format_of(type);
    const int64_t blocks = w->k / MF_BLOCK_K;
    const uint8_t *scales = panel + blocks * format->quant_bytes;
    float32x4_t acc[MF_NEON_COLUMNS][2];
    for (int c = 0; c < MF_NEON_COLUMNS; c++) acc[c][0] = acc[c][1] = vdupq_n_f32(0);
    for (int64_t b = 0; b < blocks; b++, scales += format->scale_bytes) {
        column_sums sums;
        block_sums(type, panel + b * format->quant_bytes, scales, b, columns, sums);
        for (int c = 0; c < columns->n; c++) {
            const mf_column *x = &columns->x[c];
            MF_UNROLL for (int h = 0; h < 2; h++) {
                const float32x4_t d = vmulq_n_f32(mf_neon_halves(scales + 8 * h), x->d[b]);
                acc[c][h] = vfmaq_f32(acc[c][h], d, vcvtq_f32_s32(sums[c][h]));
                if (type == MF_Q6_K) continue;
                const float32x4_t dmin = vmulq_n_f32(mf_neon_halves(scales + MF_K_DMIN + 8 * h), x->d[b]);
                acc[c][h] = vfmsq_f32(acc[c][h], dmin, vcvtq_f32_s32(minima(scales, h, x->pairs32 + 8 * b)));
            }
        }
    }
    for (int c = 0; c < columns->n; c++)
        for (int h = 0; h < 2; h++) vst1q_f32(results[c] + 4 * h, acc[c][h]);
}

MF_NEON void mf_neon_panel_k(const mf_weight *w, const uint8_t *panel, const mf_neon_columns *columns,
                             mf_neon_results results) {
    switch (w->type) {
    case MF_Q4_K: panel_k(MF_Q4_K, w, panel, columns, results); break;
    case MF_Q5_K: panel_k(MF_Q5_K, w, panel, columns, results); break;
    default: panel_k(MF_Q6_K, w, panel, columns, results); break;
    }
}

#endif
