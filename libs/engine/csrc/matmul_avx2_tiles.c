/* Tiles of the 4 and 5 bit types with one scale per 32 weights. */
#include "matmul_avx2.h"

#if MF_HAVE_AVX2

enum { PASS = 24 };

typedef struct scratch_32 {
    __m256i v[PASS][8][MF_PANELS];
    __m256 d[PASS][MF_PANELS], m[PASS][MF_PANELS];
} scratch_32;

_Static_assert(sizeof(scratch_32) <= MF_PASS_BYTES, "the driver's scratch is too small");

MF_AVX2_INLINE void unpack(int type, const uint8_t *quants, const uint8_t *scales, int blocks, int slot, scratch_32 *to) {
    const int quant_bytes = mf_has_fifth_bit(type) ? 160 : 128, scale_bytes = mf_has_minimum(type) ? 32 : 16;
    for (int b = 0; b < blocks; b++) {
        __m256i v[8];
        mf_unpack_32(type, quants + b * quant_bytes, v);
        MF_UNROLL for (int g = 0; g < 8; g++) to->v[b][g][slot] = v[g];
        to->d[b][slot] = mf_halves(scales + b * scale_bytes);
        if (mf_has_minimum(type)) to->m[b][slot] = mf_halves(scales + b * scale_bytes + 16);
    }
}

/* Dot products of groups [first, first + groups) of a block, as 16-bit pairs. */
MF_AVX2_INLINE void pairs(int n, int first, int groups, const __m256i v[8][MF_PANELS], const int8_t *q, int64_t stride,
                          __m256i sum[MF_TILE][MF_PANELS]) {
    MF_UNROLL for (int g = first; g < first + groups; g++) {
        const __m256i v0 = v[g][0], v1 = v[g][1];
        MF_UNROLL for (int c = 0; c < n; c++) {
            const __m256i y = mf_words(q + c * stride + 4 * g);
            sum[c][0] = g == first ? MF_PAIRS(v0, y) : _mm256_add_epi16(sum[c][0], MF_PAIRS(v0, y));
            MF_KEEP(sum[c][0]);
            sum[c][1] = g == first ? MF_PAIRS(v1, y) : _mm256_add_epi16(sum[c][1], MF_PAIRS(v1, y));
            MF_KEEP(sum[c][1]);
        }
    }
}

MF_AVX2_INLINE const float *at(const float *p, int64_t stride, int c) {
    return (const float *)(const void *)((const uint8_t *)p + c * stride);
}

MF_AVX2_INLINE void minima(int n, const scratch_32 *from, int blocks, const mf_tile_input *in, mf_tile_sums *sums) {
    mf_tile_acc acc;
    mf_resume(n, in->is_first, sums->minimum, acc);
    for (int b = 0; b < blocks; b++)
        MF_UNROLL for (int c = 0; c < n; c++) {
            const __m256 s = _mm256_broadcast_ss(at(in->s, in->stride, c) + b);
            MF_UNROLL for (int p = 0; p < 2; p++) acc[c][p] = _mm256_fmadd_ps(from->m[b][p], s, acc[c][p]);
        }
    MF_UNROLL for (int c = 0; c < n; c++) MF_UNROLL for (int p = 0; p < 2; p++) sums->minimum[c][p] = acc[c][p];
}

MF_AVX2_INLINE void tile(int type, int n, const scratch_32 *from, int blocks, const mf_tile_input *in,
                         mf_tile_sums *sums) {
    const __m256i one = _mm256_set1_epi16(1);
    mf_tile_acc acc;
    mf_resume(n, in->is_first, sums->acc, acc);
    for (int b = 0; b < blocks; b++) {
        const int8_t *q = in->q + MF_BLOCK * b;
        mf_ask_for_next_pass(in, b);
        __m256i sum[MF_TILE][MF_PANELS], low[MF_TILE][MF_PANELS];
        if (type == MF_Q5_1) {
            pairs(n, 0, 4, from->v[b], q, in->stride, low);
            MF_UNROLL for (int c = 0; c < n; c++) MF_UNROLL for (int p = 0; p < 2; p++)
                low[c][p] = _mm256_madd_epi16(one, low[c][p]);
            pairs(n, 4, 4, from->v[b], q, in->stride, sum);
        } else {
            pairs(n, 0, 8, from->v[b], q, in->stride, sum);
        }
        MF_UNROLL for (int c = 0; c < n; c++) {
            const __m256 d = _mm256_broadcast_ss(at(in->d, in->stride, c) + b);
            __m256i offset = _mm256_setzero_si256();
            if (mf_offset_shift(type)) {
                const int32_t *pair = (const int32_t *)(const void *)((const uint8_t *)in->pairs + c * in->stride);
                offset = mf_offset_pair(mf_offset_shift(type), pair[b]);
            }
            MF_UNROLL for (int p = 0; p < 2; p++) {
                if (mf_offset_shift(type)) sum[c][p] = _mm256_sub_epi16(sum[c][p], offset);
                __m256i dot = _mm256_madd_epi16(one, sum[c][p]);
                if (type == MF_Q5_1) dot = _mm256_add_epi32(dot, low[c][p]);
                acc[c][p] = _mm256_fmadd_ps(_mm256_mul_ps(from->d[b][p], d), _mm256_cvtepi32_ps(dot), acc[c][p]);
            }
        }
    }
    MF_UNROLL for (int c = 0; c < n; c++) MF_UNROLL for (int p = 0; p < 2; p++) sums->acc[c][p] = acc[c][p];
    if (mf_has_minimum(type)) minima(n, from, blocks, in, sums);
}

#define TILE(name, type, n) \
    static MF_AVX2 void name##_tile##n(const void *from, int blocks, const mf_tile_input *in, mf_tile_sums *sums) { \
        tile(type, n, from, blocks, in, sums); \
    }
#define TYPE(name, type) \
    static MF_AVX2 void name##_unpack(const uint8_t *quants, const uint8_t *scales, int blocks, int slot, void *to) { \
        unpack(type, quants, scales, blocks, slot, to); \
    } \
    TILE(name, type, 1) TILE(name, type, 2) TILE(name, type, 3) TILE(name, type, 4) \
    const mf_tile_kernels mf_tiles_##name = { \
        PASS, name##_unpack, {name##_tile1, name##_tile2, name##_tile3, name##_tile4}};

TYPE(q4_0, MF_Q4_0)
TYPE(q4_1, MF_Q4_1)
TYPE(q5_0, MF_Q5_0)
TYPE(q5_1, MF_Q5_1)

#endif
