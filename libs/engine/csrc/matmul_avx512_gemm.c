/* Up to eight columns at a time times the types with a scale per 32 weights, straight from the panels: a weight is
 * unpacked in a register and meets all the columns there. */
#include "matmul_avx512.h"

#if MF_HAVE_AVX2

/* Planes of the columns of a group. */
typedef struct columns {
    const int8_t *q;
    int64_t stride, d, s, pairs; /* bytes: from column to column, and from a column's q to its planes */
} columns;

MF_AVX512_INLINE const void *plane(const columns *x, int64_t offset, int c, int64_t block) {
    return (const uint8_t *)x->q + c * x->stride + offset + 4 * block;
}

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

MF_AVX512_INLINE void block(int type, int n, const mf_panel_pair *w, int64_t quants, int64_t scales, const columns *x,
                            int64_t b, __m512 acc[MF_WIDE_COLUMNS], __m512 minimum[MF_WIDE_COLUMNS]) {
    const __m512i minus = _mm512_set1_epi16((short)-offset_of(type));
    const __m512i high = mf_has_fifth_bit(type) ? mf_wide(w, quants + 128) : _mm512_setzero_si512();
    const int8_t *q = x->q + MF_BLOCK * b;
    __m512i dot[MF_WIDE_COLUMNS];
    MF_UNROLL for (int c = 0; c < n; c++) {
        dot[c] = _mm512_setzero_si512();
        if (offset_of(type)) dot[c] = _mm512_dpwssd_epi32(dot[c], minus, mf_wide_word(plane(x, x->pairs, c, b)));
    }
    MF_UNROLL for (int i = 0; i < 8; i++) {
        const int g = type == MF_Q8_0 ? i : i / 2 + i % 2 * 4; /* the two nibbles of a word one after the other */
        const __m512i v = group(type, g, mf_wide(w, quants + 32 * (type == MF_Q8_0 ? g : g % 4)), high);
        MF_UNROLL for (int c = 0; c < n; c++)
            dot[c] = _mm512_dpbusd_epi32(dot[c], v, mf_wide_word(q + c * x->stride + 4 * g));
    }
    const __m512 d = mf_wide_halves(w, scales);
    MF_UNROLL for (int c = 0; c < n; c++) {
        const __m512 dx = _mm512_set1_ps(*(const float *)plane(x, x->d, c, b));
        acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), _mm512_cvtepi32_ps(dot[c]), acc[c]);
    }
    if (!mf_has_minimum(type)) return;
    const __m512 m = mf_wide_halves(w, scales + 16);
    MF_UNROLL for (int c = 0; c < n; c++)
        minimum[c] = _mm512_fmadd_ps(m, _mm512_set1_ps(*(const float *)plane(x, x->s, c, b)), minimum[c]);
}

/* One pair of panels times n columns. */
MF_AVX512_INLINE void pair(int type, int n, const mf_span *span, int64_t panel, const columns *x, int64_t column) {
    const int quant_bytes = type == MF_Q8_0 ? 256 : mf_has_fifth_bit(type) ? 160 : 128;
    const int scale_bytes = mf_has_minimum(type) ? 32 : 16, block_bytes = quant_bytes + scale_bytes;
    const int64_t blocks = span->weight->k / MF_BLOCK, scales_at = blocks * quant_bytes;
    const mf_panel_pair w = mf_pair_of(span, panel);
    __m512 acc[MF_WIDE_COLUMNS], minimum[MF_WIDE_COLUMNS];
    MF_UNROLL for (int c = 0; c < n; c++) acc[c] = minimum[c] = _mm512_setzero_ps();
    for (int64_t b = 0; b < blocks; b++) {
        mf_prefetch(w.low + 2 * b * block_bytes, 2 * block_bytes);
        block(type, n, &w, b * quant_bytes, scales_at + b * scale_bytes, x, b, acc, minimum);
    }
    MF_UNROLL for (int c = 0; c < n; c++)
        mf_wide_emit(span, panel, column + c, mf_has_minimum(type) ? _mm512_add_ps(acc[c], minimum[c]) : acc[c]);
}

MF_AVX512_INLINE void gemm(int type, const mf_span *span, const uint8_t *activations, int64_t first, int64_t last) {
    const int64_t k = span->weight->k, stride = mf_activation_bytes(MF_ACTIVATION_Q8, k);
    const int64_t groups = (last - first + MF_WIDE_COLUMNS - 1) / MF_WIDE_COLUMNS;
    const mf_column one = mf_column_of(MF_ACTIVATION_Q8, k, activations);
    columns x = {one.q, stride, (const int8_t *)one.d - one.q, (const int8_t *)one.s - one.q,
                 (const int8_t *)one.pairs - one.q};
    for (int64_t p = span->first; p < span->last; p += 2)
        for (int64_t i = 0; i < groups; i++) {
            const int64_t column = first + (last - first) * i / groups, end = first + (last - first) * (i + 1) / groups;
            x.q = one.q + column * stride;
#define CALL(n) pair(type, n, span, p, &x, column)
            MF_FOR_COLUMNS(end - column, CALL)
#undef CALL
        }
}

MF_AVX512 void mf_avx512_gemm(const mf_span *span, const uint8_t *activations, int64_t first, int64_t last) {
    switch (span->weight->type) {
    case MF_Q4_0: gemm(MF_Q4_0, span, activations, first, last); break;
    case MF_Q4_1: gemm(MF_Q4_1, span, activations, first, last); break;
    case MF_Q5_0: gemm(MF_Q5_0, span, activations, first, last); break;
    case MF_Q5_1: gemm(MF_Q5_1, span, activations, first, last); break;
    default: gemm(MF_Q8_0, span, activations, first, last); break;
    }
}

#endif
