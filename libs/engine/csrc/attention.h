/* A tile of attention at work: shared by the step and by taps of probabilities. */
#ifndef MINFER_ATTENTION_H
#define MINFER_ATTENTION_H

#include <math.h>

#include "program.h"

#define MF_LOG2_E 1.44269504088896341f

typedef struct mf_tile_work {
    const mf_attend_class *class;
    const mf_operation *op;
    const mf_cache_store *store;
    const mf_tile *tile;
    const int32_t *table;
    const mf_sequence *sequence;
    mf_attend_kind kind;
    int64_t step; /* of the program, for which it was set up */
    int32_t slot, per_kv; /* per_kv: query heads of one kv head */
    int32_t position[MF_TILE_ROWS], low[MF_TILE_ROWS], high[MF_TILE_ROWS]; /* visible: [low, high) */
    float slopes[MF_TILE_ROWS], q_scale[MF_TILE_ROWS];
} tile_work;

static inline int32_t mf_tile_head(const tile_work *w, int32_t r) {
    return w->tile->kv_head * w->per_kv + (w->tile->first + r) % w->per_kv;
}

/* Fill *w and the tile's queries q. */
void mf_tile_set_up(tile_work *w, const mf_program *p, const mf_operation *op, const mf_tile *tile, float *q);
/* Results of rows into peak[r], sum[r], values[r * dv_padded]. */
void mf_tile_chunk(const tile_work *w, const mf_program *p, int32_t chunk, const mf_scratch *scratch, float *peak,
                   float *sum, float *values);
int mf_tile_sees(const tile_work *w, int32_t row, int32_t chunk);

#endif
