/* The AVX-512 table: needs the integer dot products of VNNI (Ice Lake, Zen 4 and later). */
#include "matmul_avx512.h"

#if MF_HAVE_AVX2

int mf_avx512_runs(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}

/* One column is bound by memory, where the shorter registers do as well; float types have no integer sums. */
static void matmul(const mf_weight *weight, const void *activations, int64_t first, int64_t last, int64_t first_column,
                   int64_t last_column, const mf_output *out) {
    const mf_span span = {weight, out, first, last};
    if (last_column - first_column < 2 || weight->activation == MF_ACTIVATION_F32)
        mf_kernels_avx2.matmul(weight, activations, first, last, first_column, last_column, out);
    else if (weight->activation == MF_ACTIVATION_Q8)
        mf_avx512_gemm(&span, (const uint8_t *)activations, first_column, last_column);
    else mf_avx512_gemm_k(&span, (const uint8_t *)activations, first_column, last_column);
}

const mf_kernels mf_kernels_avx512 = {"avx512", 64, mf_repack_panels, mf_avx2_quantize, matmul, mf_gather_row};

#else

const mf_kernels mf_kernels_avx512 = {"avx512", 0, 0, 0, 0, 0};

int mf_avx512_runs(void) { return 0; }

#endif
