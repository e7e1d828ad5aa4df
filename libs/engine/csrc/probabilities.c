/* What an attention looked at, for those who ask: the kernels of the step once more, their weights kept. */
#include <stdlib.h>
#include <string.h>

#include "attention.h"

/* One row's probabilities over [0, n_positions) from the chunks of its tile. */
static void spread(const tile_work *w, const mf_program *p, int32_t r, const float *peaks, const float *sums,
                   const float *scores, float *target) {
    const int32_t first = w->tile->first_chunk, n_chunks = w->tile->end_chunk - first;
    float peak = w->op->bias >= 0 ? p->vectors[w->op->bias][mf_tile_head(w, r)] * MF_LOG2_E : -INFINITY, sum = 0;
    for (int32_t c = 0; c < n_chunks; c++) {
        if (mf_tile_sees(w, r, first + c) && peaks[c] > peak) peak = peaks[c];
    }
    if (w->op->bias >= 0) sum = exp2f(p->vectors[w->op->bias][mf_tile_head(w, r)] * MF_LOG2_E - peak);
    for (int32_t c = 0; c < n_chunks; c++) {
        if (mf_tile_sees(w, r, first + c)) sum += sums[c] * exp2f(peaks[c] - peak);
    }
    for (int32_t c = 0; c < n_chunks; c++) {
        const int32_t start = (first + c) * MF_CHUNK_POSITIONS;
        if (!mf_tile_sees(w, r, first + c)) continue;
        for (int32_t i = 0; i < MF_CHUNK_POSITIONS; i++) {
            if (start + i < w->low[r] || start + i >= w->high[r]) continue;
            target[start + i] = scores[c * MF_CHUNK_POSITIONS + i] * exp2f(peaks[c] - peak) / sum;
        }
    }
}

/* For a tile of at most MF_QUERY_ROWS rows, whose scores the kernels leave. */
static void tile_probabilities(mf_program *p, const mf_operation *op, const mf_tile *tile, float *memory,
                               const mf_target *target) {
    const mf_scratch *scratch = &p->scratch[0];
    const int32_t n_chunks = tile->end_chunk - tile->first_chunk;
    float *scores = memory, *peaks = scores + (int64_t)n_chunks * MF_QUERY_ROWS * MF_CHUNK_POSITIONS;
    float *sums = peaks + n_chunks * MF_QUERY_ROWS;
    tile_work w;
    mf_tile_set_up(&w, p, op, tile, scratch->q);
    for (int32_t c = 0; c < n_chunks; c++) {
        float peak[MF_QUERY_ROWS], sum[MF_QUERY_ROWS];
        mf_tile_chunk(&w, p, tile->first_chunk + c, scratch, peak, sum, scratch->chunk_values);
        for (int32_t r = 0; r < tile->n_rows; r++) {
            memcpy(scores + ((int64_t)r * n_chunks + c) * MF_CHUNK_POSITIONS,
                   scratch->scores + r * MF_SCORE_STRIDE, sizeof(float) * MF_CHUNK_POSITIONS);
            peaks[r * n_chunks + c] = peak[r];
            sums[r * n_chunks + c] = sum[r];
        }
    }
    for (int32_t r = 0; r < tile->n_rows; r++) {
        int64_t row = (tile->first + r) / w.per_kv, head = mf_tile_head(&w, r);
        spread(&w, p, r, peaks + r * n_chunks, sums + r * n_chunks,
               scores + (int64_t)r * n_chunks * MF_CHUNK_POSITIONS,
               target->data + (head * w.sequence->n_rows + row) * target->n_positions);
    }
}

int mf_program_probabilities(mf_program *p, int32_t operation, int32_t sequence, const mf_batch *batch,
                             mf_cache *cache, const mf_target *target) {
    const mf_operation *op = &p->operations[operation];
    mf_attend_class *class = &p->classes[op->p[3]];
    p->batch = batch;
    p->cache = cache;
    for (int32_t i = 0; i < class->n_tiles; i++) {
        mf_tile tile = class->tiles[i];
        if (tile.sequence != sequence) continue;
        int64_t chunks = tile.end_chunk - tile.first_chunk;
        float *memory = malloc(sizeof(float) * (size_t)(chunks * MF_QUERY_ROWS * (MF_CHUNK_POSITIONS + 2)));
        if (!memory) return MF_NO_MEMORY;
        for (int32_t rows = tile.n_rows; rows > 0; rows -= MF_QUERY_ROWS, tile.first += MF_QUERY_ROWS) {
            tile.n_rows = rows < MF_QUERY_ROWS ? rows : MF_QUERY_ROWS;
            tile_probabilities(p, op, &tile, memory, target);
        }
        free(memory);
    }
    return MF_OK;
}
