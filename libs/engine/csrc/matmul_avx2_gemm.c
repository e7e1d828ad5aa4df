/* The many-column driver: column chunks, pairs of panels, passes over k, tiles. */
#include "matmul_avx2.h"

#if MF_HAVE_AVX2

/* Columns whose sums wait in memory; their activations should stay in the second-level cache. */
enum { CHUNK = 64, TILES = CHUNK / MF_TILE };

/* Widened activations of a chunk, so that a chunk of a long k has fewer columns. */
enum { WIDE_ENTRIES = 12 * 1024 };

typedef struct chunk_sums {
    mf_tile_sums tile[TILES];
    int width[TILES]; /* columns of each tile */
    int tiles;
} chunk_sums;

static const mf_tile_kernels *tiles_of(int type) {
    switch (type) {
    case MF_Q4_0: return &mf_tiles_q4_0;
    case MF_Q4_1: return &mf_tiles_q4_1;
    case MF_Q5_0: return &mf_tiles_q5_0;
    case MF_Q5_1: return &mf_tiles_q5_1;
    case MF_Q8_0: return &mf_tiles_q8_0;
    case MF_Q4_K: return &mf_tiles_q4_k;
    case MF_Q5_K: return &mf_tiles_q5_k;
    case MF_Q6_K: return &mf_tiles_q6_k;
    case MF_F16: return &mf_tiles_f16;
    case MF_BF16: return &mf_tiles_bf16;
    default: return &mf_tiles_f32;
    }
}

/* n columns as ceil(n / 4) tiles whose widths differ by at most one. */
static void split(chunk_sums *sums, int n) {
    sums->tiles = (n + MF_TILE - 1) / MF_TILE;
    for (int t = 0; t < sums->tiles; t++) sums->width[t] = n * (t + 1) / sums->tiles - n * t / sums->tiles;
}

/* A chunk of columns as the tiles see it. wide: NULL but for Q8_0. */
typedef struct chunk_input {
    const uint8_t *activations;
    int64_t stride;
    const int32_t *wide;
} chunk_input;

static mf_tile_input input_at(const mf_weight *w, const chunk_input *chunk, int column, int64_t block) {
    const mf_column x = mf_column_of(w->activation, w->k, chunk->activations + column * chunk->stride);
    const int64_t unit = w->activation == MF_ACTIVATION_F32 ? 4 : w->activation == MF_ACTIVATION_Q8 ? 32 : 256;
    mf_tile_input in = {.q = x.q + unit * block, .stride = chunk->stride};
    if (w->activation == MF_ACTIVATION_F32) return in;
    in.d = x.d + block;
    if (x.s) in.s = x.s + block;
    if (x.pairs) in.pairs = x.pairs + block;
    if (x.pairs16) in.pairs16 = x.pairs16 + 16 * block;
    if (x.pairs32) in.pairs32 = x.pairs32 + 8 * block;
    in.wide_stride = w->k / 2;
    if (chunk->wide) in.wide = chunk->wide + column * in.wide_stride + 16 * block;
    return in;
}

/* With more tiles than this a pass takes long enough for the hardware's own prefetching. */
enum { FEW_TILES = 4 };

/* The next pass, which the tiles of this one ask for: where it begins in both panels, its lines in each, and how many of
 * them go with a block of a tile. */
typedef struct next_pass {
    uintptr_t panel[MF_PANELS];
    int lines, each;
} next_pass;

/* As long as this one, of `bytes` a panel, at `offset` in these panels or at the beginning of the next ones if 0. */
static next_pass pass_after(const mf_weight *w, const int64_t panel[MF_PANELS], int64_t offset, int64_t bytes) {
    next_pass next = {.lines = (int)(bytes + 63) / 64};
    for (int p = 0; p < MF_PANELS; p++)
        next.panel[p] = (uintptr_t)mf_panel(w, panel[p]) + (uintptr_t)(offset ? offset : MF_PANELS * w->panel_bytes);
    return next;
}

/* The share of a tile before which `blocks` blocks of others have asked for theirs. */
static void share_out(const next_pass *next, int blocks, mf_tile_input *in) {
    const int first = blocks * next->each;
    in->lines_ahead = first < next->lines ? next->each : 0;
    for (int p = 0; p < MF_PANELS; p++) in->ahead[p] = next->panel[p] + 64 * (uintptr_t)first;
}

