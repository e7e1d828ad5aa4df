#define TABLE mf_row_kernels_scalar
#define TABLE_NAME "scalar"
#include "amx_tiles.h"
#include "lanes_scalar.h"

#include "kernels_body.h"

#include <stddef.h>

const mf_row_kernels *mf_row_kernels_named(const char *name) {
#if defined(__x86_64__)
    if (!strcmp(name, "avx2")) return &mf_row_kernels_avx2;
    if (!strcmp(name, "avx512")) return &mf_row_kernels_avx512;
#endif
#if MF_HAVE_AMX
    if (!strcmp(name, "amx")) return &mf_row_kernels_amx;
#endif
    (void)name;
    return &mf_row_kernels_scalar;
}
