/* Up to eight columns at a time times the K types. */
#include "matmul_avx512.h"

#if MF_HAVE_AVX2

/* Scales of sub-blocks 2p and 2p + 1 of every row, 16 bits each. */
MF_AVX512_INLINE __m512i scale_pair(const mf_panel_pair *w, int64_t at) {
    const __m256i bytes = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(w->low + at))),
        _mm_loadu_si128((const __m128i *)(w->high + at)), 1);
    return _mm512_cvtepi8_epi16(bytes);
}

/* The even or the odd of each pair, as 32 bits or in both 16-bit halves. */
MF_AVX512_INLINE __m512i even32(__m512i x) { return _mm512_srai_epi32(_mm512_slli_epi32(x, 16), 16); }
MF_AVX512_INLINE __m512i odd32(__m512i x) { return _mm512_srai_epi32(x, 16); }
MF_AVX512_INLINE __m512i both_even(__m512i x) { return _mm512_mask_blend_epi16(0xaaaaaaaau, x, _mm512_slli_epi32(x, 16)); }
MF_AVX512_INLINE __m512i both_odd(__m512i x) { return _mm512_mask_blend_epi16(0x55555555u, x, _mm512_srli_epi32(x, 16)); }

/* How the weights of a sub-block lie among the others of its block: counts of 16-bit shifts are the same in all lanes. */
typedef struct {
    __m512i down;                    /* to the right: which nibble */
    __m512i high_up, high_down;      /* its further bits to the left, then to the right */
    int64_t quants, high;            /* where they begin */
} place;

MF_AVX512_INLINE place place_of(int type, int64_t quants, int s) {
    const int part = s % 4, bits = type == MF_Q6_K ? 2 * part : s; /* before the further bits of its own */
    place at;
    at.down = _mm512_set1_epi16((short)(type == MF_Q6_K ? part / 2 * 4 : s % 2 * 4));
    at.high_up = _mm512_set1_epi16((short)(bits < 4 ? 4 - bits : 0));
    at.high_down = _mm512_set1_epi16((short)(bits < 4 ? 0 : bits - 4));
    at.quants = quants + (type == MF_Q6_K ? s / 4 * 512 + part % 2 * 256 : s / 2 * 256);
    at.high = quants + 1024 + (type == MF_Q6_K ? s / 4 * 256 : 0);
    return at;
}

/* Weights 4g to 4g + 3. */
MF_AVX512_INLINE __m512i group(int type, const mf_panel_pair *w, const place *at, int g) {
    const __m512i x = _mm512_srlv_epi16(mf_wide(w, at->quants + 32 * g), at->down);
    const __m512i v = _mm512_and_si512(x, _mm512_set1_epi8(15));
    if (type == MF_Q4_K) return v;
    const __m512i high = mf_wide(w, at->high + 32 * g);
    const __m512i moved = _mm512_srlv_epi16(_mm512_sllv_epi16(high, at->high_up), at->high_down);
    return _mm512_ternarylogic_epi32(v, moved, _mm512_set1_epi8(type == MF_Q6_K ? 48 : 16), 0xf8); /* v | moved & … */
}

/* Groups [first, first + groups) of sub-block s, scaled, onto the block's sums. */
MF_AVX512_INLINE void add_groups(int type, int n, const mf_panel_pair *w, const place *at, int s, int first, int groups,
                                 __m512i scale, const mf_wide_columns *x, int64_t b, __m512i total[MF_WIDE_COLUMNS]) {
    const int8_t *q = x->q + MF_BLOCK_K * b + MF_BLOCK * s;
    __m512i dot[MF_WIDE_COLUMNS];
    MF_UNROLL for (int c = 0; c < n; c++) {
        dot[c] = _mm512_setzero_si512();
        if (type == MF_Q6_K)
            dot[c] = _mm512_dpwssd_epi32(dot[c], _mm512_set1_epi16(-32),
                                         mf_wide_word(mf_wide_plane(x, x->pairs16, c, 16 * b + 2 * s + first / 4)));
    }
    MF_UNROLL for (int g = first; g < first + groups; g++) {
        const __m512i v = group(type, w, at, g);
        MF_UNROLL for (int c = 0; c < n; c++)
            dot[c] = _mm512_dpbusd_epi32(dot[c], v, mf_wide_word(q + c * x->stride + 4 * g));
    }
    MF_UNROLL for (int c = 0; c < n; c++) total[c] = _mm512_add_epi32(total[c], _mm512_mullo_epi32(dot[c], scale));
}

/* d times the block's sums. */
MF_AVX512_INLINE void add_scaled(int n, __m512 d, const __m512i total[MF_WIDE_COLUMNS], const mf_wide_columns *x, int64_t b,
                                 __m512 acc[MF_WIDE_COLUMNS]) {
    MF_UNROLL for (int c = 0; c < n; c++) {
        const __m512 dx = _mm512_set1_ps(*(const float *)mf_wide_plane(x, x->d, c, b));
        acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(d, dx), _mm512_cvtepi32_ps(total[c]), acc[c]);
    }
}

