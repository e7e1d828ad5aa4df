#if defined(__x86_64__)
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#endif

#define TABLE mf_row_kernels_avx512
#define TABLE_NAME "avx512"
#define SIXTEEN_LANES 1
#include "lanes_avx512.h"

#include "kernels_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
