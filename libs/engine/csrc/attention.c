/* Which rows attend to what: tiles of query rows that share a kv head, and their chunks of 256 positions.
 *
 * A tile normally folds its chunks one after another. When a step has few tiles (decoding), each chunk becomes
 * a task of its own, and the last one to finish folds them all: in the same order, so with the same bits. */
#include <stdlib.h>
#include <string.h>

#include "attention.h"

enum { TASKS_PER_THREAD = 6 };


static int32_t last_position(const mf_sequence *s) { return s->length_before + s->n_rows; }

/* Positions [low, high) that the query at `position` sees. */
static void visible(const mf_attend_class *class, const mf_cache_group *spec, const mf_sequence *s, int32_t position,
                    int32_t *low, int32_t *high) {
    *high = class->causal ? position + 1 : last_position(s);
    *low = spec->window && position - spec->window + 1 > 0 ? position - spec->window + 1 : 0;
}

static int reserve_tiles(mf_attend_class *class, int32_t n) {
    if (n <= class->capacity) return MF_OK;
    mf_tile *tiles = realloc(class->tiles, sizeof(mf_tile) * (size_t)n);
    if (tiles) class->tiles = tiles;
    _Atomic int32_t *pending = realloc((void *)class->pending, sizeof(*pending) * (size_t)n);
    if (pending) class->pending = pending;
    if (!tiles || !pending) return MF_NO_MEMORY;
    class->capacity = n;
    return MF_OK;
}

/* How many tiles of so many rows the step has. */
static int64_t count_tiles(const mf_program *p, const mf_attend_class *class, int32_t tile_rows) {
    const int32_t n_kv = p->groups[class->group].n_kv;
    int64_t n = 0;
    for (int32_t i = 0; i < p->batch->n_sequences; i++) {
        int64_t rows = (int64_t)p->batch->sequences[i].n_rows * (class->n_q / n_kv);
        n += (rows + tile_rows - 1) / tile_rows * n_kv;
    }
    return n;
}

/* Large tiles share more work, but there have to be some for every thread. */
static int32_t choose_tile_rows(const mf_program *p, const mf_attend_class *class) {
    int32_t rows = MF_TILE_ROWS;
    while (rows > MF_LEAST_TILE_ROWS && count_tiles(p, class, rows) < TASKS_PER_THREAD * p->n_threads) rows /= 2;
    return rows;
}

static void add_tiles(const mf_program *p, mf_attend_class *class, int32_t sequence, int32_t tile_rows) {
    const mf_sequence *s = &p->batch->sequences[sequence];
    const mf_cache_group *spec = &p->groups[class->group];
    const int32_t per_kv = class->n_q / spec->n_kv, rows = s->n_rows * per_kv;
    for (int32_t first = 0; first < rows; first += tile_rows) {
        int32_t n = rows - first < tile_rows ? rows - first : tile_rows;
        const int32_t *position = p->batch->cache_pos + s->first_row;
        int32_t low, unused, high;
        visible(class, spec, s, position[first / per_kv], &low, &unused);
        visible(class, spec, s, position[(first + n - 1) / per_kv], &unused, &high);
        for (int32_t head = 0; head < spec->n_kv; head++) {
            class->tiles[class->n_tiles++] = (mf_tile){
                .sequence = sequence, .kv_head = head, .first = first, .n_rows = n,
                .first_chunk = low / MF_CHUNK_POSITIONS,
                .end_chunk = (high + MF_CHUNK_POSITIONS - 1) / MF_CHUNK_POSITIONS};
        }
    }
}

/* The longest tiles first, so that the end of the operation is even; then those of one head together, which read the
 * same keys and values. */
static int by_length_and_head(const void *a, const void *b) {
    const mf_tile *x = a, *y = b;
    int32_t left = x->end_chunk - x->first_chunk, right = y->end_chunk - y->first_chunk;
    if (left != right) return left < right ? 1 : -1;
    if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
    return x->kv_head - y->kv_head;
}

