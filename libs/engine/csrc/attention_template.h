/* One chunk of attention for a tile of query rows. Included with KV_ELEMENT, KV_LOAD and KV_NAME(x) set,
 * once for f16 and once for f32. Scores: lanes are positions. Values: lanes are features. Neither is ever
 * summed across lanes, and a row's arithmetic does not depend on the other rows of its tile. */

/* Scores of `rows` rows against `n` blocks of 16 positions. */
static ALWAYS_INLINE void KV_NAME(score_blocks)(const int rows, const int n, int64_t dk, const float *q,
                                                const KV_ELEMENT *const *keys, float *scores) {
    v8 sum[6][4];
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < 2 * n; b++) sum[r][b] = v8_set(0);
    }
    for (int64_t d = 0; d < dk; d++) {
        v8 key[4];
        UNROLLED for (int b = 0; b < 2 * n; b++) key[b] = KV_LOAD(keys[b / 2] + 16 * d + 8 * (b % 2));
        UNROLLED for (int r = 0; r < rows; r++) {
            v8 factor = v8_set(q[d * MF_TILE_ROWS + r]);
            UNROLLED for (int b = 0; b < 2 * n; b++) sum[r][b] = v8_fma(factor, key[b], sum[r][b]);
        }
    }
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < 2 * n; b++) v8_store(scores + r * MF_CHUNK_POSITIONS + 8 * b, sum[r][b]);
    }
}

static void KV_NAME(score_rows)(int rows, const mf_attend_chunk *c, int first_row, int first_block, int end_block) {
    const float *q = c->q + first_row;
    int64_t dk = c->kind->dk;
    for (int b = first_block; b < end_block;) {
        const KV_ELEMENT *keys[2] = {(const KV_ELEMENT *)c->blocks[b],
                                     (const KV_ELEMENT *)c->blocks[b + 1 < end_block ? b + 1 : b]};
        float *scores = c->scores + first_row * MF_CHUNK_POSITIONS + 16 * b;
        int two = rows <= 3 && b + 1 < end_block;
        switch (rows) {
            case 1:
                if (two) KV_NAME(score_blocks)(1, 2, dk, q, keys, scores);
                else KV_NAME(score_blocks)(1, 1, dk, q, keys, scores);
                break;
            case 2:
                if (two) KV_NAME(score_blocks)(2, 2, dk, q, keys, scores);
                else KV_NAME(score_blocks)(2, 1, dk, q, keys, scores);
                break;
            case 3:
                if (two) KV_NAME(score_blocks)(3, 2, dk, q, keys, scores);
                else KV_NAME(score_blocks)(3, 1, dk, q, keys, scores);
                break;
            case 4: KV_NAME(score_blocks)(4, 1, dk, q, keys, scores); break;
            case 5: KV_NAME(score_blocks)(5, 1, dk, q, keys, scores); break;
            default: KV_NAME(score_blocks)(6, 1, dk, q, keys, scores); break;
        }
        b += two ? 2 : 1;
    }
}

/* values[r][0..16) += sum over positions [first, end) of p[r][position] * v[position][0..16), ascending. */
static ALWAYS_INLINE void KV_NAME(weigh_slice)(const int rows, const mf_attend_chunk *c, int64_t slice,
                                               const float *p, int first, int end, float *values) {
    const int64_t dv = c->kind->dv_padded, offset = 16 * (int64_t)c->kind->dk + 256 * slice;
    v8 sum[6][2];
    UNROLLED for (int r = 0; r < rows; r++) {
        sum[r][0] = v8_load(values + r * dv + 16 * slice);
        sum[r][1] = v8_load(values + r * dv + 16 * slice + 8);
    }
    while (first < end) {
        const KV_ELEMENT *v = (const KV_ELEMENT *)c->blocks[first / 16] + offset;
        int stop = first / 16 * 16 + 16 < end ? first / 16 * 16 + 16 : end;
        for (; first < stop; first++) {
            v8 low = KV_LOAD(v + first % 16 * 16), high = KV_LOAD(v + first % 16 * 16 + 8);
            UNROLLED for (int r = 0; r < rows; r++) {
                v8 factor = v8_set(p[r * MF_CHUNK_POSITIONS + first]);
                sum[r][0] = v8_fma(factor, low, sum[r][0]);
                sum[r][1] = v8_fma(factor, high, sum[r][1]);
            }
        }
    }
    UNROLLED for (int r = 0; r < rows; r++) {
        v8_store(values + r * dv + 16 * slice, sum[r][0]);
        v8_store(values + r * dv + 16 * slice + 8, sum[r][1]);
    }
}

static void KV_NAME(weigh_rows)(int rows, const mf_attend_chunk *c, int64_t slice, int row, int first, int end) {
    const float *p = c->scores + row * MF_CHUNK_POSITIONS;
    float *values = c->values + row * c->kind->dv_padded;
    switch (rows) {
        case 1: KV_NAME(weigh_slice)(1, c, slice, p, first, end, values); break;
        case 2: KV_NAME(weigh_slice)(2, c, slice, p, first, end, values); break;
        case 3: KV_NAME(weigh_slice)(3, c, slice, p, first, end, values); break;
        case 4: KV_NAME(weigh_slice)(4, c, slice, p, first, end, values); break;
        case 5: KV_NAME(weigh_slice)(5, c, slice, p, first, end, values); break;
        default: KV_NAME(weigh_slice)(6, c, slice, p, first, end, values); break;
    }
}

/* Rows see different positions only at the edges: those are done row by row, so that nothing masked is touched. */
static void KV_NAME(weigh_group)(const mf_attend_chunk *c, int64_t slice, int row, int rows) {
    int first = c->first[row], end = c->last[row];
    for (int r = row + 1; r < row + rows; r++) {
        if (c->first[r] > first) first = c->first[r];
        if (c->last[r] < end) end = c->last[r];
    }
    if (first >= end) {
        for (int r = row; r < row + rows; r++) KV_NAME(weigh_rows)(1, c, slice, r, c->first[r], c->last[r]);
        return;
    }
    for (int r = row; r < row + rows; r++) {
        if (c->first[r] < first) KV_NAME(weigh_rows)(1, c, slice, r, c->first[r], first);
    }
    KV_NAME(weigh_rows)(rows, c, slice, row, first, end);
    for (int r = row; r < row + rows; r++) {
        if (end < c->last[r]) KV_NAME(weigh_rows)(1, c, slice, r, end, c->last[r]);
    }
}

static void KV_NAME(attend)(const mf_attend_chunk *c) {
    int begin = MF_CHUNK_POSITIONS, end = 0;
    for (int r = 0; r < c->n_rows; r++) {
        if (c->first[r] >= c->last[r]) continue;
        if (c->first[r] < begin) begin = c->first[r];
        if (c->last[r] > end) end = c->last[r];
    }
    memset(c->values, 0, sizeof(float) * (size_t)(c->n_rows * c->kind->dv_padded));
    if (begin >= end) return;
    for (int row = 0; row < c->n_rows; row += 6) {
        int rows = c->n_rows - row < 6 ? c->n_rows - row : 6;
        KV_NAME(score_rows)(rows, c, row, begin / 16, (end + 15) / 16);
        for (int r = row; r < row + rows; r++) {
            if (c->first[r] < c->last[r]) softmax_chunk(c, r);
        }
    }
    for (int64_t slice = 0; slice < c->kind->dv_padded / 16; slice++) {
        for (int row = 0; row < c->n_rows; row += 6) {
            KV_NAME(weigh_group)(c, slice, row, c->n_rows - row < 6 ? c->n_rows - row : 6);
        }
    }
}
