/* AMX tiles of the types with a scale per 32 weights. */
#include "matmul_amx.h"

#if MF_HAVE_AMX

enum { PASS = 48 };

typedef struct scratch_32 {
    int8_t v[PASS][8][64];
    float d[PASS][MF_AMX_ROWS], m[PASS][MF_AMX_ROWS];
} scratch_32;

_Static_assert(sizeof(scratch_32) <= MF_AMX_PASS_BYTES, "the driver's scratch is too small");

MF_AMX_INLINE void unpack(int type, const uint8_t *quants, const uint8_t *scales, int blocks, int slot, scratch_32 *to) {
    const int quant_bytes = type == MF_Q8_0 ? 256 : mf_has_fifth_bit(type) ? 160 : 128;
    const int scale_bytes = mf_has_minimum(type) ? 32 : 16;
    for (int b = 0; b < blocks; b++) {
        __m256i v[8];
        if (type == MF_Q8_0)
            MF_UNROLL for (int g = 0; g < 8; g++) v[g] = mf_load(quants + b * quant_bytes + 32 * g);
        else
            mf_unpack_32(type, quants + b * quant_bytes, v);
        MF_UNROLL for (int g = 0; g < 8; g++) {
            if (mf_offset_shift(type)) v[g] = _mm256_sub_epi8(v[g], _mm256_set1_epi8((char)(1 << mf_offset_shift(type))));
            _mm256_store_si256((__m256i *)(void *)(to->v[b][g] + 32 * slot), v[g]);
        }
        _mm256_store_ps(to->d[b] + 8 * slot, mf_halves(scales + b * scale_bytes));
        if (mf_has_minimum(type)) _mm256_store_ps(to->m[b] + 8 * slot, mf_halves(scales + b * scale_bytes + 16));
    }
}

MF_AMX_INLINE __m512 factor(const uint8_t *plane, int64_t column, int block) {
    return _mm512_set1_ps(*((const float *)(const void *)(plane + column) + block));
}

typedef int32_t products[MF_AMX_COLUMNS][MF_AMX_ROWS];

MF_AMX_INLINE void multiply(int is_whole, const int8_t v[8][64], const int8_t *q, int64_t stride, products to) {
    MF_TILE_LOAD(0, v, 64);
    if (is_whole) {
        MF_TILE_ZERO(2);
        MF_TILE_LOAD(1, q, stride);
        MF_TILE_PRODUCT(2, 1, 0);
        MF_TILE_STORE(2, to, 64);
    } else {
        MF_TILE_ZERO(5);
        MF_TILE_LOAD(4, q, stride);
        MF_TILE_PRODUCT(5, 4, 0);
        MF_TILE_STORE(5, to, 64);
    }
}

MF_AMX_INLINE void minima(int n, int is_whole, const scratch_32 *from, int blocks, const mf_amx_input *in, mf_amx_sums *sums) {
    __m512 acc[MF_AMX_COLUMNS];
    MF_UNROLL for (int c = 0; c < n; c++) acc[c] = in->is_first ? _mm512_setzero_ps() : sums->minimum[c];
    for (int b = 0; b < blocks; b++) {
        const __m512 m = _mm512_load_ps(from->m[b]);
        MF_UNROLL for (int c = 0; c < n; c++) acc[c] = _mm512_fmadd_ps(m, factor(in->s, mf_amx_column(is_whole, in, c), b), acc[c]);
    }
    MF_UNROLL for (int c = 0; c < n; c++) sums->minimum[c] = acc[c];
}

/* n: the columns that are computed, at least those that exist. One product is always under way: it takes as long as
 * the arithmetic that follows the one before. */
MF_AMX_INLINE void tile(int n, int is_whole, int has_minimum, const scratch_32 *from, int blocks, const mf_amx_input *in,
                        mf_amx_sums *sums, const mf_amx_output *to) {
    _Alignas(64) products isum[2];
    __m512 acc[MF_AMX_COLUMNS];
    if (has_minimum) minima(n, is_whole, from, blocks, in, sums);
    MF_UNROLL for (int c = 0; c < n; c++) acc[c] = in->is_first ? _mm512_setzero_ps() : sums->acc[c];
    multiply(is_whole, from->v[0], in->q, in->stride, isum[0]);
    for (int b = 0; b < blocks; b++) {
        if (b + 1 < blocks)
            multiply(is_whole, from->v[b + 1], in->q + MF_BLOCK * (b + 1), in->stride, isum[(b + 1) % 2]);
        const __m512 d = _mm512_load_ps(from->d[b]);
        MF_UNROLL for (int c = 0; c < n; c++) {
            const __m512 value = _mm512_cvtepi32_ps(_mm512_load_si512(isum[b % 2][c]));
            acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(d, factor(in->d, mf_amx_column(is_whole, in, c), b)), value, acc[c]);
        }
    }
    if (to)
        MF_UNROLL for (int c = 0; c < n; c++) {
            if (!is_whole && c >= in->columns) break;
            mf_amx_emit(to, c, has_minimum ? _mm512_add_ps(acc[c], sums->minimum[c]) : acc[c]);
        }
    else
        MF_UNROLL for (int c = 0; c < n; c++) sums->acc[c] = acc[c];
}

MF_AMX_INLINE void tiles(int has_minimum, const scratch_32 *from, int blocks, const mf_amx_input *in, mf_amx_sums *sums,
                         const mf_amx_output *to) {
    if (in->columns == 16) tile(16, 1, has_minimum, from, blocks, in, sums, to);
    else if (in->columns > 8) tile(16, 0, has_minimum, from, blocks, in, sums, to);
    else if (in->columns > 4) tile(8, 0, has_minimum, from, blocks, in, sums, to);
    else tile(4, 0, has_minimum, from, blocks, in, sums, to);
}

static MF_AMX void tiles_without(const void *from, int blocks, const mf_amx_input *in, mf_amx_sums *sums,
                                 const mf_amx_output *to) {
    tiles(0, (const scratch_32 *)from, blocks, in, sums, to);
}

static MF_AMX void tiles_with(const void *from, int blocks, const mf_amx_input *in, mf_amx_sums *sums,
                              const mf_amx_output *to) {
    tiles(1, (const scratch_32 *)from, blocks, in, sums, to);
}

#define TYPE(name, type, tiles) \
    static MF_AMX void name##_unpack(const uint8_t *quants, const uint8_t *scales, int blocks, int slot, void *to) { \
        unpack(type, quants, scales, blocks, slot, (scratch_32 *)to); \
    } \
    const mf_amx_kernels mf_amx_##name = {PASS, MF_BLOCK, 32, name##_unpack, tiles};

TYPE(q4_0, MF_Q4_0, tiles_without)
TYPE(q4_1, MF_Q4_1, tiles_with)
TYPE(q5_0, MF_Q5_0, tiles_without)
TYPE(q5_1, MF_Q5_1, tiles_with)
TYPE(q8_0, MF_Q8_0, tiles_without)

#endif
