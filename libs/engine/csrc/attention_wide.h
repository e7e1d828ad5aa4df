/* One chunk of attention for a tile of query rows, sixteen lanes at a time: a lane does what it does in
 * attention_template.h, so the bits are the same. Included after attention_groups.h, which has the whole groups of rows;
 * the rest, and the few rows of decoding, read the cache as it is. Included with KV_ELEMENT, KV_LOAD and KV_NAME(x)
 * set, once for f16 and once for f32. */

/* Blocks lie anywhere, so the hardware does not see the next one coming: it is asked for while this one is worked on. */
static ALWAYS_INLINE void KV_NAME(ask_for)(const uint8_t *block, int64_t offset, int n) {
    for (int i = 0; i < n; i += 64 / (int)sizeof(KV_ELEMENT))
        _mm_prefetch((const char *)((const KV_ELEMENT *)block + offset + i), _MM_HINT_T0);
}

/* Scores of `rows` rows against `n` blocks of 16 positions. */
static ALWAYS_INLINE void KV_NAME(score_blocks)(const int rows, const int n, int64_t dk, const float *q,
                                                const KV_ELEMENT *const *keys, float *scores) {
    v16 sum[6][4];
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < n; b++) sum[r][b] = v16_set(0);
    }
    for (int64_t d = 0; d < dk; d++) {
        v16 key[4];
        UNROLLED for (int b = 0; b < n; b++) key[b] = KV_LOAD(keys[b] + 16 * d);
        UNROLLED for (int r = 0; r < rows; r++) {
            const v16 factor = v16_set(q[d * MF_QUERY_ROWS + r]);
            UNROLLED for (int b = 0; b < n; b++) sum[r][b] = v16_fma(factor, key[b], sum[r][b]);
        }
    }
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < n; b++) v16_store(scores + r * MF_SCORE_STRIDE + 16 * b, sum[r][b]);
    }
}

/* values[r][0..16 n) += sum over positions [first, end) of p[r][position] * v[position][0..16 n), ascending. */
static ALWAYS_INLINE void KV_NAME(weigh_slices)(const int rows, const int n, const mf_attend_chunk *c, int64_t slice,
                                                int row, int first, int end) {
    const int64_t dv = c->kind->dv_padded, offset = 16 * (int64_t)c->kind->dk + 256 * slice;
    const float *weights = scores_of(c, row);
    float *values = c->values + row * dv + 16 * slice;
    v16 sum[6][4];
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < n; b++) sum[r][b] = v16_load(values + r * dv + 16 * b);
    }
    while (first < end) {
        const int block = first / 16, stop = 16 * block + 16 < end ? 16 * block + 16 : end;
        const KV_ELEMENT *v = (const KV_ELEMENT *)c->blocks[block] + offset + 16 * (first % 16);
        if (stop < end) KV_NAME(ask_for)(c->blocks[block + 1], offset, 256 * n);
        for (const float *p = weights + first, *last = weights + stop; p < last; p++, v += 16) {
            v16 value[4];
            UNROLLED for (int b = 0; b < n; b++) value[b] = KV_LOAD(v + 256 * b);
            UNROLLED for (int r = 0; r < rows; r++) {
                const v16 factor = v16_set(p[r * MF_SCORE_STRIDE]);
                UNROLLED for (int b = 0; b < n; b++) sum[r][b] = v16_fma(factor, value[b], sum[r][b]);
            }
        }
        first = stop;
    }
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < n; b++) v16_store(values + r * dv + 16 * b, sum[r][b]);
    }
}

/* What a step is made of: rows times blocks of positions, or slices of features, at most 24 sums. */
#define FOR_ROWS(rows, n, call) \
    switch (10 * (rows) + (n)) { \
        case 64: call(6, 4); break; \
        case 61: call(6, 1); break; \
        case 44: call(4, 4); break; \
        case 41: call(4, 1); break; \
        case 34: call(3, 4); break; \
        case 31: call(3, 1); break; \
        case 24: call(2, 4); break; \
        case 21: call(2, 1); break; \
        case 14: call(1, 4); break; \
        default: call(1, 1); break; \
    }

#ifndef MINFER_ATTENTION_STEPS
#define MINFER_ATTENTION_STEPS
static int row_step(int left) { return left >= 6 ? 6 : left >= 4 ? 4 : left; }
static int64_t width_of_step(int64_t left) { return left >= 4 ? 4 : 1; }
#endif

