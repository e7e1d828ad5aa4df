/* The kernels beside the matrix products: one table for each instruction set, all with the same bits. */
#ifndef MINFER_KERNELS_H
#define MINFER_KERNELS_H

#include <stdint.h>

enum mf_activation_function {
    MF_SILU = 0,
    MF_GELU = 1,
    MF_GELU_TANH = 2,
    MF_RELU = 3,
    MF_RELU_SQUARED = 4,
    MF_SIGMOID = 5
};

enum { MF_BLOCK_POSITIONS = 16, MF_CHUNK_POSITIONS = 256, MF_CHUNK_BLOCKS = 16, MF_QUERY_ROWS = 12, MF_SCORE_ROWS = 16 };

/* Query rows of a tile: as many as its kernels share work for, fewer when a step has few tiles. */
enum { MF_TILE_ROWS = 384, MF_LEAST_TILE_ROWS = 24 };

/* Floats from one row of scores to the next: a power of two would put all rows into the same few sets of the cache. */
enum { MF_SCORE_STRIDE = MF_CHUNK_POSITIONS + 16 };

/* How one layer's keys and values of one kv head look to a kernel. A block holds 16 positions. Floats:
 * keys [dk][16 positions], then values [dv_padded / 16][16 positions][16]. What is called f16 has the precision of halves
 * but is kept as whole numbers of 16 bits (attention_whole.h): keys [pairs of features][16 positions][2], then values
 * [dv_padded / 16][8 pairs of positions][16][2], then as halves the largest magnitude of each position's key [16] and of
 * its value [16]. */
typedef struct {
    int32_t dk, dv, dv_padded, is_whole;
    float q_factor;     /* scale, times log2(e) unless soft-capped: scores are kept as powers of two */
    float softcap;      /* 0: none */
} mf_attend_kind;

/* Up to MF_TILE_ROWS query rows that share a kv head, over one chunk of at most 256 positions. */
typedef struct {
    const mf_attend_kind *kind;
    int32_t n_rows;
    const uint8_t *blocks[MF_CHUNK_BLOCKS];          /* each: this head's keys, then its values */
    int32_t first[MF_TILE_ROWS], last[MF_TILE_ROWS]; /* visible positions [first, last) within the chunk */
    const float *q;      /* f32: [n_rows / MF_QUERY_ROWS][dk][MF_QUERY_ROWS], multiplied by q_factor */
    const int32_t *q_pairs; /* whole: [n_rows / MF_QUERY_ROWS][pairs of features][MF_QUERY_ROWS] */
    const int16_t *q_rows;  /* whole: the same, [n_rows][dk] */
    const float *q_scale;   /* whole: what they are worth by row, multiplied by q_factor */
    const float *slopes; /* ALiBi by row, times log2(e): minus slope times distance; or NULL */
    const int32_t *distance;                         /* chunk start - query position, by row; with slopes */
    int32_t n_next;                                  /* blocks that will be wanted after these */
    const uint8_t *next[MF_CHUNK_BLOCKS];
    /* scratch [MF_SCORE_ROWS][MF_SCORE_STRIDE]: afterwards the probabilities, if rows are at most MF_QUERY_ROWS */
    float *scores;
    float *room;   /* scratch of mf_attend_room(): keys and values as bytes of tiles */
    float *peak, *sum, *values; /* results by row: maximum, sum of powers, [dv_padded] weighted values */
} mf_attend_chunk;

static inline int64_t mf_pairs(int64_t n) { return (n + 1) / 2; }

/* Pairs of whole numbers in the keys of a block, in its values, and in 16 features of these. */
enum { MF_VALUE_SLICE = 16 * MF_BLOCK_POSITIONS / 2 };
static inline int64_t mf_key_pairs(int64_t dk) { return MF_BLOCK_POSITIONS * mf_pairs(dk); }
static inline int64_t mf_value_pairs(int64_t dv_padded) { return dv_padded / 16 * MF_VALUE_SLICE; }
/* Bytes of both: then come the magnitudes. */
static inline int64_t mf_whole_bytes(int64_t dk, int64_t dv_padded) {
    return 4 * (mf_key_pairs(dk) + mf_value_pairs(dv_padded));
}

