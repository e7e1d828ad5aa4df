/* The AVX-512 table: needs the integer dot products of VNNI (Ice Lake, Zen 4 and later). */
#include "matmul_avx512.h"

#if MF_HAVE_AVX2

int mf_avx512_runs(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}

static mf_wide_columns columns_of(const mf_weight *w, const uint8_t *activations) {
    const mf_column x = mf_column_of(w->activation, w->k, activations);
    const uint8_t *d = (const uint8_t *)x.d;
    mf_wide_columns columns = {.q = x.q, .stride = mf_activation_bytes(w->activation, w->k), .d = d - activations};
    if (w->activation == MF_ACTIVATION_Q8) {
        columns.s = (const uint8_t *)x.s - activations;
        columns.pairs = (const uint8_t *)x.pairs - activations;
    } else {
        columns.pairs16 = (const uint8_t *)x.pairs16 - activations;
        columns.pairs32 = (const uint8_t *)x.pairs32 - activations;
    }
    return columns;
}

void mf_avx512_run(mf_wide_pair pair, const mf_span *span, const uint8_t *activations, int64_t first, int64_t last) {
    const int64_t groups = (last - first + MF_WIDE_COLUMNS - 1) / MF_WIDE_COLUMNS;
    const mf_wide_columns all = columns_of(span->weight, activations);
    for (int64_t p = span->first; p < span->first + mf_span_half(span); p++)
        for (int64_t i = 0; i < groups; i++) {
            const int64_t column = first + (last - first) * i / groups, end = first + (last - first) * (i + 1) / groups;
            mf_wide_columns x = all;
            x.q += column * x.stride;
            pair((int)(end - column), span, p, &x, column);
        }
}

static void matmul(const mf_weight *weight, const void *activations, int64_t first, int64_t last, int64_t first_column,
                   int64_t last_column, const mf_output *out) {
    const mf_span span = {weight, out, first, last};
    const int is_k = weight->activation == MF_ACTIVATION_Q8_K;
    if (weight->activation == MF_ACTIVATION_F32) { /* no integer sums */
        mf_kernels_avx2.matmul(weight, activations, first, last, first_column, last_column, out);
    } else if (last_column - first_column > 1) {
        const mf_wide_pair pair = is_k ? mf_avx512_pair_k(weight->type) : mf_avx512_pair(weight->type);
        mf_avx512_run(pair, &span, (const uint8_t *)activations, first_column, last_column);
    } else if (first_column < last_column) {
        const int64_t bytes = mf_activation_bytes(weight->activation, weight->k);
        const uint8_t *activation = (const uint8_t *)activations + first_column * bytes;
        (is_k ? mf_avx512_gemv_k : mf_avx512_gemv)(&span, activation, first_column);
    }
}

const mf_kernels mf_kernels_avx512 = {"avx512", 64, mf_repack_panels, mf_avx2_quantize, matmul, mf_gather_row};

#else

const mf_kernels mf_kernels_avx512 = {"avx512", 0, 0, 0, 0, 0};

int mf_avx512_runs(void) { return 0; }

#endif