int mf_plan_attention(mf_program *p, mf_attend_class *class) {
    const mf_cache_group *spec = &p->groups[class->group];
    const int32_t tile_rows = choose_tile_rows(p, class);
    const int64_t n_tiles = count_tiles(p, class, tile_rows);
    int64_t floats = 0, chunks = 0;
    class->n_tiles = 0;
    if (reserve_tiles(class, (int32_t)n_tiles)) return MF_NO_MEMORY;
    for (int32_t i = 0; i < p->batch->n_sequences; i++) add_tiles(p, class, i, tile_rows);
    const int64_t row_floats = (spec->dv + 15) / 16 * 16 + 2;
    for (int32_t i = 0; i < class->n_tiles; i++) {
        mf_tile *tile = &class->tiles[i];
        tile->partial = floats;
        tile->task = (int32_t)chunks;
        floats += row_floats * tile->n_rows * (tile->end_chunk - tile->first_chunk);
        chunks += tile->end_chunk - tile->first_chunk;
        atomic_store_explicit(&class->pending[i], tile->end_chunk - tile->first_chunk, memory_order_relaxed);
    }
    class->is_split = p->n_threads > 1 && n_tiles < TASKS_PER_THREAD * p->n_threads && chunks > n_tiles;
    class->n_tasks = (int32_t)(class->is_split ? chunks : n_tiles);
    class->partial_floats = class->is_split ? floats : 0;
    if (!class->is_split) qsort(class->tiles, (size_t)class->n_tiles, sizeof(mf_tile), by_length_and_head);
    return MF_OK;
}

static float slope_of(float max_bias, int32_t head, int32_t n_heads) {
    int32_t power = 1;
    while (2 * power <= n_heads) power *= 2;
    float exponent = head < power ? -max_bias * (float)(head + 1) / (float)power
                                  : -max_bias / 2 * (float)(2 * (head - power) + 1) / (float)power;
    double slope = 1, base = 2; /* 2 ** exponent in plain arithmetic, the same everywhere */
    int64_t whole = (int64_t)exponent;
    for (int64_t i = 0; i > whole; i--) slope /= base;
    double rest = ((double)exponent - (double)whole) * 0.69314718055994530942, term = 1, sum = 1;
    for (int i = 1; i < 18; i++) sum += term *= rest / i;
    return (float)(slope * sum);
}

/* Whole queries as rows lie behind their pairs. */
static int16_t *query_rows(float *q, int64_t dk) { return (int16_t *)(q + MF_TILE_ROWS * mf_pairs(dk)); }

static void set_query(tile_work *w, const mf_program *p, int32_t r, const float *source, float *q) {
    const int64_t dk = w->kind.dk;
    if (w->kind.is_whole) {
        int32_t *pairs = (int32_t *)q + mf_query_of_row(mf_pairs(dk), r);
        int16_t *row = query_rows(q, dk) + r * dk;
        w->q_scale[r] = p->rows->query_pairs(dk, source, mf_query_limit(dk), row, pairs) * w->kind.q_factor;
    } else {
        float *target = q + mf_query_of_row(dk, r);
        for (int64_t d = 0; d < dk; d++) target[d * MF_QUERY_ROWS] = source[d] * w->kind.q_factor;
    }
}

void mf_tile_set_up(tile_work *w, const mf_program *p, const mf_operation *op, const mf_tile *tile, float *q) {
    w->class = &p->classes[op->p[3]];
    w->op = op;
    w->tile = tile;
    w->slot = p->slots[2 * op->p[0] + 1];
    w->store = &p->cache->group[w->class->group];
    w->sequence = &p->batch->sequences[tile->sequence];
    w->table = p->batch->block_tables[tile->sequence * p->limits.n_groups + w->class->group];
    const mf_cache_group *spec = &w->store->spec;
    w->per_kv = w->class->n_q / spec->n_kv;
    w->kind = (mf_attend_kind){spec->dk, spec->dv, (spec->dv + 15) / 16 * 16, spec->is_whole,
                               op->f[1] > 0 ? op->f[0] : op->f[0] * MF_LOG2_E, op->f[1]};
    for (int32_t r = 0; r < tile->n_rows; r++) {
        int32_t row = w->sequence->first_row + (tile->first + r) / w->per_kv;
        int32_t head = mf_tile_head(w, r);
        w->position[r] = p->batch->cache_pos[row];
        visible(w->class, spec, w->sequence, w->position[r], &w->low[r], &w->high[r]);
        const float *source = (const float *)mf_row(p, op->a, row) + head * spec->dk;
        set_query(w, p, r, source, q);
        if (op->f[2] > 0) w->slopes[r] = slope_of(op->f[2], head, w->class->n_q) * MF_LOG2_E;
    }
}

static int32_t clamp(int32_t x) { return x < 0 ? 0 : x > MF_CHUNK_POSITIONS ? MF_CHUNK_POSITIONS : x; }

/* Which rows see what of the chunk at `start`; returns the positions [begin, end) that any of them sees. */
static void see_chunk(const tile_work *w, int32_t start, mf_attend_chunk *c, int32_t *begin, int32_t *end) {
    *begin = MF_CHUNK_POSITIONS, *end = 0;
    for (int32_t r = 0; r < w->tile->n_rows; r++) {
        c->first[r] = clamp(w->low[r] - start);
        c->last[r] = clamp(w->high[r] - start);
        if (c->first[r] < *begin) *begin = c->first[r];
        if (c->last[r] > *end) *end = c->last[r];
    }
}

