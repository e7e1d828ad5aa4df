/* What the AVX-512 files share. Sixteen rows at a time: the words of two panels, one above the other. */
#ifndef MINFER_MATMUL_AVX512_H
#define MINFER_MATMUL_AVX512_H

#include "matmul_avx2.h"

#if MF_HAVE_AVX2

#define MF_AVX512_TARGET "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"
#define MF_AVX512 __attribute__((target(MF_AVX512_TARGET)))
#define MF_AVX512_INLINE static inline __attribute__((always_inline, target(MF_AVX512_TARGET)))

/* Columns that share one reading of the weights: 8 integer sums, 8 results and 8 minima fit 32 registers. */
enum { MF_WIDE_ROWS = 16, MF_WIDE_COLUMNS = 8 };

/* Bytes of a panel's block of the types with a scale per 32 weights. */
MF_AVX512_INLINE int mf_quant_bytes_32(int type) { return type == MF_Q8_0 ? 256 : mf_has_fifth_bit(type) ? 160 : 128; }
MF_AVX512_INLINE int mf_scale_bytes_32(int type) { return mf_has_minimum(type) ? 32 : 16; }
MF_AVX512_INLINE int mf_block_bytes_32(int type) { return mf_quant_bytes_32(type) + mf_scale_bytes_32(type); }

/* Two panels, of which the second may be the first again. */
typedef struct mf_panel_pair {
    const uint8_t *low, *high;
} mf_panel_pair;

MF_AVX512_INLINE mf_panel_pair mf_pair_of(const mf_span *span, int64_t panel) {
    const uint8_t *low = mf_panel(span->weight, panel);
    return (mf_panel_pair){low, panel + 1 < span->last ? low + span->weight->panel_bytes : low};
}

/* The pairs of a group of columns: a panel of the span's first half and its counterpart of the second. Two streams of
 * memory far apart are read faster than one (see MF_STREAMS). */
static inline int64_t mf_span_half(const mf_span *span) { return (span->last - span->first + 1) / 2; }

MF_AVX512_INLINE mf_panel_pair mf_far_pair_of(const mf_span *span, int64_t panel) {
    const int64_t far = panel + mf_span_half(span);
    return (mf_panel_pair){mf_panel(span->weight, panel), mf_panel(span->weight, far < span->last ? far : panel)};
}

/* What will soon be needed when a pair of panels is worked on `at` bytes from their starts. Where a half of the span
 * ends the thread's next span begins half a span on, if it follows this one. */
MF_AVX512_INLINE mf_panel_pair mf_far_ahead(const mf_span *span, int64_t panel, const mf_panel_pair *pair, int64_t at) {
    const int64_t half = mf_span_half(span) * span->weight->panel_bytes;
    const int64_t from_start = (panel - span->first) * span->weight->panel_bytes + at + MF_AHEAD;
    const uintptr_t ahead = (uintptr_t)(at + MF_AHEAD + (from_start < half ? 0 : half));
    return (mf_panel_pair){(const uint8_t *)((uintptr_t)pair->low + ahead), (const uint8_t *)((uintptr_t)pair->high + ahead)};
}

/* The second-level cache is near enough; the first one's fill buffers are too few for requests of this length. */
MF_AVX512_INLINE void mf_ask_far(const mf_panel_pair *ahead, int line) {
    _mm_prefetch((const char *)((uintptr_t)ahead->low + 64 * (uintptr_t)line), _MM_HINT_T1);
    _mm_prefetch((const char *)((uintptr_t)ahead->high + 64 * (uintptr_t)line), _MM_HINT_T1);
}

MF_AVX512_INLINE __m512i mf_wide(const mf_panel_pair *pair, int64_t at) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(mf_load(pair->low + at)), mf_load(pair->high + at), 1);
}

MF_AVX512_INLINE __m512 mf_wide_halves(const mf_panel_pair *pair, int64_t at) {
    const __m256i both = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(pair->low + at))),
        _mm_loadu_si128((const __m128i *)(pair->high + at)), 1);
    return _mm512_cvtph_ps(both);
}

/* The rows of a pair of panels that exist. */
MF_AVX512_INLINE __mmask16 mf_wide_rows(const mf_span *span, int64_t panel) {
    const int64_t left = span->weight->rows - panel * MF_PANEL_ROWS;
    const int64_t most = panel + 1 < span->last ? MF_WIDE_ROWS : MF_PANEL_ROWS;
    return (__mmask16)((1u << (left < most ? left : most)) - 1);
}

