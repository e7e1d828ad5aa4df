/* Where the bytes of a panel and of an activation column lie. Private to the matrix kernels.
 *
 * A panel holds 8 rows: first the quants of every block, then the scales of every block. "words" below means that
 * the GGUF bytes of the 8 rows are interleaved in 4-byte words: word w of row r stands at 32 * w + 4 * r.
 *
 *   type   block  quants per block                        scales per block
 *   F32    1      float[8]                                -
 *   F16    1      u16[8]                                  -          BF16 alike
 *   Q8_0   32     256: words                              f16 d[8]
 *   Q4_0   32     128: words                              f16 d[8]
 *   Q4_1   32     128: words                              f16 d[8], f16 m[8]
 *   Q5_0   32     128: words, 32: high bits               f16 d[8]
 *   Q5_1   32     128: words, 32: high bits               f16 d[8], f16 m[8]
 *   Q4_K   256    1024: words                             f16 d[8], f16 dmin[8], u8 scale[4][8][2], u8 min[4][8][2]
 *   Q5_K   256    1024: words, 256: words of qh           as Q4_K
 *   Q6_K   256    1024: words of ql, 512: words of qh     f16 d[8], i8 scale[8][8][2]
 *
 * High bits of Q5_0 and Q5_1: bit g of byte 4 * r + b is the fifth bit of weight 4 * g + b of row r.
 * scale[p][r] of the K types: the scales of sub-blocks 2p and 2p + 1 of row r, one multiply-add operand.
 * Rows beyond the matrix have zero quants and zero scales.
 */
#ifndef MINFER_MATMUL_LAYOUT_H
#define MINFER_MATMUL_LAYOUT_H

#include "minfer_matmul.h"

#include <stddef.h>
#include <string.h>

enum { MF_BLOCK = 32, MF_BLOCK_K = 256, MF_PAIRS_K = 4 };

/* One entry per type: the facts that the table above states. */
typedef struct mf_format {
    int32_t type, activation;
    int32_t block;        /* weights per block */
    int32_t source_bytes; /* of a block in the GGUF row */
    int32_t quant_bytes;  /* of a panel's block */
    int32_t scale_bytes;  /* of a panel's block */
} mf_format;

const mf_format *mf_format_of(int type);

/* Scale planes of the K types, byte offsets within a block's scales. */
enum { MF_K_DMIN = 16, MF_K_SCALE = 32, MF_K_MIN = 96, MF_K_SCALE_BYTES = 160 };
enum { MF_Q6K_SCALE = 16, MF_Q6K_SCALE_BYTES = 144 };

static inline const uint8_t *mf_panel(const mf_weight *w, int64_t panel) { return w->panels + panel * w->panel_bytes; }

static inline int64_t mf_round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/* Planes of a quantized column. Q8: q[k], d[k/32], s[k/32], pairs[k/32]. Q8_K: q[k], d[k/256], pairs16[k/16],
 * pairs32[k/32]. A pair is two 16-bit sums over a run of q: the low half of the weights at 4g and 4g + 1, the high half
 * of those at 4g + 2 and 4g + 3, as the 16-bit halves of a multiply-add see them. */
typedef struct mf_column {
    const int8_t *q;
    const float *d;
    const float *s;         /* d * sum of a block's q, Q8 only */
    const int32_t *pairs;   /* over 32, Q8 only */
    const int32_t *pairs16; /* over 16 and over 32, Q8_K only */
    const int32_t *pairs32;
} mf_column;

static inline mf_column mf_column_of(int kind, int64_t k, const void *base) {
    const int8_t *q = (const int8_t *)base;
    const float *d = (const float *)(const void *)(q + k);
    mf_column column = {q, d, NULL, NULL, NULL, NULL};
    if (kind == MF_ACTIVATION_Q8) {
        const int64_t blocks = mf_round_up(k / MF_BLOCK, 8);
        column.s = d + blocks;
        column.pairs = (const int32_t *)(const void *)(d + 2 * blocks);
    } else if (kind == MF_ACTIVATION_Q8_K) {
        column.pairs16 = (const int32_t *)(const void *)(d + mf_round_up(k / MF_BLOCK_K, 8));
        column.pairs32 = column.pairs16 + k / 16;
    }
    return column;
}

/* A pair of sums as one plane entry, and its total. */
static inline int32_t mf_pair(int32_t low, int32_t high) {
    return (int32_t)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16);
}

static inline int32_t mf_pair_total(int32_t pair) {
    return (int16_t)(uint16_t)((uint32_t)pair & 0xffffu) + (int16_t)(uint16_t)((uint32_t)pair >> 16);
}

/* Store 8 results of one panel and column; the last panel may hold fewer rows. */
static inline void mf_store(const mf_output *out, int64_t column, int64_t row, int64_t rows, const float *result) {
    float *data = out->data + column * out->stride + row;
    for (int64_t r = 0; r < MF_PANEL_ROWS && row + r < rows; r++) {
        float value = result[r];
        if (out->bias) value += out->bias[row + r];
        data[r] = out->accumulate ? data[r] + value : value;
    }
}

/* Half and bfloat to float; exact, subnormal numbers included. */
static inline float mf_bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t mf_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float mf_half(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 31u, fraction = half & 1023u;
    if (exponent == 31) return mf_bits_float(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
    if (exponent) return mf_bits_float(sign | (exponent + 112) << 23 | fraction << 13);
    const float magnitude = (float)fraction * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

static inline float mf_bfloat(uint16_t value) { return mf_bits_float((uint32_t)value << 16); }

static inline uint16_t mf_load16(const void *p) {
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline uint32_t mf_load32(const void *p) {
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* Below this no useful scale exists (127 / amax would overflow): the block counts as zero. */
#define MF_SMALLEST_AMAX 0x1p-100f

/* The tables of the instruction sets; NULL where not built in. */
extern const mf_kernels mf_kernels_scalar;
extern const mf_kernels mf_kernels_avx2;
extern const mf_kernels mf_kernels_avx512;
extern const mf_kernels mf_kernels_amx;
extern const mf_kernels mf_kernels_neon;

/* Does this CPU have the tile registers, and does the kernel let this process use them? */
int mf_amx_runs(void);
int mf_avx512_runs(void);

/* Shared by tables: repacking and gathering are bound by memory, not by arithmetic. */
void mf_repack_panels(const mf_weight *weight, const void *source, const int32_t *order, int64_t first, int64_t last);
void mf_quantize_scalar(int kind, int64_t k, const float *x, void *column);
void mf_gather_row(const mf_weight *weight, int64_t row, float *x);

#endif
