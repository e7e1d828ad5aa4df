/* GGUF rows into panels, and a panel's row back into floats. Layouts: matmul_layout.h; GGUF blocks: GGML's block_*. */
#include "matmul_layout.h"

/* Rows beyond the matrix read from here; the largest block has 210 bytes. */
static const uint8_t zero_block[256];

typedef struct block_rows {
    const uint8_t *row[MF_PANEL_ROWS];
} block_rows;

static void interleave(const block_rows *source, int offset, int words, uint8_t *target) {
    for (int w = 0; w < words; w++)
        for (int r = 0; r < MF_PANEL_ROWS; r++) memcpy(target + 32 * w + 4 * r, source->row[r] + offset + 4 * w, 4);
}

static void copy_halves(const block_rows *source, int offset, uint8_t *target) {
    for (int r = 0; r < MF_PANEL_ROWS; r++) memcpy(target + 2 * r, source->row[r] + offset, 2);
}

/* Bit 4g + b of the mask becomes bit g of byte b. */
static uint32_t transpose_bits(uint32_t x) {
    uint32_t result = 0;
    for (int b = 0; b < 4; b++) {
        uint32_t bits = (x >> b) & 0x11111111u; /* one bit per nibble, to be packed into a byte */
        bits = (bits | bits >> 3) & 0x03030303u;
        bits = (bits | bits >> 6) & 0x000f000fu;
        bits = (bits | bits >> 12) & 0xffu;
        result |= bits << (8 * b);
    }
    return result;
}

static void high_bits(const block_rows *source, int offset, uint8_t *target) {
    for (int r = 0; r < MF_PANEL_ROWS; r++) {
        const uint32_t bits = transpose_bits(mf_load32(source->row[r] + offset));
        memcpy(target + 4 * r, &bits, 4);
    }
}

/* The 6-bit scales and minima of Q4_K and Q5_K: 12 bytes hold 8 of each. */
static void unpack_scales(const uint8_t *packed, uint8_t *scale, uint8_t *minimum) {
    for (int j = 0; j < 4; j++) {
        scale[j] = packed[j] & 63;
        minimum[j] = packed[j + 4] & 63;
        scale[j + 4] = (uint8_t)((packed[j + 8] & 15) | (packed[j] >> 6) << 4);
        minimum[j + 4] = (uint8_t)((packed[j + 8] >> 4) | (packed[j + 4] >> 6) << 4);
    }
}

static void k_scales(const block_rows *source, uint8_t *target) {
    copy_halves(source, 0, target);
    copy_halves(source, 2, target + MF_K_DMIN);
    for (int r = 0; r < MF_PANEL_ROWS; r++) {
        uint8_t scale[8], minimum[8];
        unpack_scales(source->row[r] + 4, scale, minimum);
        for (int p = 0; p < MF_PAIRS_K; p++) {
            memcpy(target + MF_K_SCALE + 16 * p + 2 * r, scale + 2 * p, 2);
            memcpy(target + MF_K_MIN + 16 * p + 2 * r, minimum + 2 * p, 2);
        }
    }
}

static void q6_scales(const block_rows *source, uint8_t *target) {
    copy_halves(source, 208, target);
    for (int r = 0; r < MF_PANEL_ROWS; r++)
        for (int p = 0; p < 8; p++) memcpy(target + MF_Q6K_SCALE + 16 * p + 2 * r, source->row[r] + 192 + 2 * p, 2);
}

static void repack_block(int type, const block_rows *source, uint8_t *quants, uint8_t *scales) {
    switch (type) {
    case MF_F32: interleave(source, 0, 1, quants); break;
    case MF_F16:
    case MF_BF16: copy_halves(source, 0, quants); break;
    case MF_Q8_0:
        interleave(source, 2, 8, quants);
        copy_halves(source, 0, scales);
        break;
    case MF_Q4_0:
        interleave(source, 2, 4, quants);
        copy_halves(source, 0, scales);
        break;
    case MF_Q4_1:
        interleave(source, 4, 4, quants);
        copy_halves(source, 0, scales);
        copy_halves(source, 2, scales + 16);
        break;
    case MF_Q5_0:
        interleave(source, 6, 4, quants);
        high_bits(source, 2, quants + 128);
        copy_halves(source, 0, scales);
        break;
    case MF_Q5_1:
        interleave(source, 8, 4, quants);
        high_bits(source, 4, quants + 128);
        copy_halves(source, 0, scales);
        copy_halves(source, 2, scales + 16);
        break;
    case MF_Q4_K:
        interleave(source, 16, 32, quants);
        k_scales(source, scales);
        break;
    case MF_Q5_K:
        interleave(source, 48, 32, quants);
        interleave(source, 16, 8, quants + 1024);
        k_scales(source, scales);
        break;
    case MF_Q6_K:
        interleave(source, 0, 32, quants);
        interleave(source, 128, 16, quants + 1024);
        q6_scales(source, scales);
        break;
    default: break;
    }
}

