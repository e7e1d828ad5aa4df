/* What the AVX2 files share. Functions carry the target as an attribute: no compiler flag per file is needed, and the
 * binary still starts on a CPU without AVX2. */
#ifndef MINFER_MATMUL_AVX2_H
#define MINFER_MATMUL_AVX2_H

#include "matmul_layout.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define MF_HAVE_AVX2 1

#include <immintrin.h>

#define MF_AVX2 __attribute__((target("avx2,fma,f16c")))
#define MF_AVX2_INLINE static inline __attribute__((always_inline, target("avx2,fma,f16c")))
#define MF_UNROLL _Pragma("GCC unroll 16")

/* Keeps the compiler from reordering a chain of integer additions into a tree: it would need more registers than
 * there are, and a third of the speed is lost to spills. */
#define MF_KEEP(x) __asm__("" : "+x"(x))

/* Keeps the compiler from sharing loads through this pointer with an earlier use: it would spill what it shares. */
#define MF_HIDE(p) __asm__("" : "+r"(p))

/* Panels [first, last) times one column. */
typedef struct mf_span {
    const mf_weight *weight;
    const mf_output *out;
    int64_t first, last;
} mf_span;

/* Many columns: two panels are unpacked into a scratch that stays in the first-level cache, then every tile of 2
 * panels by 1 to 4 columns runs over it with its sums in registers. The sums wait in memory between passes over k, in
 * block order, so neither tiles nor passes change a bit. */
enum { MF_TILE = 4, MF_PANELS = 2, MF_PASS_BYTES = 24 * 1024 };

/* A tile's activations at the first block of the pass: pointers of its first column, columns stride bytes apart. */
typedef struct mf_tile_input {
    const int8_t *q; /* float: the values */
    const float *d, *s;
    const int32_t *pairs; /* Q8 */
    const int32_t *pairs16, *pairs32;
    int64_t stride;
    const int32_t *wide; /* Q8_0: the activations in pairs of 16 bits, columns wide_stride entries apart */
    int64_t wide_stride;
    int is_first; /* pass over k: the sums start at zero */
    /* Weights of the next pass, in lines of 64 bytes that a block of this one asks for from each of both panels. */
    uintptr_t ahead[MF_PANELS]; /* beyond the last panel too: asking is never a fault */
    int lines_ahead;
} mf_tile_input;

typedef struct mf_tile_sums {
    __m256 acc[MF_TILE][MF_PANELS], minimum[MF_TILE][MF_PANELS];
} mf_tile_sums;

/* What the driver needs to know of a type. Blocks: of the activation's scale, or single weights of float types. */
typedef struct mf_tile_kernels {
    int pass_blocks;
    /* Blocks [begin, begin + blocks) of panel `quants, scales` into slot 0 or 1 of the scratch. */
    void (*unpack)(const uint8_t *quants, const uint8_t *scales, int blocks, int slot, void *scratch);
    void (*tile[MF_TILE])(const void *scratch, int blocks, const mf_tile_input *input, mf_tile_sums *sums);
} mf_tile_kernels;

extern const mf_tile_kernels mf_tiles_q4_0, mf_tiles_q4_1, mf_tiles_q5_0, mf_tiles_q5_1, mf_tiles_q8_0;
extern const mf_tile_kernels mf_tiles_q4_k, mf_tiles_q5_k, mf_tiles_q6_k, mf_tiles_f32, mf_tiles_f16, mf_tiles_bf16;

void mf_avx2_quantize(int kind, int64_t k, const float *x, void *column);
/* q[k] as k / 2 pairs of 16 bits for Q8_0: of each group of four, (0, 2) then (1, 3). */
void mf_avx2_widen(const int8_t *q, int64_t k, int32_t *wide);
void mf_avx2_gemm(const mf_span *span, const uint8_t *activations, int64_t first_column, int64_t last_column);
void mf_avx2_gemv(const mf_span *span, const uint8_t *activation, int64_t column);
void mf_avx2_gemv_k(const mf_span *span, const uint8_t *activation, int64_t column);
void mf_avx2_gemv_float(const mf_span *span, const uint8_t *activation, int64_t column);