static void KV_NAME(score_rows)(int rows, const mf_attend_chunk *c, int row, int first_block, int end_block) {
    const int64_t dk = c->kind->dk;
    const float *q = c->q + mf_query_of_row(dk, row);
    for (int b = first_block, n; b < end_block; b += n) {
        n = (int)width_of_step(end_block - b);
        const KV_ELEMENT *keys[4] = {0};
        for (int i = 0; i < n; i++) keys[i] = (const KV_ELEMENT *)c->blocks[b + i];
        if (b + n < end_block) KV_NAME(ask_for)(c->blocks[b + n], 0, 16 * (int)dk);
#define CALL(rows, n) KV_NAME(score_blocks)(rows, n, dk, q, keys, scores_of(c, row) + 16 * b)
        FOR_ROWS(rows, n, CALL)
#undef CALL
    }
}

static void KV_NAME(weigh_rows)(int rows, const mf_attend_chunk *c, int row, int first, int end) {
    const int64_t slices = c->kind->dv_padded / 16;
    for (int64_t slice = 0, n; slice < slices && first < end; slice += n) {
        n = width_of_step(slices - slice);
#define CALL(rows, n) KV_NAME(weigh_slices)(rows, n, c, slice, row, first, end)
        FOR_ROWS(rows, n, CALL)
#undef CALL
    }
}

#undef FOR_ROWS

/* Rows see different positions only at the edges: those are done row by row, so that nothing masked is touched. */
static void KV_NAME(weigh_few)(int rows, const mf_attend_chunk *c, int row) {
    int first = 0, end = MF_CHUNK_POSITIONS;
    for (int r = row; r < row + rows; r++) {
        if (c->first[r] > first) first = c->first[r];
        if (c->last[r] < end) end = c->last[r];
    }
    if (first >= end) {
        for (int r = row; r < row + rows; r++) KV_NAME(weigh_rows)(1, c, r, c->first[r], c->last[r]);
        return;
    }
    for (int r = row; r < row + rows; r++) KV_NAME(weigh_rows)(1, c, r, c->first[r], first);
    KV_NAME(weigh_rows)(rows, c, row, first, end);
    for (int r = row; r < row + rows; r++) KV_NAME(weigh_rows)(1, c, r, end, c->last[r]);
}

static ALWAYS_INLINE void KV_NAME(to_floats)(const KV_ELEMENT *from, int64_t n, float *to) {
    BY_FOUR for (int64_t i = 0; i < n; i += 16) v16_store(to + i, KV_LOAD(from + i));
}

/* The first `n_rows` rows, which are whole groups, over the blocks [block, end_block). */
static void KV_NAME(attend_groups)(const mf_attend_chunk *c, int n_rows, int block, int end_block) {
    const int64_t dk = c->kind->dk, dv = c->kind->dv_padded, bytes = 16 * (dk + dv) * (int64_t)sizeof(KV_ELEMENT);
    float *keys = c->room, *values = keys + MF_CHUNK_POSITIONS * dk;
    for (int b = block; b < end_block; b++) {
        const KV_ELEMENT *from = (const KV_ELEMENT *)c->blocks[b];
        if (b + 1 < end_block) KV_NAME(ask_for)(c->blocks[b + 1], 0, (int)(16 * (dk + dv)));
        KV_NAME(to_floats)(from, 16 * dk, keys + b * 16 * dk);
        from += 16 * dk;
        for (int64_t slice = 0; slice < dv / 16; slice++, from += 256) {
            KV_NAME(to_floats)(from, 256, values + 16 * (slice * MF_CHUNK_POSITIONS + 16 * b));
        }
    }
    for (int row = 0; row < n_rows; row += GROUP) {
        ask_for_share(c, bytes, row);
        attend_group(c, row, keys, values);
    }
}

static void KV_NAME(attend)(const mf_attend_chunk *c) {
    const int many = c->n_rows / GROUP * GROUP;
    int begin, end;
    clear_values(c, many, c->n_rows - many);
    if (!find_seen(c, &begin, &end)) return;
    const int block = begin / 16, end_block = (end + 15) / 16;
    if (many) KV_NAME(attend_groups)(c, many, block, end_block);
    for (int row = many, rows; row < c->n_rows; row += rows) {
        rows = row_step(c->n_rows - row);
        KV_NAME(score_rows)(rows, c, row, block, end_block);
    }
    softmax_rows(c, many, c->n_rows - many);
    for (int row = many, rows; row < c->n_rows; row += rows) {
        rows = row_step(c->n_rows - row);
        KV_NAME(weigh_few)(rows, c, row);
    }
}
