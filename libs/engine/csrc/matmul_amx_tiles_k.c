/* AMX tiles of the K types. A weight times its integer scale has up to 13 bits: split into two bytes, high and low, all
 * 256 weights of a block are summed inside the tile, and the two sums make the one that the definition asks for. */
#include "matmul_amx.h"

#if MF_HAVE_AMX

enum { PASS = 4, STEPS = 4, SUBS = 8, HIGH = 0, LOW = 1 };

typedef struct block_k {
    int8_t v[2][STEPS][16][64];
    int32_t minimum[SUBS][MF_AMX_ROWS]; /* in both halves of a lane; not of Q6_K */
    float d[MF_AMX_ROWS], dmin[MF_AMX_ROWS];
} block_k;

_Static_assert(PASS * sizeof(block_k) <= MF_AMX_PASS_BYTES, "the driver's scratch is too small");

/* 5 bits below the split: 6-bit scale times 5-bit weight. 6 bits: signed 8-bit scale times signed 6-bit weight. */
MF_AMX_INLINE int split_of(int type) { return type == MF_Q6_K ? 6 : 5; }

/* Four unsigned weights of every row times the row's scale, plus start, to both planes. 16-bit lanes all through. */
MF_AMX_INLINE void put(int split, __m256i v, __m256i scale, __m256i start, int8_t *high, int8_t *low) {
    const __m256i byte = _mm256_set1_epi16(255), mask = _mm256_set1_epi16((short)((1 << split) - 1));
    const __m256i even = _mm256_add_epi16(_mm256_mullo_epi16(_mm256_and_si256(v, byte), scale), start);
    const __m256i odd = _mm256_add_epi16(_mm256_mullo_epi16(_mm256_srli_epi16(v, 8), scale), start);
    const __m256i high_even = _mm256_and_si256(_mm256_srai_epi16(even, split), byte);
    const __m256i high_odd = _mm256_slli_epi16(_mm256_srai_epi16(odd, split), 8);
    const __m256i low_odd = _mm256_slli_epi16(_mm256_and_si256(odd, mask), 8);
    _mm256_store_si256((__m256i *)(void *)high, _mm256_or_si256(high_even, high_odd));
    _mm256_store_si256((__m256i *)(void *)low, _mm256_or_si256(_mm256_and_si256(even, mask), low_odd));
}

MF_AMX_INLINE void put_group(int type, int sub, int group, int slot, __m256i v, __m256i scale, __m256i start, block_k *to) {
    const int step = sub / 2, row = 8 * (sub % 2) + group;
    put(split_of(type), v, scale, start, to->v[HIGH][step][row] + 32 * slot, to->v[LOW][step][row] + 32 * slot);
}

MF_AMX_INLINE void unpack_q45(int type, const uint8_t *quants, const uint8_t *scales, int slot, block_k *to) {
    const __m256i low = _mm256_set1_epi8(15), bit = _mm256_set1_epi8(16), zero = _mm256_setzero_si256();
    for (int p = 0; p < MF_PAIRS_K; p++) {
        const __m256i scale = mf_widen(scales + MF_K_SCALE + 16 * p), minimum = mf_widen(scales + MF_K_MIN + 16 * p);
        const __m256i scale_even = mf_both_even(scale), scale_odd = mf_both_odd(scale);
        _mm256_store_si256((__m256i *)(void *)(to->minimum[2 * p] + 8 * slot), mf_both_even(minimum));
        _mm256_store_si256((__m256i *)(void *)(to->minimum[2 * p + 1] + 8 * slot), mf_both_odd(minimum));
        for (int g = 0; g < 8; g++) {
            const __m256i x = mf_load(quants + 256 * p + 32 * g);
            __m256i even = _mm256_and_si256(x, low), odd = _mm256_and_si256(_mm256_srli_epi16(x, 4), low);
            if (type == MF_Q5_K) {
                const __m256i high = _mm256_srl_epi16(mf_load(quants + 1024 + 32 * g), _mm_cvtsi32_si128(2 * p));
                even = _mm256_or_si256(even, _mm256_and_si256(_mm256_slli_epi16(high, 4), bit));
                odd = _mm256_or_si256(odd, _mm256_and_si256(_mm256_slli_epi16(high, 3), bit));
            }
            put_group(type, 2 * p, g, slot, even, scale_even, zero, to);
            put_group(type, 2 * p + 1, g, slot, odd, scale_odd, zero, to);
        }
    }
}

