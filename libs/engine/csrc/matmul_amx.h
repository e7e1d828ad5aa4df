/* What the AMX files share: many columns as products of tiles of 16 rows by 16 columns, one result a lane.
 *
 * The 8 rows by 4 bytes of two panels' words are 64 bytes, a row of the weights' tile; a column of activations is a row
 * of the other tile as it lies in memory. The tile product is exact in 32-bit integers, what follows is the arithmetic
 * of every other instruction set, lane by lane. */
#ifndef MINFER_MATMUL_AMX_H
#define MINFER_MATMUL_AMX_H

#include "amx_tiles.h"
#include "matmul_avx512.h"

#if MF_HAVE_AVX2 && MF_HAVE_AMX

#define MF_AMX_TARGET MF_AVX512_TARGET ",amx-tile,amx-int8"
#define MF_AMX __attribute__((target(MF_AMX_TARGET)))
#define MF_AMX_INLINE static inline __attribute__((always_inline, target(MF_AMX_TARGET)))

enum { MF_AMX_ROWS = MF_WIDE_ROWS, MF_AMX_COLUMNS = 16, MF_AMX_PASS_BYTES = 40 * 1024 };

/* Tile registers: activations and two tiles of sums of 16 columns, and the same of what remains of a chunk's columns. */
enum { MF_AMX_WEIGHTS = 0, MF_AMX_WHOLE = 1, MF_AMX_REST = 4, MF_AMX_MORE_WEIGHTS = 7 };

/* The columns of a tile from the first block of the pass on. */
typedef struct mf_amx_input {
    const int8_t *q;
    const uint8_t *d, *s; /* s: the sums of the 32-weight types, or the pairs over 32 of the K types */
    int64_t stride;       /* bytes from one column to the next, of all three */
    int columns;          /* 1 to 16 */
    int is_first;         /* pass over k: the sums start at zero */
} mf_amx_input;

/* Where a tile's results go after the last pass over k. */
typedef struct mf_amx_output {
    float *data; /* of the first row and column */
    int64_t stride;
    const float *bias;
    int accumulate;
    __mmask16 rows; /* that exist */
} mf_amx_output;

typedef struct mf_amx_sums {
    __m512 acc[MF_AMX_COLUMNS], minimum[MF_AMX_COLUMNS];
} mf_amx_sums;

typedef struct mf_amx_kernels {
    int pass_blocks, block_bytes; /* of the pass, and of activations */
    int tile_bytes;               /* of a column in one tile product: 32 or 64 */
    void (*unpack)(const uint8_t *quants, const uint8_t *scales, int blocks, int slot, void *scratch);
    /* to: NULL before the last pass over k. */
    void (*tile)(const void *scratch, int blocks, const mf_amx_input *input, mf_amx_sums *sums, const mf_amx_output *to);
} mf_amx_kernels;

extern const mf_amx_kernels mf_amx_q4_0, mf_amx_q4_1, mf_amx_q5_0, mf_amx_q5_1, mf_amx_q8_0;
extern const mf_amx_kernels mf_amx_q4_k, mf_amx_q5_k, mf_amx_q6_k;

/* Byte offset of a column: one that is not there is read as the last, and its results are dropped. */
MF_AMX_INLINE int64_t mf_amx_column(int is_whole, const mf_amx_input *in, int c) {
    return (is_whole || c < in->columns ? c : in->columns - 1) * in->stride;
}

MF_AMX_INLINE void mf_amx_emit(const mf_amx_output *to, int c, __m512 result) {
    float *data = to->data + c * to->stride;
    if (to->bias) result = _mm512_add_ps(result, _mm512_maskz_loadu_ps(to->rows, to->bias));
    if (to->accumulate) result = _mm512_add_ps(_mm512_maskz_loadu_ps(to->rows, data), result);
    _mm512_mask_storeu_ps(data, to->rows, result);
}

/* sums += signed activations times signed weights */
#define MF_TILE_PRODUCT(sums, activations, weights) MF_TILE_PRODUCT_OF("ss", sums, activations, weights)

#endif
#endif
