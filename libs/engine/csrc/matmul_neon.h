/* What the NEON files share: 64-bit Arm with the dot-product instructions (Armv8.2 and later, all of Apple's). */
#ifndef MINFER_MATMUL_NEON_H
#define MINFER_MATMUL_NEON_H

#if defined(__aarch64__) && defined(__GNUC__)
#define MF_HAVE_NEON 1

#include <arm_neon.h>

#include "matmul_layout.h"

#define MF_NEON __attribute__((target("arch=armv8.2-a+dotprod")))
#define MF_NEON_INLINE static inline __attribute__((always_inline, target("arch=armv8.2-a+dotprod")))
#define MF_UNROLL _Pragma("GCC unroll 16")

/* Columns that share one unpacking; a vector holds four rows, so a panel is two of each. */
enum { MF_NEON_COLUMNS = 4, MF_NEON_HALVES = 2 };

/* One panel times n <= MF_NEON_COLUMNS columns; results 8 apart. */
typedef struct mf_neon_columns {
    const void *base[MF_NEON_COLUMNS];
    mf_column x[MF_NEON_COLUMNS];
    int n;
} mf_neon_columns;

typedef float mf_neon_results[MF_NEON_COLUMNS][MF_PANEL_ROWS];

void mf_neon_panel(const mf_weight *w, const uint8_t *panel, const mf_neon_columns *columns, mf_neon_results results);
void mf_neon_panel_k(const mf_weight *w, const uint8_t *panel, const mf_neon_columns *columns, mf_neon_results results);
void mf_neon_panel_float(const mf_weight *w, const uint8_t *panel, const mf_neon_columns *columns,
                         mf_neon_results results);

/* Weights of 32 k as signed bytes: [g][h] holds weights 4g..4g+3 of rows 4h..4h+3. */
typedef int8x16_t mf_neon_groups[8][MF_NEON_HALVES];

/* Exact dot products of four rows with 16 activations, from group g on, added to sum. */
MF_NEON_INLINE int32x4_t mf_neon_dot16(int32x4_t sum, mf_neon_groups v, int g, int h, int8x16_t y) {
    sum = vdotq_laneq_s32(sum, v[g][h], y, 0);
    sum = vdotq_laneq_s32(sum, v[g + 1][h], y, 1);
    sum = vdotq_laneq_s32(sum, v[g + 2][h], y, 2);
    return vdotq_laneq_s32(sum, v[g + 3][h], y, 3);
}

MF_NEON_INLINE float32x4_t mf_neon_halves(const uint8_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)(const void *)p)));
}

#else

typedef int mf_neon_is_absent; /* a file of C holds something */

#endif
#endif
