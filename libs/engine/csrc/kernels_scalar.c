#define TABLE mf_row_kernels_scalar
#define TABLE_NAME "scalar"
#include "lanes_scalar.h"

#include "kernels_body.h"

#include <stddef.h>

const mf_row_kernels *mf_row_kernels_named(const char *name) {
#if defined(__x86_64__)
    if (!strcmp(name, "avx2")) return &mf_row_kernels_avx2;
    if (!strcmp(name, "amx") || !strcmp(name, "avx512")) return &mf_row_kernels_avx512;
#endif
    (void)name;
    return &mf_row_kernels_scalar;
}
