/* Logits of the rows that want them, in fixed pieces of the vocabulary; what is wanted of them is kept in C.
 *
 * The maximum and the sum of exponentials are kept by piece and folded in ascending order; the k largest under
 * the total order (logit descending, id ascending) are unique, so it does not matter which thread met them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

enum { PIECE_ROWS = 512, TILE_COLUMNS = 32 };

/* One thread's best of one logit row: a heap whose root is the worst one kept. */
typedef struct mf_top {
    float logit;
    int32_t id;
} mf_top;

static inline int is_better(mf_top a, mf_top b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

static void sink_down(mf_top *heap, int32_t n, int32_t at) {
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n) return;
        if (child + 1 < n && is_better(heap[child], heap[child + 1])) child++;
        if (!is_better(heap[at], heap[child])) return;
        mf_top swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
        at = child;
    }
}

static mf_top *heap_of(const mf_program *p, int thread, int32_t row) {
    return p->tops + ((int64_t)thread * p->batch->n_logits + row) * p->query->top;
}

static int grow(void **memory, int64_t *capacity, int64_t n_bytes) {
    if (n_bytes <= *capacity) return MF_OK;
    void *larger = realloc(*memory, (size_t)n_bytes);
    if (!larger) return MF_NO_MEMORY;
    *memory = larger;
    *capacity = n_bytes;
    return MF_OK;
}

int mf_plan_head(mf_program *p, mf_instruction *instruction) {
    const mf_weight *weight = &p->matrices[p->operations[instruction->first].weight];
    const int64_t n_rows = p->batch->n_logits;
    p->head_chunks = (int32_t)((weight->rows + PIECE_ROWS - 1) / PIECE_ROWS);
    instruction->n_chunks = n_rows ? p->head_chunks : 0;
    if (grow((void **)&p->head_stats, &p->stats_capacity, n_rows * p->head_chunks * 2 * (int64_t)sizeof(float))) {
        return MF_NO_MEMORY;
    }
    int64_t n = n_rows * p->n_threads * p->query->top;
    if (grow((void **)&p->tops, &p->top_capacity, n * (int64_t)sizeof(mf_top))) return MF_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) p->tops[i] = (mf_top){-INFINITY, INT32_MAX};
    return MF_OK;
}

void mf_head_free(mf_program *p) {
    free(p->tops);
    free(p->head_stats);
}

static void keep_best(const mf_program *p, mf_top *heap, const float *logits, int32_t n, int32_t first_id) {
    const int32_t k = p->query->top;
    /* A logit equal to the worst one kept may still win by its id: the bar is just below it. */
    float bar = nextafterf(heap[0].logit, -INFINITY);
    for (int32_t i = 0; i + 8 <= n; i += 8) {
        int mask = p->rows->above(logits + i, bar);
        for (; mask; mask &= mask - 1) {
            int bit = __builtin_ctz((unsigned)mask);
            mf_top found = {logits[i + bit], first_id + i + bit};
            if (!is_better(found, heap[0])) continue;
            heap[0] = found;
            sink_down(heap, k, 0);
            bar = nextafterf(heap[0].logit, -INFINITY);
        }
    }
    for (int32_t i = n / 8 * 8; i < n; i++) {
        mf_top found = {logits[i], first_id + i};
        if (!is_better(found, heap[0])) continue;
        heap[0] = found;
        sink_down(heap, k, 0);
    }
}

/* Nothing of most pieces: their maximum says so, unless the sum tells of a NaN, beside which a maximum may be missed. */
static int holds_better(const mf_program *p, int thread, int32_t row, const float *stats) {
    return p->query->top && (stats[0] >= heap_of(p, thread, row)->logit || isnan(stats[1]));
}

static void keep_listed(const mf_query *query, int32_t row, const float *logits, int32_t n, int32_t first_id) {
    if (!query->listed_first) return;
    for (int32_t i = query->listed_first[row]; i < query->listed_first[row + 1]; i++) {
        int32_t at = query->listed[i] - first_id;
        if (at >= 0 && at < n) query->listed_logits[i] = logits[at];
    }
}