static const uint8_t *block_of(const tile_work *w, int32_t kv_head, int32_t index) {
    return mf_cache_part(w->store, w->slot, w->table[index], kv_head);
}

/* The blocks of the chunk at `start`, as far as the tile sees it; after its last those of the next head's first, as tiles
 * go from head to head. */
static void look_ahead(const tile_work *w, int32_t start, mf_attend_chunk *c) {
    const int32_t end = w->high[w->tile->n_rows - 1];
    int32_t head = w->tile->kv_head;
    if (start >= end && ++head < w->store->spec.n_kv) start = w->tile->first_chunk * MF_CHUNK_POSITIONS;
    for (; c->n_next < MF_CHUNK_BLOCKS && start < end; start += MF_BLOCK_POSITIONS) {
        c->next[c->n_next++] = block_of(w, head, start / MF_BLOCK_POSITIONS);
    }
}

/* Results of rows into peak[r], sum[r], values[r * dv_padded]. */
void mf_tile_chunk(const tile_work *w, const mf_program *p, int32_t chunk, const mf_scratch *scratch, float *peak,
                   float *sum, float *values) {
    const int32_t start = chunk * MF_CHUNK_POSITIONS;
    int32_t distance[MF_TILE_ROWS], begin, end;
    mf_attend_chunk c;
    c.kind = &w->kind, c.n_rows = w->tile->n_rows, c.n_next = 0;
    c.q = scratch->q, c.q_pairs = (const int32_t *)scratch->q, c.q_scale = w->q_scale;
    c.q_rows = query_rows(scratch->q, w->kind.dk);
    c.scores = scratch->scores, c.room = scratch->room, c.slopes = NULL, c.distance = NULL;
    c.peak = peak, c.sum = sum, c.values = values;
    see_chunk(w, start, &c, &begin, &end);
    for (int32_t b = begin / MF_BLOCK_POSITIONS; b * MF_BLOCK_POSITIONS < end; b++) {
        c.blocks[b] = block_of(w, w->tile->kv_head, start / MF_BLOCK_POSITIONS + b);
    }
    look_ahead(w, start + MF_CHUNK_POSITIONS, &c);
    if (w->op->f[2] > 0) {
        for (int32_t r = 0; r < c.n_rows; r++) distance[r] = start - w->position[r];
        c.slopes = w->slopes;
        c.distance = distance;
    }
    (w->kind.is_whole ? p->rows->attend_whole : p->rows->attend_float)(&c);
}

int mf_tile_sees(const tile_work *w, int32_t row, int32_t chunk) {
    return w->low[row] < (chunk + 1) * MF_CHUNK_POSITIONS && w->high[row] > chunk * MF_CHUNK_POSITIONS;
}

static void finish(const tile_work *w, const mf_program *p, int32_t r, float peak, float sum, const float *values) {
    const mf_operation *op = w->op;
    int32_t row = w->sequence->first_row + (w->tile->first + r) / w->per_kv;
    int32_t head = mf_tile_head(w, r);
    float sink = op->bias >= 0 ? p->vectors[op->bias][head] : 0;
    p->rows->attend_finish(w->kind.dv, peak, sum, values, op->bias >= 0, sink,
                           (float *)mf_row(p, op->out, row) + head * w->kind.dv);
}

/* How rows take a chunk that was just computed. */
enum { SEES_NOTHING, BEGINS, GOES_ON };

static int state_of(const tile_work *w, int32_t row, int32_t chunk) {
    if (!mf_tile_sees(w, row, chunk)) return SEES_NOTHING;
    return w->low[row] < chunk * MF_CHUNK_POSITIONS ? GOES_ON : BEGINS;
}

typedef struct {
    float *peak, *sum, *values; /* by row */
} row_results;

static void take_chunk(const tile_work *w, const mf_program *p, int32_t chunk, const row_results *all,
                       const row_results *next) {
    const int64_t dv = w->kind.dv_padded;
    for (int32_t r = 0, end; r < w->tile->n_rows; r = end) {
        const int state = state_of(w, r, chunk);
        for (end = r + 1; end < w->tile->n_rows && state_of(w, end, chunk) == state; end++) {}
        const size_t n = (size_t)(end - r);
        if (state == GOES_ON) {
            p->rows->attend_merge(end - r, dv, all->peak + r, all->sum + r, all->values + r * dv, next->peak + r,
                                  next->sum + r, next->values + r * dv);
        } else if (state == BEGINS) {
            memcpy(all->peak + r, next->peak + r, sizeof(float) * n);
            memcpy(all->sum + r, next->sum + r, sizeof(float) * n);
            memcpy(all->values + r * dv, next->values + r * dv, sizeof(float) * n * (size_t)dv);
        }
    }
}