MF_AVX512_INLINE void take_minima(int n, const mf_panel_pair *w, int64_t scales, const mf_wide_columns *x, int64_t b,
                                  __m512 acc[MF_WIDE_COLUMNS]) {
    __m512i total[MF_WIDE_COLUMNS];
    MF_UNROLL for (int c = 0; c < n; c++) total[c] = _mm512_setzero_si512();
    MF_UNROLL for (int p = 0; p < MF_PAIRS_K; p++) {
        const __m512i both = scale_pair(w, scales + MF_K_MIN + 16 * p);
        const __m512i even = both_even(both), odd = both_odd(both);
        MF_UNROLL for (int c = 0; c < n; c++) {
            const int32_t *pairs = (const int32_t *)mf_wide_plane(x, x->pairs32, c, 8 * b + 2 * p);
            total[c] = _mm512_dpwssd_epi32(total[c], even, _mm512_set1_epi32(pairs[0]));
            total[c] = _mm512_dpwssd_epi32(total[c], odd, _mm512_set1_epi32(pairs[1]));
        }
    }
    const __m512 dmin = mf_wide_halves(w, scales + MF_K_DMIN);
    MF_UNROLL for (int c = 0; c < n; c++) {
        const __m512 dx = _mm512_set1_ps(*(const float *)mf_wide_plane(x, x->d, c, b));
        acc[c] = _mm512_fnmadd_ps(_mm512_mul_ps(dmin, dx), _mm512_cvtepi32_ps(total[c]), acc[c]);
    }
}

/* One pair of panels times n columns. */
MF_AVX512_INLINE void pair(int type, int n, const mf_span *span, int64_t panel, const mf_wide_columns *x, int64_t column) {
    const int quant_bytes = type == MF_Q4_K ? 1024 : type == MF_Q5_K ? 1280 : 1536;
    const int scale_bytes = type == MF_Q6_K ? MF_Q6K_SCALE_BYTES : MF_K_SCALE_BYTES;
    const int part = (quant_bytes + scale_bytes) / 8;
    const int64_t blocks = span->weight->k / MF_BLOCK_K;
    const mf_panel_pair w = mf_far_pair_of(span, panel);
    __m512 acc[MF_WIDE_COLUMNS];
    MF_UNROLL for (int c = 0; c < n; c++) acc[c] = _mm512_setzero_ps();
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t quants = b * quant_bytes, scales = blocks * quant_bytes + b * scale_bytes;
        __m512i total[MF_WIDE_COLUMNS];
        MF_UNROLL for (int c = 0; c < n; c++) total[c] = _mm512_setzero_si512();
        for (int p = 0; p < 8; p++) { /* not unrolled: gcc then keeps hundreds of addresses, at half the speed */
            const place at = place_of(type, quants, p);
            const mf_panel_pair ahead = mf_far_ahead(span, panel, &w, (8 * b + p) * part);
            for (int line = 0; 64 * line < part; line++) mf_ask_far(&ahead, line);
            if (type == MF_Q6_K) {
                const __m512i scale = scale_pair(&w, scales + MF_Q6K_SCALE + 16 * p);
                add_groups(type, n, &w, &at, p, 0, 4, even32(scale), x, b, total);
                add_groups(type, n, &w, &at, p, 4, 4, odd32(scale), x, b, total);
            } else {
                const __m512i scale = scale_pair(&w, scales + MF_K_SCALE + 16 * (p / 2));
                add_groups(type, n, &w, &at, p, 0, 8, p % 2 ? odd32(scale) : even32(scale), x, b, total);
            }
        }
        add_scaled(n, mf_wide_halves(&w, scales), total, x, b, acc);
        if (type != MF_Q6_K) take_minima(n, &w, scales, x, b, acc);
    }
    MF_UNROLL for (int c = 0; c < n; c++) mf_far_emit(span, panel, column + c, acc[c]);
}

#define PAIR(name) \
    static MF_AVX512 void name(int n, const mf_span *span, int64_t panel, const mf_wide_columns *x, int64_t column) { \
        MF_FOR_COLUMNS(n, CALL) \
    }

#define CALL(n) pair(MF_Q4_K, n, span, panel, x, column)
PAIR(q4_k)
#undef CALL
#define CALL(n) pair(MF_Q5_K, n, span, panel, x, column)
PAIR(q5_k)
#undef CALL
#define CALL(n) pair(MF_Q6_K, n, span, panel, x, column)
PAIR(q6_k)
#undef CALL

mf_wide_pair mf_avx512_pair_k(int type) {
    switch (type) {
    case MF_Q4_K: return q4_k;
    case MF_Q5_K: return q5_k;
    default: return q6_k;
    }
}

#endif
