/* Tiles of the K types: integer scales inside a block of 256 are the multiplier of the 16-bit pairs. */
#include "matmul_avx2.h"

#if MF_HAVE_AVX2

enum { PASS = 4, SUBS = 8 };

typedef struct block_k {
    __m256i v[SUBS][8][MF_PANELS];
    __m256i scale[2 * SUBS][MF_PANELS]; /* each in both halves of a lane; 16 for Q6_K, 8 for the others */
    __m256i minimum[SUBS][MF_PANELS];   /* alike; not of Q6_K */
    __m256 d[MF_PANELS], dmin[MF_PANELS];
} block_k;

_Static_assert(PASS * sizeof(block_k) <= MF_PASS_BYTES, "the driver's scratch is too small");

MF_AVX2_INLINE void unpack_scales(int type, const uint8_t *scales, int slot, block_k *to) {
    to->d[slot] = mf_halves(scales);
    if (type == MF_Q6_K) {
        MF_UNROLL for (int p = 0; p < 8; p++) {
            const __m256i pair = mf_widen(scales + MF_Q6K_SCALE + 16 * p);
            to->scale[2 * p][slot] = mf_both_even(pair);
            to->scale[2 * p + 1][slot] = mf_both_odd(pair);
        }
        return;
    }
    to->dmin[slot] = mf_halves(scales + MF_K_DMIN);
    MF_UNROLL for (int p = 0; p < 4; p++) {
        const __m256i pair = mf_widen(scales + MF_K_SCALE + 16 * p), minimum = mf_widen(scales + MF_K_MIN + 16 * p);
        to->scale[2 * p][slot] = mf_both_even(pair);
        to->scale[2 * p + 1][slot] = mf_both_odd(pair);
        to->minimum[2 * p][slot] = mf_both_even(minimum);
        to->minimum[2 * p + 1][slot] = mf_both_odd(minimum);
    }
}

MF_AVX2_INLINE void unpack_q45(int type, const uint8_t *quants, int slot, block_k *to) {
    const __m256i low = _mm256_set1_epi8(15), bit = _mm256_set1_epi8(16);
    MF_UNROLL for (int s = 0; s < SUBS; s += 2)
        for (int g = 0; g < 8; g++) {
            const __m256i x = mf_load(quants + 128 * s + 32 * g);
            __m256i even = _mm256_and_si256(x, low), odd = _mm256_and_si256(_mm256_srli_epi16(x, 4), low);
            if (type == MF_Q5_K) {
                const __m256i high = mf_load(quants + 1024 + 32 * g);
                const __m256i e = s < 4 ? _mm256_slli_epi16(high, 4 - s) : _mm256_srli_epi16(high, s - 4);
                const __m256i o = s < 3 ? _mm256_slli_epi16(high, 3 - s) : _mm256_srli_epi16(high, s - 3);
                even = _mm256_or_si256(even, _mm256_and_si256(e, bit));
                odd = _mm256_or_si256(odd, _mm256_and_si256(o, bit));
            }
            to->v[s][g][slot] = even;
            to->v[s + 1][g][slot] = odd;
        }
}

MF_AVX2_INLINE void unpack_q6(const uint8_t *quants, int slot, block_k *to) {
    const __m256i low = _mm256_set1_epi8(15), two = _mm256_set1_epi8(48);
    for (int half = 0; half < 2; half++)
        for (int g = 0; g < 8; g++) {
            const __m256i a = mf_load(quants + 512 * half + 32 * g), b = mf_load(quants + 512 * half + 256 + 32 * g);
            const __m256i high = mf_load(quants + 1024 + 256 * half + 32 * g);
            const __m256i nibbles[4] = {a, b, _mm256_srli_epi16(a, 4), _mm256_srli_epi16(b, 4)};
            const __m256i upper[4] = {_mm256_slli_epi16(high, 4), _mm256_slli_epi16(high, 2), high,
                                      _mm256_srli_epi16(high, 2)};
            MF_UNROLL for (int s = 0; s < 4; s++)
                to->v[4 * half + s][g][slot] =
                    _mm256_or_si256(_mm256_and_si256(nibbles[s], low), _mm256_and_si256(upper[s], two));
        }
}

MF_AVX2_INLINE void unpack(int type, const uint8_t *quants, const uint8_t *scales, int blocks, int slot, block_k *to) {
    const int quant_bytes = type == MF_Q4_K ? 1024 : type == MF_Q5_K ? 1280 : 1536;
    const int scale_bytes = type == MF_Q6_K ? MF_Q6K_SCALE_BYTES : MF_K_SCALE_BYTES;
    for (int b = 0; b < blocks; b++) {
        unpack_scales(type, scales + b * scale_bytes, slot, &to[b]);
        if (type == MF_Q6_K) unpack_q6(quants + b * quant_bytes, slot, &to[b]);
        else unpack_q45(type, quants + b * quant_bytes, slot, &to[b]);
    }
}

typedef __m256i tile_ints[MF_TILE][MF_PANELS];

MF_AVX2_INLINE const void *at(const void *p, int64_t stride, int c) { return (const uint8_t *)p + c * stride; }

