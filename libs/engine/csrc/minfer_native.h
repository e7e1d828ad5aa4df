/* The native backend's C surface: a flat program, a cache, and steps. Plain C11, no Python.
 *
 * A program is a list of operations on values. Consecutive operations form an instruction: row operations of one
 * row domain (run row by row, all of them on a few rows while those are hot), matrix products that share their
 * input, one attention, one head. Nothing about positions or sequences is in the program.
 */
#ifndef MINFER_NATIVE_H
#define MINFER_NATIVE_H

#include <stdint.h>

#include "minfer_matmul.h"

enum mf_rows { MF_TOKENS = 0, MF_LOGITS = 1, MF_SEQUENCES = 2, MF_PAIRS = 3, MF_ONCE = 4,
               MF_LOGIT_PAIRS = 5, MF_ROW_DOMAINS = 6 };

enum mf_operation {
    /* row operations */
    MF_OP_EMBED = 0,      /* weight: table; p0: 0 token, 1 position, 2 constant */
    MF_OP_ROPE_TABLE = 1, /* weight: vector of frequencies as 2 floats each (high, low); f0: magnitude */
    MF_OP_NORM = 2,       /* a; weight, bias; p0: 0 rms, 1 layer; p1: groups; p2: weight spans all; f0: eps */
    MF_OP_ROPE = 3,       /* a, b: table; p: n_heads, head_dim, n_frequencies, neighbours, offset */
    MF_OP_CACHE_WRITE = 4, /* a: keys, b: values or none (prefix of the keys); p0: slot */
    MF_OP_ACTIVATE = 5,   /* a; p0: function */
    MF_OP_GLU = 6,        /* a: gate, b: up; p0: function; f0: clamp */
    MF_OP_ADD = 7,        /* a, b */
    MF_OP_MUL = 8,        /* a, b */
    MF_OP_SCALE = 9,      /* a; f0 */
    MF_OP_SOFTCAP = 10,   /* a; f0 */
    MF_OP_COPY = 11,      /* a; p: source feature, target feature, count */
    MF_OP_QUANTIZE = 12,  /* a; p: first feature, count, activation kind; b >= 0: order of pairs,
                             p3: n_used where a is TOKENS, p4: n_experts */
    MF_OP_ADD_VECTOR = 13, /* a; weight: vector; b >= 0: order of pairs, weight spans experts, p4: n_experts */
    MF_OP_ROUTE = 14,     /* a; weight: bias vector or none; p: kind, n_used, -, n_groups, n_experts, renormalise,
                             n_groups_used; f0: scale. The row: ids int32[n_used], weights float[n_used] */
    MF_OP_COMBINE = 15,   /* a: pairs, b: route; weight: value of the order; p0: n_used; p4: n_experts */
    MF_OP_SELECT = 16,    /* a: TOKENS -> LOGITS */
    MF_OP_POOL = 17,      /* a: TOKENS -> SEQUENCES; p0: 0 mean, 1 first, 2 last */
    MF_OP_NORM_L2 = 18,   /* a */
    MF_OP_SORT_PAIRS = 19, /* a: route -> order (ONCE); p0: rows of a; p1: n_used; p4: n_experts */
    MF_OP_SCALE_EXPERT = 20, /* a (PAIRS); weight: vector by expert; b: order; p4: n_experts */
    /* whole instructions */
    MF_OP_MATMUL = 32, /* a: activations; weight: matrix; bias: vector or -1; p0: first feature of out, p1: accumulate */
    MF_OP_EXPERT_MATMUL = 33, /* a: activations (pairs); weight: first matrix; b: order; p4: n_experts */
    MF_OP_ATTEND = 34, /* a: q; bias: sinks vector; p: slot, n_q, causal, class; f: scale, softcap, alibi_max_bias */
    MF_OP_HEAD = 35    /* a: activations (LOGITS); weight; bias; p0, p1: 0 none, 1 scale, 2 softcap; f0, f1 */
};

typedef struct {
    int32_t kind, starts, rows; /* starts: 1 where a new instruction begins */
    int32_t a, b, out;          /* values, -1 for none */
    int32_t weight, bias;       /* a matrix or a vector, -1 for none */
    int32_t p[8];
    float f[4];
} mf_operation;

typedef struct {
    int64_t offset, row_bytes; /* in the buffers; a value has room for the most rows of its domain */
    int32_t rows, features;
} mf_value;

