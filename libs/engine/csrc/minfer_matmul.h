/* Weight panels, activation quantization and matrix products. Plain C11: no Python, no allocation, no global state.
 *
 * A weight matrix [rows, k] is stored as panels of 8 rows. Within a panel the 4-byte words of the 8 rows are
 * interleaved, so that each 32-bit lane of a 256-bit vector belongs to one row: no horizontal sum exists anywhere.
 * The bytes are the same for every instruction set. See matmul_layout.h for each type's panel.
 *
 * Numerics, promised bitwise equal for every instruction set, any number of columns and any split of panels or
 * columns over calls (all float32, fused multiply-add, blocks in ascending order, NaN payloads excepted):
 *   block of 32 types   acc = fma(d_w * d_x, (float)isum, acc)        isum: exact integer dot product, offset removed
 *                       min = fma(m_w, s_x, min)                      s_x = d_x * (float)(sum of the block's q)
 *                       result = acc + min                            only for the types with a minimum
 *   K types, per 256    acc = fma(d_w * d_x, (float)isum, acc), then
 *                       acc = fma(-(dmin_w * d_x), (float)msum, acc)  isum, msum: exact, with the 6 or 8 bit scales
 *   float types         acc = fma(w[k], x[k], acc), k ascending
 *   then                result + bias[row], then out + result when accumulating.
 */
#ifndef MINFER_MATMUL_H
#define MINFER_MATMUL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* GGML's type numbers, as they stand in a GGUF file. */
enum mf_type {
    MF_F32 = 0,
    MF_F16 = 1,
    MF_Q4_0 = 2,
    MF_Q4_1 = 3,
    MF_Q5_0 = 6,
    MF_Q5_1 = 7,
    MF_Q8_0 = 8,
    MF_Q4_K = 12,
    MF_Q5_K = 13,
    MF_Q6_K = 14,
    MF_BF16 = 30
};

/* How a column of activations is stored; matrices of one kind share one quantized column. */
enum mf_activation {
    MF_ACTIVATION_F32 = 0,   /* float x[k]: for F32, F16, BF16                                               */
    MF_ACTIVATION_Q8 = 1,    /* int8 with one scale per 32: for Q8_0, Q4_0, Q4_1, Q5_0, Q5_1                 */
    MF_ACTIVATION_Q8_K = 2   /* int8 with one scale per 256: for Q4_K, Q5_K, Q6_K                            */
};

enum { MF_PANEL_ROWS = 8, MF_ALIGNMENT = 64 };

/* A matrix whose panels lie in the caller's arena, MF_ALIGNMENT aligned. Fill it with mf_weight_init. */
typedef struct mf_weight {
    uint8_t *panels;
    int64_t rows, k;
    int64_t panel_bytes; /* multiple of 32 */
    int32_t type;        /* enum mf_type */
    int32_t activation;  /* enum mf_activation */
} mf_weight;

/* Where results go: data[column * stride + row], only rows below weight.rows are touched. */
typedef struct mf_output {
    float *data;
    int64_t stride;
    const float *bias;  /* [rows] or NULL */
    int32_t accumulate; /* nonzero: data += result (residual), else data = result */
} mf_output;

/* Is there a panel layout for this type? */
int mf_type_supported(int type);
/* Weights per block: k must be a multiple of it. 0 when unsupported. */
int64_t mf_type_block(int type);
/* Bytes of one row of the GGUF tensor; 0 when the type is unsupported or k no positive multiple of its block. */
int64_t mf_source_row_bytes(int type, int64_t k);
/* Number of panels: rows / 8 rounded up. */
int64_t mf_panel_count(int64_t rows);
/* Bytes of one panel, 0 as above. Panel p starts at p * mf_panel_bytes. */
int64_t mf_panel_bytes(int type, int64_t k);
/* Arena bytes of the whole matrix; the caller rounds up to MF_ALIGNMENT between matrices. 0 as above. */
int64_t mf_weight_bytes(int type, int64_t rows, int64_t k);
/* Fill *weight for panels at `panels`. Returns 0, or -1 when unsupported, of a bad shape or misaligned (% 32). */
int mf_weight_init(mf_weight *weight, int type, int64_t rows, int64_t k, void *panels);

/* The activation kind a weight type multiplies, or -1. */
int mf_activation_of(int type);
/* Bytes of one column, a multiple of MF_ALIGNMENT: column c starts at base + c * this. 0 when kind and k do not fit
 * (k % 32 for Q8, k % 256 for Q8_K). */
int64_t mf_activation_bytes(int kind, int64_t k);

/* The functions of one instruction set. All are reentrant; disjoint panels, columns or rows may run in parallel.
 * They use up to 96 KiB of stack. Pointers to activations must be 32-byte aligned, to sources and floats need not. */
typedef struct mf_kernels {
    const char *name; /* "scalar", "avx2", "amx", "neon" */
    /* The columns a call should be given when there are more: as many as pay for unpacking weights, and whose
     * activations still fit the second-level cache. */
    int32_t tile_columns;

    /* Repack panels [first, last) out of GGUF rows. source: row 0 of the matrix (a slice of a stored tensor is a
     * pointer into it), rows mf_source_row_bytes apart. order: NULL, or source row of each row (RoPE pairing). */
    void (*repack)(const mf_weight *weight, const void *source, const int32_t *order, int64_t first, int64_t last);

    /* One float row x[k] into one activation column. A block holding NaN or infinity becomes all NaN scales. */
    void (*quantize)(int kind, int64_t k, const float *x, void *column);

    /* Panels [first, last) times columns [first_column, last_column). activations: column 0, columns
     * mf_activation_bytes(weight->activation, k) apart; out.data: row 0 of column 0. */
    void (*matmul)(const mf_weight *weight, const void *activations, int64_t first, int64_t last,
                   int64_t first_column, int64_t last_column, const mf_output *out);

    /* Row `row` as float32 x[k] (embedding lookup): the same values as decoding the GGUF row. */
    void (*gather)(const mf_weight *weight, int64_t row, float *x);
} mf_kernels;

/* By name; NULL when unknown, not built in, or this CPU cannot run it. */
const mf_kernels *mf_kernels_named(const char *name);
/* The fastest this CPU runs; "scalar" at worst. Never NULL. */
const mf_kernels *mf_kernels_best(void);
/* The i-th that this CPU runs, fastest first, or NULL: for tests and `minfer info`. */
const mf_kernels *mf_kernels_at(int index);

#ifdef __cplusplus
}
#endif
#endif