static void finish_tile(const tile_work *w, const mf_program *p, const row_results *all) {
    for (int32_t r = 0; r < w->tile->n_rows; r++) {
        finish(w, p, r, all->peak[r], all->sum[r], all->values + r * w->kind.dv_padded);
    }
}

static void run_tile(const tile_work *w, const mf_program *p, const mf_scratch *scratch) {
    float peaks[2][MF_TILE_ROWS], sums[2][MF_TILE_ROWS];
    const row_results all = {peaks[0], sums[0], scratch->values}, next = {peaks[1], sums[1], scratch->chunk_values};
    for (int32_t chunk = w->tile->first_chunk; chunk < w->tile->end_chunk; chunk++) {
        mf_tile_chunk(w, p, chunk, scratch, next.peak, next.sum, next.values);
        take_chunk(w, p, chunk, &all, &next);
    }
    finish_tile(w, p, &all);
}

static int64_t partial_floats(const tile_work *w) { return w->tile->n_rows * (w->kind.dv_padded + 2); }

/* Where a chunk of a split tile leaves its results. */
static row_results partial_of(const tile_work *w, const mf_program *p, int32_t chunk) {
    float *at = p->partials + w->tile->partial + (chunk - w->tile->first_chunk) * partial_floats(w);
    return (row_results){at, at + w->tile->n_rows, at + 2 * w->tile->n_rows};
}

/* Some of the results are in another core's caches: each is asked for while the one before is taken. */
static void fold_tile(const tile_work *w, const mf_program *p, const mf_scratch *scratch) {
    float peak[MF_TILE_ROWS], sum[MF_TILE_ROWS];
    const row_results all = {peak, sum, scratch->values};
    for (int32_t chunk = w->tile->first_chunk; chunk < w->tile->end_chunk; chunk++) {
        const row_results next = partial_of(w, p, chunk);
        if (chunk + 1 < w->tile->end_chunk) {
            for (int64_t i = 0; i < partial_floats(w); i += 16) __builtin_prefetch(next.peak + partial_floats(w) + i, 0, 3);
        }
        take_chunk(w, p, chunk, &all, &next);
    }
    finish_tile(w, p, &all);
}

/* The tile, set up; a thread that goes on with chunks of the tile it had last finds it so. */
static const tile_work *set_up(const mf_program *p, const mf_operation *op, const mf_tile *tile, int thread) {
    tile_work *w = &p->tiles[thread];
    if (w->tile != tile || w->op != op || w->step != p->n_steps) {
        mf_tile_set_up(w, p, op, tile, p->scratch[thread].q);
        w->step = p->n_steps;
    }
    return w;
}

static const mf_tile *tile_of(const mf_attend_class *class, int32_t task) {
    int32_t index = 0;
    while (index + 1 < class->n_tiles && class->tiles[index + 1].task <= task) index++;
    return &class->tiles[index];
}

void mf_attend_memory(const mf_program *p, const mf_instruction *instruction, int32_t task, const uint8_t **begin,
                      const uint8_t **end) {
    const mf_operation *op = &p->operations[instruction->first];
    const mf_attend_class *class = &p->classes[op->p[3]];
    const mf_tile *tile = tile_of(class, task);
    const mf_cache_store *store = &p->cache->group[class->group];
    const int32_t *table = p->batch->block_tables[tile->sequence * p->limits.n_groups + class->group];
    const int32_t first = (tile->first_chunk + task - tile->task) * MF_CHUNK_BLOCKS;
    *begin = mf_cache_part(store, p->slots[2 * op->p[0] + 1], table[first], tile->kv_head);
    *end = *begin + store->head_bytes * (MF_CHUNK_BLOCKS - table[first] % MF_CHUNK_BLOCKS);
}

void mf_attend_task(mf_program *p, const mf_operation *op, int32_t task, int thread) {
    mf_attend_class *class = &p->classes[op->p[3]];
    const mf_scratch *scratch = &p->scratch[thread];
    if (!class->is_split) {
        run_tile(set_up(p, op, &class->tiles[task], thread), p, scratch);
        return;
    }
    const mf_tile *tile = tile_of(class, task);
    const tile_work *w = set_up(p, op, tile, thread);
    const int32_t chunk = tile->first_chunk + task - tile->task;
    const row_results part = partial_of(w, p, chunk);
    mf_tile_chunk(w, p, chunk, scratch, part.peak, part.sum, part.values);
    _Atomic int32_t *pending = &class->pending[tile - class->tiles];
    if (atomic_fetch_sub(pending, 1) > 1) return;
    atomic_store(pending, tile->end_chunk - tile->first_chunk); /* for the next layer */
    fold_tile(w, p, scratch);
}
