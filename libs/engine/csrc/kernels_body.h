/* All row kernels of one instruction set: lanes_*.h comes before, TABLE and TABLE_NAME are set. */
#include <math.h>
#include <string.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#define BY_FOUR _Pragma("clang loop unroll_count(4)")
#else
#define UNROLLED _Pragma("GCC unroll 24")
#define BY_FOUR _Pragma("GCC unroll 4")
#endif

#include "half.h"
#include "kernels.h"
#include "lanes_math.h"

#ifdef SIXTEEN_LANES
#define LANES(x) v16_##x
#else
#define LANES(x) v8_##x
#endif

#include "rows_template.h"
#include "softmax_template.h"
#include "attention_store.h"
#include "attention_whole.h"
#include "attention_float.h"
#ifdef TILES
#include "attention_tiles.h"
#define ATTEND_WHOLE attend_whole_tiles
#else
#define ATTEND_WHOLE attend_whole
#endif

const mf_row_kernels TABLE = {
    .name = TABLE_NAME,
    .norm_rms = norm_rms,
    .norm_layer = norm_layer,
    .norm_l2 = norm_l2,
    .activate = activate,
    .glu = glu,
    .add = add,
    .mul = mul,
    .scale = scale,
    .softcap = softcap,
    .add_scaled = add_scaled,
    .rope_halves = rope_halves,
    .rope_neighbours = rope_neighbours,
    .softmax = softmax,
    .maximum = maximum,
    .sum_exp = sum_exp,
    .exponential = exponential,
    .above = above,
    .store_whole = store_whole,
    .query_pairs = query_pairs,
    .attend_whole = ATTEND_WHOLE,
    .attend_float = attend_float,
    .attend_merge = attend_merge,
    .attend_finish = attend_finish,
};