void mf_repack_panels(const mf_weight *weight, const void *source, const int32_t *order, int64_t first, int64_t last) {
    const mf_format *format = mf_format_of(weight->type);
    const int64_t blocks = weight->k / format->block, row_bytes = blocks * format->source_bytes;
    for (int64_t p = first; p < last; p++) {
        uint8_t *quants = weight->panels + p * weight->panel_bytes;
        uint8_t *scales = quants + blocks * format->quant_bytes;
        block_rows rows;
        int64_t step[MF_PANEL_ROWS];
        for (int r = 0; r < MF_PANEL_ROWS; r++) {
            const int64_t row = p * MF_PANEL_ROWS + r, from = order && row < weight->rows ? order[row] : row;
            rows.row[r] = row < weight->rows ? (const uint8_t *)source + from * row_bytes : zero_block;
            step[r] = row < weight->rows ? format->source_bytes : 0;
        }
        for (int64_t b = 0; b < blocks; b++) {
            repack_block(weight->type, &rows, quants, scales);
            quants += format->quant_bytes;
            scales += format->scale_bytes;
            for (int r = 0; r < MF_PANEL_ROWS; r++) rows.row[r] += step[r];
        }
        memset(scales, 0, (size_t)(weight->panels + (p + 1) * weight->panel_bytes - scales));
    }
}

/* One row of one block: where its quants and scales stand in the panel. */
typedef struct row_block {
    const uint8_t *quants, *scales;
    int row;
} row_block;

static uint8_t byte_of(const uint8_t *words, int row, int i) { return words[32 * (i / 4) + 4 * row + i % 4]; }

static void gather_32(int type, row_block at, float *x) {
    const float d = mf_half(mf_load16(at.scales + 2 * at.row));
    const int has_minimum = type == MF_Q4_1 || type == MF_Q5_1;
    const float m = has_minimum ? mf_half(mf_load16(at.scales + 16 + 2 * at.row)) : 0;
    for (int i = 0; i < MF_BLOCK; i++) {
        if (type == MF_Q8_0) {
            x[i] = (float)(int8_t)byte_of(at.quants, at.row, i) * d;
            continue;
        }
        int q = byte_of(at.quants, at.row, i % 16) >> (i < 16 ? 0 : 4) & 15;
        if (type == MF_Q5_0 || type == MF_Q5_1) q |= (at.quants[128 + 4 * at.row + i % 4] >> (i / 4) & 1) << 4;
        if (type == MF_Q4_0) q -= 8;
        if (type == MF_Q5_0) q -= 16;
        x[i] = has_minimum ? (float)q * d + m : (float)q * d;
    }
}

static void gather_k(int type, row_block at, float *x) {
    const float d = mf_half(mf_load16(at.scales + 2 * at.row));
    const float dmin = mf_half(mf_load16(at.scales + MF_K_DMIN + 2 * at.row));
    for (int s = 0; s < 8; s++) {
        const int pair = 16 * (s / 2) + 2 * at.row + s % 2;
        const float scale = d * (float)at.scales[MF_K_SCALE + pair], minimum = dmin * (float)at.scales[MF_K_MIN + pair];
        for (int i = 0; i < MF_BLOCK; i++) {
            int q = byte_of(at.quants + 256 * (s / 2), at.row, i) >> (4 * (s % 2)) & 15;
            if (type == MF_Q5_K) q |= (byte_of(at.quants + 1024, at.row, i) >> s & 1) << 4;
            x[32 * s + i] = scale * (float)q - minimum;
        }
    }
}

static void gather_q6(row_block at, float *x) {
    const float d = mf_half(mf_load16(at.scales + 2 * at.row));
    for (int i = 0; i < MF_BLOCK_K; i++) {
        const int half = i / 128, s = i / 32 % 4, l = i % 32;
        const int low = byte_of(at.quants + 512 * half + 256 * (s % 2), at.row, l) >> (4 * (s / 2)) & 15;
        const int high = byte_of(at.quants + 1024 + 256 * half, at.row, l) >> (2 * s) & 3;
        const int8_t scale = (int8_t)at.scales[MF_Q6K_SCALE + 16 * (i / 32) + 2 * at.row + i / 16 % 2];
        x[i] = d * (float)scale * (float)((low | high << 4) - 32);
    }
}

static void gather_float(int type, row_block at, float *x) {
    if (type == MF_F32) memcpy(x, at.quants + 4 * at.row, 4);
    if (type == MF_F16) *x = mf_half(mf_load16(at.quants + 2 * at.row));
    if (type == MF_BF16) *x = mf_bfloat(mf_load16(at.quants + 2 * at.row));
}

void mf_gather_row(const mf_weight *weight, int64_t row, float *x) {
    const mf_format *format = mf_format_of(weight->type);
    const int64_t blocks = weight->k / format->block;
    row_block at = {mf_panel(weight, row / MF_PANEL_ROWS), NULL, (int)(row % MF_PANEL_ROWS)};
    at.scales = at.quants + blocks * format->quant_bytes;
    for (int64_t b = 0; b < blocks; b++) {
        if (weight->activation == MF_ACTIVATION_F32) gather_float(weight->type, at, x);
        else if (weight->activation == MF_ACTIVATION_Q8) gather_32(weight->type, at, x);
        else if (weight->type == MF_Q6_K) gather_q6(at, x);
        else gather_k(weight->type, at, x);
        at.quants += format->quant_bytes;
        at.scales += format->scale_bytes;
        x += format->block;
    }
}
