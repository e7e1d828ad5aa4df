/* Up to eight columns at a time times the types with a scale per 32 weights, straight from the panels: a weight is
 * unpacked in a register and meets all the columns there. */
#include "matmul_avx512.h"

#if MF_HAVE_AVX2

/* What is taken off the unsigned weights. */
MF_AVX512_INLINE int offset_of(int type) { return type == MF_Q8_0 ? 128 : type == MF_Q5_0 ? 16 : type == MF_Q4_0 ? 8 : 0; }

/* Weights 4g to 4g + 3 of every row. x: the bytes that hold them, high: a block's fifth bits. */
MF_AVX512_INLINE __m512i group(int type, int g, __m512i x, __m512i high) {
    if (type == MF_Q8_0) return _mm512_xor_si512(x, _mm512_set1_epi8((char)0x80));
    const __m512i v = _mm512_and_si512(g < 4 ? x : _mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
    if (!mf_has_fifth_bit(type)) return v;
    const __m512i at = g < 4 ? _mm512_slli_epi16(high, 4 - g) : _mm512_srli_epi16(high, g - 4);
    return _mm512_ternarylogic_epi32(v, at, _mm512_set1_epi8(16), 0xf8); /* v | at & 16 */
}

/* sum + the products of weights and four activations of a column. By name: gcc 12 does not spread the word on the way. */
MF_AVX512_INLINE __m512i spread_dot(__m512i sum, __m512i weights, const void *word) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(weights), "m"(*(const int32_t(*)[1])word));
    return sum;
}

/* Block b of a pair of panels. One of the lines that are asked for goes with each group of weights. */
MF_AVX512_INLINE void block(int type, int n, const mf_panel_pair *w, const mf_panel_pair *ahead, int64_t scales_at,
                            const mf_wide_columns *x, int64_t b, __m512 acc[MF_WIDE_COLUMNS],
                            __m512 minimum[MF_WIDE_COLUMNS]) {
    const int64_t quants = b * mf_quant_bytes_32(type), scales = scales_at + b * mf_scale_bytes_32(type);
    const __m512i minus = _mm512_set1_epi16((short)-offset_of(type));
    const __m512i high = mf_has_fifth_bit(type) ? mf_wide(w, quants + 128) : _mm512_setzero_si512();
    const int8_t *q = x->q + MF_BLOCK * b;
    __m512i dot[MF_WIDE_COLUMNS];
    MF_UNROLL for (int c = 0; c < n; c++) {
        dot[c] = _mm512_setzero_si512();
        if (offset_of(type)) dot[c] = _mm512_dpwssd_epi32(dot[c], minus, mf_wide_word(mf_wide_plane(x, x->pairs, c, b)));
    }
    MF_UNROLL for (int i = 0; i < 8; i++) {
        if (64 * i < mf_block_bytes_32(type)) mf_ask_far(ahead, i);
        const int g = type == MF_Q8_0 ? i : i / 2 + i % 2 * 4; /* the two nibbles of a word one after the other */
        const __m512i v = group(type, g, mf_wide(w, quants + 32 * (type == MF_Q8_0 ? g : g % 4)), high);
        MF_UNROLL for (int c = 0; c < n; c++)
            dot[c] = spread_dot(dot[c], v, q + c * x->stride + 4 * g);
    }
    const __m512 d = mf_wide_halves(w, scales);
    MF_UNROLL for (int c = 0; c < n; c++) {
        const __m512 dx = _mm512_set1_ps(*(const float *)mf_wide_plane(x, x->d, c, b));
        acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), _mm512_cvtepi32_ps(dot[c]), acc[c]);
    }
    if (!mf_has_minimum(type)) return;
    const __m512 m = mf_wide_halves(w, scales + 16);
    MF_UNROLL for (int c = 0; c < n; c++)
        minimum[c] = _mm512_fmadd_ps(m, _mm512_set1_ps(*(const float *)mf_wide_plane(x, x->s, c, b)), minimum[c]);
}

/* One pair of panels times n columns. */
MF_AVX512_INLINE void pair(int type, int n, const mf_span *span, int64_t panel, const mf_wide_columns *x, int64_t column) {
    const int64_t blocks = span->weight->k / MF_BLOCK, scales_at = blocks * mf_quant_bytes_32(type);
    const mf_panel_pair w = mf_far_pair_of(span, panel);
    __m512 acc[MF_WIDE_COLUMNS], minimum[MF_WIDE_COLUMNS];
    MF_UNROLL for (int c = 0; c < n; c++) acc[c] = minimum[c] = _mm512_setzero_ps();
    for (int64_t b = 0; b < blocks; b++) {
        const mf_panel_pair ahead = mf_far_ahead(span, panel, &w, b * mf_block_bytes_32(type));
        block(type, n, &w, &ahead, scales_at, x, b, acc, minimum);
    }
    MF_UNROLL for (int c = 0; c < n; c++)
        mf_far_emit(span, panel, column + c, mf_has_minimum(type) ? _mm512_add_ps(acc[c], minimum[c]) : acc[c]);
}

#define PAIR(name) \
    static MF_AVX512 void name(int n, const mf_span *span, int64_t panel, const mf_wide_columns *x, int64_t column) { \
        MF_FOR_COLUMNS(n, CALL) \
    }

#define CALL(n) pair(MF_Q4_0, n, span, panel, x, column)
PAIR(q4_0)
#undef CALL
#define CALL(n) pair(MF_Q4_1, n, span, panel, x, column)
PAIR(q4_1)
#undef CALL
#define CALL(n) pair(MF_Q5_0, n, span, panel, x, column)
PAIR(q5_0)
#undef CALL
#define CALL(n) pair(MF_Q5_1, n, span, panel, x, column)
PAIR(q5_1)
#undef CALL
#define CALL(n) pair(MF_Q8_0, n, span, panel, x, column)
PAIR(q8_0)
#undef CALL

mf_wide_pair mf_avx512_pair(int type) {
    switch (type) {
    case MF_Q4_0: return q4_0;
    case MF_Q4_1: return q4_1;
    case MF_Q5_0: return q5_0;
    case MF_Q5_1: return q5_1;
    default: return q8_0;
    }
}

#endif