MF_AMX_INLINE void unpack_q6(const uint8_t *quants, const uint8_t *scales, int slot, block_k *to) {
    const __m256i low = _mm256_set1_epi8(15), two = _mm256_set1_epi8(48), offset = _mm256_set1_epi16(-32);
    for (int half = 0; half < 2; half++)
        for (int part = 0; part < 2; part++) {
            __m256i scale[4], start[4];
            MF_UNROLL for (int s = 0; s < 4; s++) {
                const __m256i pair = mf_widen(scales + MF_Q6K_SCALE + 16 * (4 * half + s));
                scale[s] = part ? mf_both_odd(pair) : mf_both_even(pair);
                start[s] = _mm256_mullo_epi16(scale[s], offset);
            }
            for (int g = 4 * part; g < 4 * part + 4; g++) {
                const uint8_t *at = quants + 512 * half + 32 * g;
                const __m256i a = mf_load(at), b = mf_load(at + 256), high = mf_load(quants + 1024 + 256 * half + 32 * g);
                const __m256i nibbles[4] = {a, b, _mm256_srli_epi16(a, 4), _mm256_srli_epi16(b, 4)};
                const __m256i upper[4] = {_mm256_slli_epi16(high, 4), _mm256_slli_epi16(high, 2), high,
                                          _mm256_srli_epi16(high, 2)};
                MF_UNROLL for (int s = 0; s < 4; s++)
                    put_group(MF_Q6_K, 4 * half + s, g, slot,
                              _mm256_or_si256(_mm256_and_si256(nibbles[s], low), _mm256_and_si256(upper[s], two)),
                              scale[s], start[s], to);
            }
        }
}

MF_AMX_INLINE void unpack(int type, const uint8_t *quants, const uint8_t *scales, int blocks, int slot, block_k *to) {
    const int quant_bytes = mf_format_of(type)->quant_bytes, scale_bytes = mf_format_of(type)->scale_bytes;
    for (int b = 0; b < blocks; b++, quants += quant_bytes, scales += scale_bytes, to++) {
        _mm256_store_ps(to->d + 8 * slot, mf_halves(scales));
        if (type != MF_Q6_K) _mm256_store_ps(to->dmin + 8 * slot, mf_halves(scales + MF_K_DMIN));
        if (type == MF_Q6_K) unpack_q6(quants, scales, slot, to);
        else unpack_q45(type, quants, scales, slot, to);
    }
}

typedef int32_t products[2][MF_AMX_COLUMNS][MF_AMX_ROWS];

#define STEP(columns, high, low, j) \
    MF_TILE_LOAD(columns, q + 64 * j, stride); \
    MF_TILE_LOAD(0, from->v[HIGH][j], 64); \
    MF_TILE_PRODUCT(high, columns, 0); \
    MF_TILE_LOAD(7, from->v[LOW][j], 64); \
    MF_TILE_PRODUCT(low, columns, 7);
#define STEPS_OF(columns, high, low) \
    MF_TILE_ZERO(high); \
    MF_TILE_ZERO(low); \
    STEP(columns, high, low, 0) STEP(columns, high, low, 1) STEP(columns, high, low, 2) STEP(columns, high, low, 3) \
    MF_TILE_STORE(high, to[HIGH], 64); \
    MF_TILE_STORE(low, to[LOW], 64);

