/* What the files of the executor share. */
#ifndef MINFER_PROGRAM_H
#define MINFER_PROGRAM_H

#include <stdatomic.h>

#include "cache.h"
#include "kernels.h"
#include "minfer_native.h"
#include "pool.h"

enum mf_class { MF_CLASS_ROWS, MF_CLASS_MATMUL, MF_CLASS_EXPERTS, MF_CLASS_ATTEND, MF_CLASS_HEAD, MF_CLASS_HEAD_END };

typedef struct {
    int32_t class, first, count; /* operations [first, first + count) */
    /* of the step in progress */
    int32_t n_chunks, rows_per_chunk;
    int32_t product; /* the instruction after this one whose weights are worth asking for early, or 0 */
} mf_instruction;

/* How one matrix product is cut up in this step. */
typedef struct {
    int32_t first_chunk, panels_per_chunk, panel_chunks, columns_per_chunk;
} mf_cut;

/* A tile of attention: rows [first, first + n_rows) of the (token, head of the group) rows of a kv head. */
typedef struct {
    int32_t sequence, kv_head, first, n_rows;
    int32_t first_chunk, end_chunk;
    int64_t partial; /* where its partial results begin, in floats */
    int32_t task;    /* index of its first task when split */
} mf_tile;

/* Attentions that read the same cache group with the same shape of query share tiles. */
typedef struct {
    int32_t group, n_q, causal;
    int32_t n_tiles, n_tasks, is_split, capacity;
    mf_tile *tiles;
    _Atomic int32_t *pending; /* by tile: chunks not done */
    int64_t partial_floats;
} mf_attend_class;

/* A thread's share of an instruction. */
typedef struct {
    _Alignas(128) _Atomic uint64_t ticket; /* instruction << 32 | next chunk of the share */
    _Alignas(128) int32_t product;         /* of whose weights [ahead, ahead_end) are still to be asked for */
    const uint8_t *ahead, *ahead_end;
} mf_share;

typedef struct {
    float *scores, *q, *chunk_values, *values, *room, *logits;
} mf_scratch;

struct mf_program {
    mf_pool *pool;
    int32_t n_threads;
    const mf_kernels *kernels;
    const mf_row_kernels *rows;
    uint8_t *weights, *buffers;
    int64_t weight_bytes, buffer_bytes, scratch_bytes;
    mf_large_pages large_pages; /* of the weights */
    mf_weight *matrices;
    const float **vectors;
    int32_t n_matrices, n_vectors, n_operations, n_values, n_instructions, n_classes;
    mf_operation *operations;
    mf_value *values;
    mf_instruction *instructions;
    mf_cut *cuts; /* by operation */
    mf_attend_class *classes;
    mf_scratch *scratch; /* by thread */
    struct mf_tile_work *tiles; /* by thread: whose queries are in its scratch */
    uint8_t *scratch_pages;
    mf_limits limits;
    mf_cache_group *groups;
    int32_t *slots; /* group then index, by slot */
    /* memory that grows with the steps */
    float *partials;
    int64_t partial_capacity;
    int32_t *row_sequence;
    struct mf_top *tops;
    float *head_stats;
    int64_t top_capacity, stats_capacity;
    int32_t head_chunks;
    /* the step in progress */
    int64_t n_steps; /* up to this one */
    const mf_batch *batch;
    mf_cache *cache;
    const mf_query *query;
    int32_t n_rows[MF_ROW_DOMAINS];
    int (*cancel)(void *);
    void *cancel_context;
    int64_t cancel_interval, next_check;
    _Atomic int32_t is_cancelled;
    mf_share *shares; /* by thread */
    _Alignas(128) _Atomic int32_t done; /* chunks of the instruction, and one for having published it */
};

static inline uint8_t *mf_row(const mf_program *p, int32_t value, int64_t row) {
    return p->buffers + p->values[value].offset + p->values[value].row_bytes * row;
}

/* The parts of a step. A negative count of chunks or a status other than MF_OK stops it before it begins. */
void mf_row_operation(mf_program *p, const mf_operation *op, int64_t row);
void mf_cut_matmul(mf_program *p, mf_instruction *instruction);
void mf_matmul_chunk(mf_program *p, const mf_instruction *instruction, int32_t chunk);
/* Weights [*begin, *end) of one matrix, from a chunk's on. */
void mf_matmul_weights(const mf_program *p, const mf_instruction *instruction, int32_t chunk, const uint8_t **begin,
                       const uint8_t **end);
void mf_head_weights(const mf_program *p, const mf_instruction *instruction, int32_t chunk, const uint8_t **begin,
                     const uint8_t **end);
/* Keys and values of a task of split attention, as far as they are one stretch of memory. */
void mf_attend_memory(const mf_program *p, const mf_instruction *instruction, int32_t task, const uint8_t **begin,
                      const uint8_t **end);
/* ahead.c: the first chunk of a thread's share (it ends where the next thread's begins); a step's plan of what to ask
 * for; and to ask for a little more of what comes after an instruction: whether there is more. */
int32_t mf_share_begin(const mf_program *p, int64_t instruction, int thread);
void mf_plan_ahead(mf_program *p);
int mf_ask_ahead(mf_program *p, int64_t instruction, int thread);
void mf_expert_chunk(mf_program *p, const mf_instruction *instruction, int32_t chunk);
int mf_plan_attention(mf_program *p, mf_attend_class *class);
void mf_attend_task(mf_program *p, const mf_operation *op, int32_t task, int thread);
int mf_plan_head(mf_program *p, mf_instruction *instruction);
void mf_head_chunk(mf_program *p, const mf_operation *op, int32_t chunk, int thread);
void mf_head_end(mf_program *p, const mf_operation *op);
void mf_head_free(mf_program *p);
/* moe.c */
void mf_route(const mf_program *p, const mf_operation *op, const float *logits, int32_t *ids);
void mf_sort_pairs(mf_program *p, const mf_operation *op);

/* The order of pairs as SORT_PAIRS leaves it: expert_first[n_experts + 1], then by place: pair, expert; then by
 * pair: place. */
typedef struct {
    int32_t *first, *pair, *expert, *place;
} mf_order;
mf_order mf_order_of(const mf_program *p, int32_t value, int32_t n_experts);

#endif