/* Both panels times all columns of the chunk. */
static MF_AVX2 void run_panels(const mf_weight *w, const int64_t panel[MF_PANELS], const chunk_input *chunk,
                               chunk_sums *sums) {
    const mf_format *format = mf_format_of(w->type);
    const mf_tile_kernels *kernels = tiles_of(w->type);
    const int64_t blocks = w->k / format->block, passes = (blocks + kernels->pass_blocks - 1) / kernels->pass_blocks;
    _Alignas(64) uint8_t scratch[MF_PASS_BYTES];
    for (int64_t p = 0; p < passes; p++) {
        const int64_t begin = blocks * p / passes, end = blocks * (p + 1) / passes;
        const int steps = sums->tiles * (int)(end - begin);
        next_pass next = pass_after(w, panel, p + 1 < passes ? end * format->quant_bytes : 0,
                                    (end - begin) * format->quant_bytes);
        next.each = sums->tiles <= FEW_TILES ? (next.lines + steps - 1) / steps : 0;
        for (int slot = 0; slot < MF_PANELS; slot++) {
            const uint8_t *quants = mf_panel(w, panel[slot]), *scales = quants + blocks * format->quant_bytes;
            kernels->unpack(quants + begin * format->quant_bytes, scales + begin * format->scale_bytes,
                            (int)(end - begin), slot, scratch);
        }
        int column = 0;
        for (int t = 0; t < sums->tiles; column += sums->width[t++]) {
            mf_tile_input in = input_at(w, chunk, column, begin);
            in.is_first = p == 0;
            share_out(&next, t * (int)(end - begin), &in);
            kernels->tile[sums->width[t] - 1](scratch, (int)(end - begin), &in, &sums->tile[t]);
        }
    }
}

static MF_AVX2 void emit_tiles(const mf_span *span, int64_t panel, int slot, int64_t column, const chunk_sums *sums) {
    const mf_output *out = span->out;
    const int has_minimum = mf_has_minimum(span->weight->type);
    const int64_t row = panel * MF_PANEL_ROWS;
    const int is_whole = row + MF_PANEL_ROWS <= span->weight->rows;
    const float *bias = out->bias ? out->bias + row : NULL;
    for (int t = 0; t < sums->tiles; t++)
        for (int c = 0; c < sums->width[t]; c++, column++) {
            __m256 result = sums->tile[t].acc[c][slot];
            if (has_minimum) result = _mm256_add_ps(result, sums->tile[t].minimum[c][slot]);
            if (!is_whole) {
                mf_emit(span, column, panel, result);
                continue;
            }
            float *data = out->data + column * out->stride + row;
            if (bias) result = _mm256_add_ps(result, _mm256_loadu_ps(bias));
            if (out->accumulate) result = _mm256_add_ps(_mm256_loadu_ps(data), result);
            _mm256_storeu_ps(data, result);
        }
}

static MF_AVX2 void run_chunk(const mf_span *span, const chunk_input *chunk, int64_t column, int n) {
    chunk_sums sums;
    split(&sums, n);
    for (int64_t p = span->first; p < span->last; p += MF_PANELS) {
        const int64_t panel[MF_PANELS] = {p, p + 1 < span->last ? p + 1 : p};
        run_panels(span->weight, panel, chunk, &sums);
        for (int slot = 0; slot < (panel[0] == panel[1] ? 1 : MF_PANELS); slot++)
            emit_tiles(span, panel[slot], slot, column, &sums);
    }
}

static void run_chunk_wide(const mf_span *span, chunk_input *chunk, int64_t column, int n) {
    const int64_t k = span->weight->k;
    int32_t wide[WIDE_ENTRIES];
    for (int c = 0; c < n; c++) mf_avx2_widen((const int8_t *)chunk->activations + c * chunk->stride, k, wide + c * k / 2);
    chunk->wide = wide;
    run_chunk(span, chunk, column, n);
}

void mf_avx2_gemm(const mf_span *span, const uint8_t *activations, int64_t first_column, int64_t last_column) {
    const mf_weight *w = span->weight;
    chunk_input chunk = {activations, mf_activation_bytes(w->activation, w->k), NULL};
    const int64_t fit = w->type == MF_Q8_0 ? WIDE_ENTRIES / (w->k / 2) : CHUNK, most = fit < CHUNK ? fit : CHUNK;
    int64_t n = most;
    for (int64_t c = first_column; c < last_column; c += n) {
        if (last_column - c < n) n = last_column - c;
        chunk.activations = activations + c * chunk.stride;
        if (most < 2) mf_avx2_gemv(span, chunk.activations, c), n = 1;
        else if (w->type == MF_Q8_0) run_chunk_wide(span, &chunk, c, (int)n);
        else run_chunk(span, &chunk, c, (int)n);
    }
}

#endif
