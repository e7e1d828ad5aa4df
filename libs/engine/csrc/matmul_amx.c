/* The AMX table, and its driver of many columns: chunks of columns, pairs of panels, passes over k, tiles. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include "matmul_amx.h"

#if MF_HAVE_AMX

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Columns whose sums wait in memory; their activations should stay in the second-level cache. */
enum { CHUNK = 256, TILES = CHUNK / MF_AMX_COLUMNS };

static const mf_amx_kernels *kernels_of(int type) {
    switch (type) {
    case MF_Q4_0: return &mf_amx_q4_0;
    case MF_Q4_1: return &mf_amx_q4_1;
    case MF_Q5_0: return &mf_amx_q5_0;
    case MF_Q5_1: return &mf_amx_q5_1;
    case MF_Q8_0: return &mf_amx_q8_0;
    case MF_Q4_K: return &mf_amx_q4_k;
    case MF_Q5_K: return &mf_amx_q5_k;
    case MF_Q6_K: return &mf_amx_q6_k;
    default: return NULL; /* float types: their sums are not exact, and go one weight after the other */
    }
}

static MF_AMX void configure(const mf_amx_kernels *kernels, int rest) {
    mf_tile_config config = {.palette = 1};
    const int columns[2] = {MF_AMX_COLUMNS, rest ? rest : MF_AMX_COLUMNS};
    config.rows[MF_AMX_WEIGHTS] = config.rows[MF_AMX_MORE_WEIGHTS] = (uint8_t)(kernels->tile_bytes / 4);
    config.row_bytes[MF_AMX_WEIGHTS] = config.row_bytes[MF_AMX_MORE_WEIGHTS] = 64;
    for (int i = 0; i < 2; i++) {
        const int first = i ? MF_AMX_REST : MF_AMX_WHOLE;
        config.rows[first] = config.rows[first + 1] = config.rows[first + 2] = (uint8_t)columns[i];
        config.row_bytes[first] = (uint16_t)kernels->tile_bytes;
        config.row_bytes[first + 1] = config.row_bytes[first + 2] = 64;
    }
    mf_tile_configure(&config);
}

typedef struct chunk {
    const mf_weight *weight;
    const mf_amx_kernels *kernels;
    const uint8_t *activations; /* of the first column */
    int64_t stride;
    int columns;
    mf_amx_sums sums[TILES];
} chunk;

static mf_amx_input input_at(const chunk *c, int tile, int64_t block) {
    const mf_weight *w = c->weight;
    const int first = tile * MF_AMX_COLUMNS, left = c->columns - first;
    const mf_column x = mf_column_of(w->activation, w->k, c->activations + first * c->stride);
    mf_amx_input in = {.q = x.q + block * c->kernels->block_bytes, .stride = c->stride};
    in.columns = left < MF_AMX_COLUMNS ? left : MF_AMX_COLUMNS;
    in.is_first = block == 0;
    in.d = (const uint8_t *)(x.d + block);
    in.s = (const uint8_t *)(x.s ? (const void *)(x.s + block) : (const void *)(x.pairs32 + 8 * block));
    return in;
}

/* Results lie a row of the output apart: their cache lines are asked for while the tile is worked on. */
static void ask_for_results(const mf_output *out, int64_t panel, int64_t column, int columns) {
    for (int i = 0; i < columns; i++)
        __builtin_prefetch(out->data + (column + i) * out->stride + panel * MF_PANEL_ROWS, 1);
}

static MF_AMX mf_amx_output output_at(const mf_span *span, int64_t panel, int64_t column) {
    const mf_output *out = span->out;
    const int64_t row = panel * MF_PANEL_ROWS;
    return (mf_amx_output){out->data + column * out->stride + row, out->stride, out->bias ? out->bias + row : NULL,
                           out->accumulate, mf_wide_rows(span, panel)};
}

/* Two panels times all columns of the chunk. The sums of a tile wait in memory only when k takes several passes. */
static MF_AMX void run_panels(const mf_span *span, int64_t panel, chunk *c, int64_t column) {
    const mf_weight *w = c->weight;
    const mf_format *format = mf_format_of(w->type);
    const int64_t blocks = w->k / format->block, most = c->kernels->pass_blocks, passes = (blocks + most - 1) / most;
    const mf_panel_pair pair = mf_pair_of(span, panel);
    _Alignas(64) uint8_t scratch[MF_AMX_PASS_BYTES];
    for (int64_t p = 0; p < passes; p++) {
        const int64_t begin = blocks * p / passes, end = blocks * (p + 1) / passes;
        for (int slot = 0; slot < 2; slot++) {
            const uint8_t *quants = slot ? pair.high : pair.low, *scales = quants + blocks * format->quant_bytes;
            c->kernels->unpack(quants + begin * format->quant_bytes, scales + begin * format->scale_bytes,
                               (int)(end - begin), slot, scratch);
        }
        for (int t = 0; t * MF_AMX_COLUMNS < c->columns; t++) {
            const mf_amx_input in = input_at(c, t, begin);
            mf_amx_sums *sums = &c->sums[passes > 1 ? t : 0];
            if (p + 1 < passes) {
                c->kernels->tile(scratch, (int)(end - begin), &in, sums, NULL);
                continue;
            }
            ask_for_results(span->out, panel, column + t * MF_AMX_COLUMNS, in.columns);
            const mf_amx_output to = output_at(span, panel, column + t * MF_AMX_COLUMNS);
            c->kernels->tile(scratch, (int)(end - begin), &in, sums, &to);
        }
    }
}

static MF_AMX void run_chunk(const mf_span *span, chunk *c, int64_t column) {
    for (int64_t p = span->first; p < span->last; p += 2) run_panels(span, p, c, column);
}

static MF_AMX void gemm(const mf_span *span, const uint8_t *activations, int64_t first_column, int64_t last_column) {
    const mf_weight *w = span->weight;
    chunk c = {.weight = w, .kernels = kernels_of(w->type), .stride = mf_activation_bytes(w->activation, w->k)};
    int64_t n;
    for (int64_t column = first_column; column < last_column; column += n) {
        n = last_column - column < CHUNK ? last_column - column : CHUNK;
        c.columns = (int)n;
        c.activations = activations + column * c.stride;
        configure(c.kernels, (int)(n % MF_AMX_COLUMNS));
        run_chunk(span, &c, column);
    }
    mf_tile_release();
}

/* Linux hands out the tile registers on request, for the process and the threads it starts. */
int mf_amx_runs(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    if (!mf_avx512_runs()) return 0;
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 24 & 3) != 3) return 0; /* AMX-TILE, AMX-INT8 */
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* Fewer do not pay for unpacking into tiles. */
enum { LEAST_COLUMNS = 9 };

static void matmul(const mf_weight *weight, const void *activations, int64_t first, int64_t last, int64_t first_column,
                   int64_t last_column, const mf_output *out) {
    const mf_span span = {weight, out, first, last};
    if (last_column - first_column >= LEAST_COLUMNS && kernels_of(weight->type))
        gemm(&span, (const uint8_t *)activations, first_column, last_column);
    else mf_kernels_avx512.matmul(weight, activations, first, last, first_column, last_column, out);
}

const mf_kernels mf_kernels_amx = {"amx", 256, mf_repack_panels, mf_avx2_quantize, matmul, mf_gather_row};

#else

const mf_kernels mf_kernels_amx = {"amx", 0, 0, 0, 0, 0};

int mf_amx_runs(void) { return 0; }

#endif