MF_AMX_INLINE void multiply(int is_whole, const block_k *from, const int8_t *q, int64_t stride, products to) {
    if (is_whole) {
        STEPS_OF(1, 2, 3)
    } else {
        STEPS_OF(4, 5, 6)
    }
}

MF_AMX_INLINE __m512 minimum(const block_k *from, const int32_t *pairs32) {
    __m512i sum = _mm512_setzero_si512();
    MF_UNROLL for (int s = 0; s < SUBS; s++)
        sum = _mm512_dpwssd_epi32(sum, _mm512_load_si512(from->minimum[s]), _mm512_set1_epi32(pairs32[s]));
    return _mm512_cvtepi32_ps(sum);
}

MF_AMX_INLINE void tile(int type, int n, int is_whole, const block_k *from, int blocks, const mf_amx_input *in,
                        mf_amx_sums *sums, const mf_amx_output *to) {
    _Alignas(64) products isum[2];
    __m512 acc[MF_AMX_COLUMNS];
    MF_UNROLL for (int c = 0; c < n; c++) acc[c] = in->is_first ? _mm512_setzero_ps() : sums->acc[c];
    multiply(is_whole, from, in->q, in->stride, isum[0]);
    for (int b = 0; b < blocks; b++, from++) {
        if (b + 1 < blocks) multiply(is_whole, from + 1, in->q + MF_BLOCK_K * (b + 1), in->stride, isum[(b + 1) % 2]);
        const __m512 d = _mm512_load_ps(from->d), dmin = _mm512_load_ps(from->dmin);
        MF_UNROLL for (int c = 0; c < n; c++) {
            const int64_t column = mf_amx_column(is_whole, in, c);
            const __m512 dx = _mm512_set1_ps(*((const float *)(const void *)(in->d + column) + b));
            const __m512i high = _mm512_slli_epi32(_mm512_load_si512(isum[b % 2][HIGH][c]), split_of(type));
            const __m512i dot = _mm512_add_epi32(high, _mm512_load_si512(isum[b % 2][LOW][c]));
            acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), _mm512_cvtepi32_ps(dot), acc[c]);
            if (type == MF_Q6_K) continue;
            const int32_t *pairs32 = (const int32_t *)(const void *)(in->s + column) + SUBS * b;
            acc[c] = _mm512_fnmadd_ps(_mm512_mul_ps(dmin, dx), minimum(from, pairs32), acc[c]);
        }
    }
    if (to)
        MF_UNROLL for (int c = 0; c < n; c++) {
            if (!is_whole && c >= in->columns) break;
            mf_amx_emit(to, c, acc[c]);
        }
    else
        MF_UNROLL for (int c = 0; c < n; c++) sums->acc[c] = acc[c];
}

#define TYPE(name, type) \
    static MF_AMX void name##_unpack(const uint8_t *quants, const uint8_t *scales, int blocks, int slot, void *to) { \
        unpack(type, quants, scales, blocks, slot, (block_k *)to); \
    } \
    static MF_AMX void name##_tile(const void *from, int blocks, const mf_amx_input *in, mf_amx_sums *sums, \
                                   const mf_amx_output *to) { \
        if (in->columns == 16) tile(type, 16, 1, (const block_k *)from, blocks, in, sums, to); \
        else if (in->columns > 8) tile(type, 16, 0, (const block_k *)from, blocks, in, sums, to); \
        else if (in->columns > 4) tile(type, 8, 0, (const block_k *)from, blocks, in, sums, to); \
        else tile(type, 4, 0, (const block_k *)from, blocks, in, sums, to); \
    } \
    const mf_amx_kernels mf_amx_##name = {PASS, MF_BLOCK_K, 64, name##_unpack, name##_tile};

TYPE(q4_k, MF_Q4_K)
TYPE(q5_k, MF_Q5_K)
TYPE(q6_k, MF_Q6_K)

#endif
