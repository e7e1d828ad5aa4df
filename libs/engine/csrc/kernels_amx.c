#include "amx_tiles.h"

#if MF_HAVE_AMX
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,amx-tile,amx-int8"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,amx-tile,amx-int8")
#endif

#define TABLE mf_row_kernels_amx
#define TABLE_NAME "amx"
#define SIXTEEN_LANES 1
#define TILES 1
#include "lanes_avx512.h"

#include "kernels_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
