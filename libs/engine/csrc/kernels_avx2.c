#if defined(__x86_64__)
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

#define TABLE mf_row_kernels_avx2
#define TABLE_NAME "avx2"
#include "lanes_avx2.h"

#include "kernels_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