/* Eight half floats to float. */
MF_AVX2_INLINE __m256 mf_halves(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

MF_AVX2_INLINE __m256i mf_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

/* One column is bound by memory. Two streams far apart, each asked for 8 KiB ahead, read 20 to 40 % faster than one or
 * than the hardware's own prefetching (panels of a few KiB are too short for it), and within 10 to 20 % of four plain
 * reading loops. Requests run on linearly into the next panel, and beyond the last: asking is never a fault. */
enum { MF_STREAMS = 2, MF_AHEAD = 8192 };

MF_AVX2_INLINE void mf_prefetch(const uint8_t *p, int bytes) {
    for (int i = 0; i < bytes; i += 64) _mm_prefetch((const char *)((uintptr_t)p + MF_AHEAD + (uintptr_t)i), _MM_HINT_T0);
}

MF_AVX2_INLINE void mf_ask_for_next_pass(const mf_tile_input *in, int block) {
    for (int i = in->lines_ahead * block; i < in->lines_ahead * (block + 1); i++)
        MF_UNROLL for (int p = 0; p < MF_PANELS; p++) _mm_prefetch((const char *)(in->ahead[p] + 64 * (uintptr_t)i), _MM_HINT_T0);
}

/* Four activations in every lane. Written as one instruction: the compiler would load the word into a general register
 * to share it, spill it, and move it back through two more. */
MF_AVX2_INLINE __m256i mf_words(const int8_t *q) {
    __m256i words;
    __asm__("vpbroadcastd %1, %0" : "=x"(words) : "m"(*(const char(*)[4])q));
    return words;
}

typedef __m256 mf_tile_acc[MF_TILE][MF_PANELS];

/* The sums of the passes before this one. */
MF_AVX2_INLINE void mf_resume(int n, int is_first, mf_tile_acc from, mf_tile_acc acc) {
    if (is_first)
        MF_UNROLL for (int c = 0; c < n; c++) MF_UNROLL for (int p = 0; p < MF_PANELS; p++) acc[c][p] = _mm256_setzero_ps();
    else
        MF_UNROLL for (int c = 0; c < n; c++) MF_UNROLL for (int p = 0; p < MF_PANELS; p++) acc[c][p] = from[c][p];
}

MF_AVX2_INLINE void mf_emit(const mf_span *span, int64_t column, int64_t panel, __m256 result) {
    const int64_t row = panel * MF_PANEL_ROWS;
    const mf_output *out = span->out;
    if (row + MF_PANEL_ROWS <= span->weight->rows) {
        float *data = out->data + column * out->stride + row;
        if (out->bias) result = _mm256_add_ps(result, _mm256_loadu_ps(out->bias + row));
        if (out->accumulate) result = _mm256_add_ps(_mm256_loadu_ps(data), result);
        _mm256_storeu_ps(data, result);
    } else {
        float lanes[MF_PANEL_ROWS];
        _mm256_storeu_ps(lanes, result);
        mf_store(out, column, row, span->weight->rows, lanes);
    }
}

/* Runs `call(type)` with the type a constant: one with a scale per 32 weights, and a K type. */
#define MF_FOR_TYPE_32(type, call) \
    switch (type) { \
    case MF_Q4_0: call(MF_Q4_0); break; \
    case MF_Q4_1: call(MF_Q4_1); break; \
    case MF_Q5_0: call(MF_Q5_0); break; \
    case MF_Q5_1: call(MF_Q5_1); break; \
    default: call(MF_Q8_0); break; \
    }
#define MF_FOR_TYPE_K(type, call) \
    switch (type) { \
    case MF_Q4_K: call(MF_Q4_K); break; \
    case MF_Q5_K: call(MF_Q5_K); break; \
    default: call(MF_Q6_K); break; \
    }

MF_AVX2_INLINE int mf_has_minimum(int type) { return type == MF_Q4_1 || type == MF_Q5_1; }
MF_AVX2_INLINE int mf_has_fifth_bit(int type) { return type == MF_Q5_0 || type == MF_Q5_1; }
MF_AVX2_INLINE int mf_offset_shift(int type) { return type == MF_Q4_0 ? 3 : type == MF_Q5_0 ? 4 : 0; }

/* The offset of the unsigned weights times a pair of activation sums, in every lane. */
MF_AVX2_INLINE __m256i mf_offset_pair(int shift, int32_t pair) {
    return _mm256_slli_epi16(_mm256_set1_epi32(pair), shift);
}

/* The even or the odd 16 bits of each lane, in both halves. */
MF_AVX2_INLINE __m256i mf_both_even(__m256i x) { return _mm256_blend_epi16(x, _mm256_slli_epi32(x, 16), 0xaa); }
MF_AVX2_INLINE __m256i mf_both_odd(__m256i x) { return _mm256_blend_epi16(x, _mm256_srli_epi32(x, 16), 0x55); }

/* Sixteen signed bytes to 16 bits each: the scales of a pair of sub-blocks. */
MF_AVX2_INLINE __m256i mf_widen(const uint8_t *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)); }

/* The weights of one block of 32, unsigned: v[g] holds weights 4g..4g+3 of every row. Offsets stay in. */
MF_AVX2_INLINE void mf_unpack_32(int type, const uint8_t *quants, __m256i v[8]) {
    const __m256i low = _mm256_set1_epi8(15);
    MF_UNROLL for (int j = 0; j < 4; j++) {
        const __m256i x = mf_load(quants + 32 * j);
        v[j] = _mm256_and_si256(x, low);
        v[j + 4] = _mm256_and_si256(_mm256_srli_epi16(x, 4), low);
    }
    if (mf_has_fifth_bit(type)) {
        const __m256i bit = _mm256_set1_epi8(16), high = mf_load(quants + 128);
        MF_UNROLL for (int g = 0; g < 8; g++) {
            const __m256i at = g < 4 ? _mm256_slli_epi16(high, 4 - g) : _mm256_srli_epi16(high, g - 4);
            v[g] = _mm256_or_si256(v[g], _mm256_and_si256(at, bit));
        }
    }
}

/* vpmaddubsw saturates the sum of its two products: 2 * 63 * 127 is far from that, and so is 2 * 128 * 127 = 32512
 * with the magnitudes of Q8_0 (activations never reach -128). Sums of several wrap, so they may pass any value on the
 * way to one that fits 16 bits: 8 sums with weights to 15 (30480), 4 to 31 (31496); and once the offset times the pair
 * of activation sums is taken off, 8 with weights of -16 to 15 and 4 with -32 to 31 (32512 both). */
#define MF_PAIRS _mm256_maddubs_epi16

#else

typedef int mf_avx2_is_absent; /* a file of C holds something */

#endif
#endif