/* One column's results of a panel and its counterpart. */
MF_AVX512_INLINE void mf_far_emit(const mf_span *span, int64_t panel, int64_t column, __m512 result) {
    const int64_t far = panel + mf_span_half(span);
    mf_emit(span, column, panel, _mm512_castps512_ps256(result));
    if (far < span->last) mf_emit(span, column, far, _mm512_extractf32x8_ps(result, 1));
}

/* Four activations of a column, or a pair of sums, in every lane. */
MF_AVX512_INLINE __m512i mf_wide_word(const void *p) { return _mm512_set1_epi32((int32_t)mf_load32(p)); }

/* Planes of the columns of a group: bytes from column to column, and from a column's q to its planes. Those that a kind
 * of activation does not have are not used. */
typedef struct mf_wide_columns {
    const int8_t *q;
    int64_t stride, d, s, pairs, pairs16, pairs32;
} mf_wide_columns;

/* Entry of 4 bytes of a column's plane. */
MF_AVX512_INLINE const void *mf_wide_plane(const mf_wide_columns *x, int64_t plane, int c, int64_t entry) {
    return (const uint8_t *)x->q + c * x->stride + plane + 4 * entry;
}

/* A panel of the first half and its counterpart times n columns. */
typedef void (*mf_wide_pair)(int n, const mf_span *span, int64_t panel, const mf_wide_columns *x, int64_t column);

/* Of a type with a scale per 32 weights, and of a K type. */
mf_wide_pair mf_avx512_pair(int type);
mf_wide_pair mf_avx512_pair_k(int type);

/* All pairs of panels of the span times columns [first, last), in groups of up to eight. */
void mf_avx512_run(mf_wide_pair pair, const mf_span *span, const uint8_t *activations, int64_t first, int64_t last);

/* One column is bound by memory, and CPUs differ in how it is read fastest.
 *
 * MF_READ_ADJACENT, for Intel's: adjacent panels side by side, a block of each in turn, as several streams keep more banks
 * of the memory busy than one; each line is asked for when the same place of the group before is read. So the requests
 * pass over the ends of panels, groups and calls without a gap. Panels too long for that are asked for MF_AHEAD before.
 *
 * AMD's read one stream: a core of Zen 4 gets 34 GB/s of one, and 15 of four panels side by side. MF_READ_LINE asks
 * MF_AHEAD before, in the order of addresses; the scales at a panel's end are then in time if its quants are no longer.
 * MF_READ_PANEL is for longer panels and the K types, and asks for the same place of a panel to come, into the
 * second-level cache: 24 to 33 GB/s where requests into the first got 10 to 20. */
enum { MF_READ_ADJACENT, MF_READ_LINE, MF_READ_PANEL, MF_ADJACENT = 4, MF_ADJACENT_BYTES = 32 << 10 };

static inline int mf_reads_one_stream(void) { return __builtin_cpu_is("amd") != 0; }

/* Bytes from what is read to what is asked for. */
MF_AVX512_INLINE int64_t mf_ahead_of(int reading, const mf_weight *weight, int panels) {
    const int64_t group = panels * weight->panel_bytes;
    if (reading == MF_READ_PANEL) return (MF_AHEAD + group - 1) / group * group;
    return reading == MF_READ_ADJACENT && group <= MF_ADJACENT_BYTES ? group : MF_AHEAD;
}

MF_AVX512_INLINE void mf_ask(int reading, const uint8_t *p, int64_t ahead, int bytes) {
    for (int i = 0; i < bytes; i += 64) {
        const char *line = (const char *)((uintptr_t)p + (uintptr_t)(ahead + i));
        if (reading == MF_READ_PANEL) _mm_prefetch(line, _MM_HINT_T1);
        else _mm_prefetch(line, _MM_HINT_T0);
    }
}

/* Eight lanes of what mf_wide_word makes. */
MF_AVX512_INLINE __m256i mf_word(const void *p) { return _mm256_set1_epi32((int32_t)mf_load32(p)); }

/* One column of activations, number `column` of the results. */
void mf_avx512_gemv(const mf_span *span, const uint8_t *activation, int64_t column);
void mf_avx512_gemv_k(const mf_span *span, const uint8_t *activation, int64_t column);

/* Runs `call(n)` with n a constant. */
#define MF_FOR_COLUMNS(n, call) \
    switch (n) { \
    case 1: call(1); break; \
    case 2: call(2); break; \
    case 3: call(3); break; \
    case 4: call(4); break; \
    case 5: call(5); break; \
    case 6: call(6); break; \
    case 7: call(7); break; \
    default: call(8); break; \
    }

#endif
#endif