static inline int64_t mf_attend_room(int64_t dk, int64_t dv_padded) {
    return MF_CHUNK_BLOCKS * (mf_key_pairs(dk) + mf_value_pairs(dv_padded));
}

/* Where row `row` of a tile begins among its queries of n features or pairs; the next is MF_QUERY_ROWS further. */
static inline int64_t mf_query_of_row(int64_t n, int64_t row) {
    return row / MF_QUERY_ROWS * MF_QUERY_ROWS * n + row % MF_QUERY_ROWS;
}

/* Whole numbers of so many bits for keys, and queries up to a limit, leave sums of dk products within 31 bits. */
static inline int32_t mf_key_bits(int64_t dk) { return dk <= 128 ? 12 : dk <= 512 ? 11 : 10; }
static inline float mf_query_limit(int64_t dk) {
    const int64_t limit = INT32_MAX / (dk << mf_key_bits(dk));
    return limit < 32767 ? (float)limit : 32767;
}

typedef struct {
    const char *name;
    void (*norm_rms)(int64_t n, const float *x, const float *weight, const float *bias, float eps, float *y);
    void (*norm_layer)(int64_t n, const float *x, const float *weight, const float *bias, float eps, float *y);
    void (*norm_l2)(int64_t n, const float *x, float *y);
    void (*activate)(int function, int64_t n, const float *x, float *y);
    /* y = function(gate) * up; limit > 0: the clamped variant of gpt-oss */
    void (*glu)(int function, float limit, int64_t n, const float *gate, const float *up, float *y);
    void (*add)(int64_t n, const float *a, const float *b, float *y);
    void (*mul)(int64_t n, const float *a, const float *b, float *y);
    void (*scale)(int64_t n, const float *x, float factor, float *y);
    void (*softcap)(int64_t n, const float *x, float cap, float *y);
    void (*add_scaled)(int64_t n, const float *x, float factor, float *y); /* y = fma(x, factor, y) */
    /* pairs (i, i + n) of [n] each: neighbours are split by the caller's table */
    void (*rope_halves)(int64_t n, const float *cosine, const float *sine, const float *x, float *y);
    void (*rope_neighbours)(int64_t n, const float *cosine, const float *sine, const float *x, float *y);
    void (*softmax)(int64_t n, const float *x, float *y);
    float (*maximum)(int64_t n, const float *x);
    float (*sum_exp)(int64_t n, const float *x, float peak); /* sum of exp(x - peak) */
    float (*exponential)(float x);
    /* indices i in ascending order with x[i] > bar, at most 8 from `start`; returns a bit mask */
    int (*above)(const float *x, float bar);
    /* attention */
    void (*store_whole)(int64_t dk, int64_t dv, const float *key, const float *value, int place, uint8_t *block);
    float (*query_pairs)(int64_t n, const float *x, float limit, int16_t *row, int32_t *pairs);
    void (*attend_whole)(const mf_attend_chunk *chunk);
    void (*attend_float)(const mf_attend_chunk *chunk);
    /* fold the next chunk's results of some rows into the running ones, in ascending order of chunks */
    void (*attend_merge)(int64_t rows, int64_t n, float *peak, float *sum, float *values, const float *next_peak,
                         const float *next_sum, const float *next_values);
    /* y[n] = values / sum, with the head's sink when has_sink */
    void (*attend_finish)(int64_t n, float peak, float sum, const float *values, int has_sink, float sink,
                          float *y);
} mf_row_kernels;

extern const mf_row_kernels mf_row_kernels_scalar;
#if defined(__x86_64__)
extern const mf_row_kernels mf_row_kernels_avx2;
extern const mf_row_kernels mf_row_kernels_avx512;
extern const mf_row_kernels mf_row_kernels_amx;
#endif

/* By the name of the matrix kernels' instruction set; the scalar ones for those that have none of their own. */
const mf_row_kernels *mf_row_kernels_named(const char *name);

#endif