/* One cache group: slots with equal specs. */
typedef struct {
    int32_t n_slots, n_kv, dk, dv, window /* 0: none */, is_whole;
} mf_cache_group;

typedef struct mf_program mf_program;
typedef struct mf_cache mf_cache;

typedef struct {
    int32_t first_row, n_rows, length_before;
} mf_sequence;

typedef struct {
    int32_t n_tokens, n_logits, n_sequences;
    const int32_t *ids, *rope_pos, *cache_pos, *logit_rows;
    const float *rows; /* in place of ids, or NULL */
    const mf_sequence *sequences;
    const int32_t *const *block_tables; /* [sequence][group] */
    const int64_t *table_lengths;       /* [sequence][group] */
} mf_batch;

typedef struct {
    int32_t top; /* 0: full logits */
    const int32_t *listed_first, *listed; /* ids of row l: listed[listed_first[l] .. listed_first[l + 1]); or NULL */
    float *logits;                        /* [L, vocabulary] when top is 0 */
    int32_t *top_ids;                     /* [L, top] */
    float *top_logits, *listed_logits, *peak, *log_sum_exp;
} mf_query;

typedef struct {
    int32_t max_tokens, max_logits, max_sequences, n_used; /* n_used: experts of a token, 0 for none */
    int32_t n_groups, n_slots;
    const mf_cache_group *groups;
    const int32_t *slot_group, *slot_index; /* by slot */
} mf_limits;

enum mf_status { MF_OK = 0, MF_CANCELLED = 1, MF_NO_MEMORY = 2, MF_BAD_BATCH = 3, MF_BAD_PROGRAM = 4 };

/* isa: a name mf_kernels_named knows, or NULL for the best. NULL when unknown or out of memory. */
mf_program *mf_program_new(int n_threads, const char *isa);
void mf_program_free(mf_program *program);
const char *mf_program_isa(const mf_program *program);

/* The arena of weights: offsets come from the caller, MF_ALIGNMENT apart. */
int mf_program_reserve(mf_program *program, int64_t weight_bytes, int32_t n_matrices, int32_t n_vectors);
/* In place of loading: the arena is what `file` holds from `offset` on, read only, as mf_program_save wrote it. */
int mf_program_map(mf_program *program, int file, int64_t offset);
/* Write the loaded arena at the file's position; 0 or errno. */
int mf_program_save(const mf_program *program, int file);
int mf_program_matrix(mf_program *program, int32_t index, int type, int64_t rows, int64_t k, int64_t offset);
/* Repack in parallel, then tell the kernel that the source pages are not needed (when is_mapped). */
int mf_program_load_matrix(mf_program *program, int32_t index, const void *source, int is_mapped);
/* A vector of any float type; also one row out of a matrix type. source NULL: the arena holds it already. */
int mf_program_vector(mf_program *program, int32_t index, int type, int64_t n, const void *source, int64_t offset);

int mf_program_finish(mf_program *program, const mf_operation *operations, int32_t n_operations,
                      const mf_value *values, int32_t n_values, int64_t buffer_bytes, const mf_limits *limits);

/* cancel is called by this thread alone, now and then between layers; nonzero stops the step. */
int mf_program_run(mf_program *program, const mf_batch *batch, mf_cache *cache, const mf_query *query,
                   int (*cancel)(void *), void *cancel_context, int64_t cancel_interval);
/* A value of the last step, contiguous [rows, features]; PAIRS in the order of tokens and ranks. */
int64_t mf_program_value(const mf_program *program, int32_t value, int32_t order, float *target);
typedef struct {
    float *data; /* zeroed */
    int64_t n_positions;
} mf_target;

/* Probabilities of one sequence in an attention of the last step, [n_q, n_rows, n_positions]: for taps, slow. */
int mf_program_probabilities(mf_program *program, int32_t operation, int32_t sequence, const mf_batch *batch,
                             mf_cache *cache, const mf_target *target);

mf_cache *mf_cache_new(const mf_cache_group *groups, int32_t n_groups, const int64_t *n_blocks);
void mf_cache_free(mf_cache *cache);
int64_t mf_cache_bytes(const mf_cache *cache);
int64_t mf_cache_block_bytes(const mf_cache_group *group); /* of one slot */
int mf_cache_copy(mf_cache *cache, int32_t group, int64_t source, int64_t target);
int mf_cache_read(const mf_cache *cache, int32_t group, int64_t block, uint8_t *data);
int mf_cache_write(mf_cache *cache, int32_t group, int64_t block, const uint8_t *data);

#endif