static void finish_logits(const mf_program *p, const mf_operation *op, float *logits, int64_t n) {
    for (int i = 0; i < 2; i++) {
        if (op->p[i] == 1) p->rows->scale(n, logits, op->f[i], logits);
        if (op->p[i] == 2) p->rows->softcap(n, logits, op->f[i], logits);
    }
}

void mf_head_chunk(mf_program *p, const mf_operation *op, int32_t chunk, int thread) {
    const mf_weight *weight = &p->matrices[op->weight];
    const mf_query *query = p->query;
    const int32_t n_logits = p->batch->n_logits, first = chunk * PIECE_ROWS;
    const int32_t end = first + PIECE_ROWS < weight->rows ? first + PIECE_ROWS : (int32_t)weight->rows;
    const int32_t first_panel = first / MF_PANEL_ROWS, end_panel = (end + MF_PANEL_ROWS - 1) / MF_PANEL_ROWS;
    const int64_t stride = query->top ? PIECE_ROWS : weight->rows;
    for (int32_t column = 0; column < n_logits; column += TILE_COLUMNS) {
        int32_t columns = n_logits - column < TILE_COLUMNS ? n_logits - column : TILE_COLUMNS;
        /* the kernel counts rows and columns from the origin of `data` */
        float *logits = query->top ? p->scratch[thread].logits : query->logits + column * stride + first;
        mf_output out = {logits - first - column * stride, stride, op->bias >= 0 ? p->vectors[op->bias] : 0, 0};
        p->kernels->matmul(weight, mf_row(p, op->a, 0), first_panel, end_panel, column, column + columns, &out);
        for (int32_t i = 0; i < columns; i++, logits += stride) {
            finish_logits(p, op, logits, end - first);
            float *stats = p->head_stats + ((int64_t)(column + i) * p->head_chunks + chunk) * 2;
            stats[0] = p->rows->maximum(end - first, logits);
            stats[1] = p->rows->sum_exp(end - first, logits, stats[0]);
            if (holds_better(p, thread, column + i, stats))
                keep_best(p, heap_of(p, thread, column + i), logits, end - first, first);
            keep_listed(query, column + i, logits, end - first, first);
        }
    }
}

void mf_head_weights(const mf_program *p, const mf_instruction *instruction, int32_t chunk, const uint8_t **begin,
                     const uint8_t **end) {
    const mf_weight *weight = &p->matrices[p->operations[instruction->first].weight];
    *begin = weight->panels + (int64_t)chunk * (PIECE_ROWS / MF_PANEL_ROWS) * weight->panel_bytes;
    *end = weight->panels + mf_panel_count(weight->rows) * weight->panel_bytes;
}

static int best_first(const void *a, const void *b) {
    const mf_top *x = a, *y = b;
    return is_better(*x, *y) ? -1 : is_better(*y, *x) ? 1 : 0;
}

static void fold_statistics(const mf_program *p, int32_t row) {
    const float *stats = p->head_stats + (int64_t)row * p->head_chunks * 2;
    float peak = stats[0], sum = 0;
    for (int32_t i = 1; i < p->head_chunks; i++) peak = stats[2 * i] > peak ? stats[2 * i] : peak;
    for (int32_t i = 0; i < p->head_chunks; i++) {
        sum = fmaf(stats[2 * i + 1], p->rows->exponential(stats[2 * i] - peak), sum);
    }
    p->query->peak[row] = peak;
    p->query->log_sum_exp[row] = (float)((double)peak + log((double)sum));
}

void mf_head_end(mf_program *p, const mf_operation *op) {
    (void)op;
    const int32_t k = p->query->top;
    for (int32_t row = 0; row < p->batch->n_logits; row++) {
        fold_statistics(p, row);
        if (!k) continue;
        mf_top *best = heap_of(p, 0, row);
        for (int thread = 1; thread < p->n_threads; thread++) {
            const mf_top *other = heap_of(p, thread, row);
            for (int32_t i = 0; i < k; i++) {
                if (!is_better(other[i], best[0])) continue;
                best[0] = other[i];
                sink_down(best, k, 0);
            }
        }
        qsort(best, (size_t)k, sizeof *best, best_first);
        for (int32_t i = 0; i < k; i++) {
            p->query->top_ids[(int64_t)row * k + i] = best[i].id;
            p->query->top_logits[(int64_t)row * k + i] = best[i].logit;
        }
    }
}
