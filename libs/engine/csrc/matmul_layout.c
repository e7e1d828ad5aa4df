/* Sizes of panels and activation columns, and the choice of an instruction set. */
#include "matmul_layout.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

static const mf_format formats[] = {
    {MF_F32, MF_ACTIVATION_F32, 1, 4, 32, 0},
    {MF_F16, MF_ACTIVATION_F32, 1, 2, 16, 0},
    {MF_BF16, MF_ACTIVATION_F32, 1, 2, 16, 0},
    {MF_Q8_0, MF_ACTIVATION_Q8, MF_BLOCK, 34, 256, 16},
    {MF_Q4_0, MF_ACTIVATION_Q8, MF_BLOCK, 18, 128, 16},
    {MF_Q4_1, MF_ACTIVATION_Q8, MF_BLOCK, 20, 128, 32},
    {MF_Q5_0, MF_ACTIVATION_Q8, MF_BLOCK, 22, 160, 16},
    {MF_Q5_1, MF_ACTIVATION_Q8, MF_BLOCK, 24, 160, 32},
    {MF_Q4_K, MF_ACTIVATION_Q8_K, MF_BLOCK_K, 144, 1024, MF_K_SCALE_BYTES},
    {MF_Q5_K, MF_ACTIVATION_Q8_K, MF_BLOCK_K, 176, 1280, MF_K_SCALE_BYTES},
    {MF_Q6_K, MF_ACTIVATION_Q8_K, MF_BLOCK_K, 210, 1536, MF_Q6K_SCALE_BYTES},
};

const mf_format *mf_format_of(int type) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].type == type) return &formats[i];
    return NULL;
}

int mf_type_supported(int type) { return mf_format_of(type) != NULL; }

int64_t mf_type_block(int type) {
    const mf_format *format = mf_format_of(type);
    return format ? format->block : 0;
}

/* Far above any model, and far below where the products of sizes here would overflow. */
enum { MF_LARGEST_SIDE = 1 << 28 };

static int64_t blocks_in(const mf_format *format, int64_t k) {
    return format && k > 0 && k <= MF_LARGEST_SIDE && k % format->block == 0 ? k / format->block : 0;
}

int64_t mf_source_row_bytes(int type, int64_t k) {
    const mf_format *format = mf_format_of(type);
    return format ? blocks_in(format, k) * format->source_bytes : 0;
}

int64_t mf_panel_count(int64_t rows) { return (rows + MF_PANEL_ROWS - 1) / MF_PANEL_ROWS; }

int64_t mf_panel_bytes(int type, int64_t k) {
    const mf_format *format = mf_format_of(type);
    return format ? mf_round_up(blocks_in(format, k) * (format->quant_bytes + format->scale_bytes), 32) : 0;
}

int64_t mf_weight_bytes(int type, int64_t rows, int64_t k) {
    return rows > 0 && rows <= MF_LARGEST_SIDE ? mf_panel_count(rows) * mf_panel_bytes(type, k) : 0;
}

int mf_weight_init(mf_weight *weight, int type, int64_t rows, int64_t k, void *panels) {
    if (mf_weight_bytes(type, rows, k) == 0 || (uintptr_t)panels % 32 != 0) return -1;
    weight->panels = (uint8_t *)panels;
    weight->rows = rows;
    weight->k = k;
    weight->panel_bytes = mf_panel_bytes(type, k);
    weight->type = type;
    weight->activation = mf_activation_of(type);
    return 0;
}

int mf_activation_of(int type) {
    const mf_format *format = mf_format_of(type);
    return format ? format->activation : -1;
}

int64_t mf_activation_bytes(int kind, int64_t k) {
    if (k <= 0 || k > MF_LARGEST_SIDE) return 0;
    int64_t bytes = 0;
    if (kind == MF_ACTIVATION_F32) {
        bytes = k * 4;
    } else if (kind == MF_ACTIVATION_Q8 && k % MF_BLOCK == 0) {
        bytes = k + 3 * 4 * mf_round_up(k / MF_BLOCK, 8);
    } else if (kind == MF_ACTIVATION_Q8_K && k % MF_BLOCK_K == 0) {
        bytes = k + 4 * mf_round_up(k / MF_BLOCK_K, 8) + 4 * (k / 16 + k / 32);
    }
    return mf_round_up(bytes, MF_ALIGNMENT);
}

static int runs_here(const mf_kernels *kernels) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (kernels == &mf_kernels_avx2) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    }
    if (kernels == &mf_kernels_avx512) return mf_avx512_runs();
    if (kernels == &mf_kernels_amx) return mf_amx_runs();
#endif
#if defined(__aarch64__) && defined(__linux__)
    enum { HAS_DOT_PRODUCT = 1 << 20 }; /* HWCAP_ASIMDDP */
    if (kernels == &mf_kernels_neon) return (getauxval(AT_HWCAP) & HAS_DOT_PRODUCT) != 0;
#endif
    return kernels->matmul != NULL;
}

/* Fastest first. A table that was not built in has no functions. */
static const mf_kernels *const tables[] = {&mf_kernels_amx, &mf_kernels_avx512, &mf_kernels_avx2, &mf_kernels_neon,
                                          &mf_kernels_scalar};

const mf_kernels *mf_kernels_at(int index) {
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (tables[i]->matmul && runs_here(tables[i]) && index-- == 0) return tables[i];
    return NULL;
}

const mf_kernels *mf_kernels_named(const char *name) {
    const mf_kernels *kernels;
    for (int i = 0; (kernels = mf_kernels_at(i)) != NULL; i++)
        if (strcmp(kernels->name, name) == 0) return kernels;
    return NULL;
}

const mf_kernels *mf_kernels_best(void) { return mf_kernels_at(0); }