/* Groups [first, first + groups) of a sub-block, scaled, onto the block's integer sums. shift: of the weights' offset,
 * with pairs: the activation sums of these groups; 0 without offset. */
MF_AVX2_INLINE void add_groups(int n, int first, int groups, const __m256i v[8][MF_PANELS], const __m256i *scale,
                               const int8_t *q, int shift, const int32_t *pairs, int64_t stride, tile_ints total) {
    tile_ints sum;
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
    MF_UNROLL for (int c = 0; c < n; c++) {
        if (shift) {
            const __m256i offset = mf_offset_pair(shift, *(const int32_t *)at(pairs, stride, c));
            MF_UNROLL for (int p = 0; p < 2; p++) sum[c][p] = _mm256_sub_epi16(sum[c][p], offset);
        }
        MF_UNROLL for (int p = 0; p < 2; p++) {
            total[c][p] = _mm256_add_epi32(total[c][p], _mm256_madd_epi16(scale[p], sum[c][p]));
            MF_KEEP(total[c][p]);
        }
    }
}

/* Minima times activation sums over a block. */
MF_AVX2_INLINE __m256i minima(const block_k *from, int p, const int32_t *pairs32) {
    __m256i total = _mm256_madd_epi16(from->minimum[0][p], _mm256_set1_epi32(pairs32[0]));
    MF_UNROLL for (int s = 1; s < SUBS; s++)
        total = _mm256_add_epi32(total, _mm256_madd_epi16(from->minimum[s][p], _mm256_set1_epi32(pairs32[s])));
    return total;
}

MF_AVX2_INLINE void finish(int type, int n, const block_k *from, int b, const mf_tile_input *in, tile_ints total,
                           mf_tile_sums *sums) {
    MF_UNROLL for (int c = 0; c < n; c++) {
        const __m256 d = _mm256_broadcast_ss((const float *)at(in->d, in->stride, c) + b);
        MF_UNROLL for (int p = 0; p < 2; p++) {
            __m256 acc = sums->acc[c][p];
            acc = _mm256_fmadd_ps(_mm256_mul_ps(from->d[p], d), _mm256_cvtepi32_ps(total[c][p]), acc);
            if (type != MF_Q6_K) {
                const int32_t *pairs32 = (const int32_t *)at(in->pairs32, in->stride, c) + SUBS * b;
                const __m256 low = _mm256_cvtepi32_ps(minima(from, p, pairs32));
                acc = _mm256_fnmadd_ps(_mm256_mul_ps(from->dmin[p], d), low, acc);
            }
            sums->acc[c][p] = acc;
        }
    }
}

MF_AVX2_INLINE void tile(int type, int n, const block_k *from, int blocks, const mf_tile_input *in, mf_tile_sums *sums) {
    mf_resume(n, in->is_first, sums->acc, sums->acc);
    for (int b = 0; b < blocks; b++, from++) {
        tile_ints total;
        mf_ask_for_next_pass(in, b);
        MF_UNROLL for (int c = 0; c < n; c++) MF_UNROLL for (int p = 0; p < 2; p++) total[c][p] = _mm256_setzero_si256();
        for (int s = 0; s < SUBS; s++) {
            const int8_t *q = in->q + MF_BLOCK_K * b + MF_BLOCK * s;
            const __m256i(*v)[MF_PANELS] = from->v[s];
            if (type == MF_Q4_K) {
                add_groups(n, 0, 8, v, from->scale[s], q, 0, NULL, in->stride, total);
            } else if (type == MF_Q5_K) {
                add_groups(n, 0, 4, v, from->scale[s], q, 0, NULL, in->stride, total);
                add_groups(n, 4, 4, v, from->scale[s], q, 0, NULL, in->stride, total);
            } else {
                const int32_t *pairs = in->pairs16 + 2 * (SUBS * b + s);
                add_groups(n, 0, 4, v, from->scale[2 * s], q, 5, pairs, in->stride, total);
                add_groups(n, 4, 4, v, from->scale[2 * s + 1], q, 5, pairs + 1, in->stride, total);
            }
        }
        finish(type, n, from, b, in, total, sums);
    }
}

#define TILE(name, type, n) \
    static MF_AVX2 void name##_tile##n(const void *from, int blocks, const mf_tile_input *in, mf_tile_sums *sums) { \
        tile(type, n, (const block_k *)from, blocks, in, sums); \
    }
#define TYPE(name, type) \
    static MF_AVX2 void name##_unpack(const uint8_t *quants, const uint8_t *scales, int blocks, int slot, void *to) { \
        unpack(type, quants, scales, blocks, slot, (block_k *)to); \
    } \
    TILE(name, type, 1) TILE(name, type, 2) TILE(name, type, 3) TILE(name, type, 4) \
    const mf_tile_kernels mf_tiles_##name = { \
        PASS, name##_unpack, {name##_tile1, name##_tile2, name##_tile3, name##_tile4}};

TYPE(q4_k, MF_Q4_K)
TYPE(q5_k, MF_Q5_K)
TYPE(q6_k, MF_Q6_K)

#endif
