/* Attention of many rows, sixteen lanes at a time, in groups of MF_QUERY_ROWS rows: keys and values are floats here,
 * made once for all groups. Two vectors of them by twelve rows need 14 loads for 24 multiplications, which leaves
 * both ports of the multiplier busy; one vector by 24 rows would need 25. */

enum { GROUP = MF_QUERY_ROWS };

/* Positions that a group of rows sees: some row [begin, end), every row [first, last). */
typedef struct {
    int begin, end, first, last;
} span;

static span span_of_group(const mf_attend_chunk *c, int row) {
    span s = {MF_CHUNK_POSITIONS, 0, 0, MF_CHUNK_POSITIONS};
    for (int r = row; r < row + GROUP; r++) {
        if (c->first[r] > s.first) s.first = c->first[r];
        if (c->last[r] < s.last) s.last = c->last[r];
        if (c->first[r] >= c->last[r]) continue;
        if (c->first[r] < s.begin) s.begin = c->first[r];
        if (c->last[r] > s.end) s.end = c->last[r];
    }
    if (s.first >= s.last) s.first = s.last = s.end;
    return s;
}

/* Scores of a group against `n` blocks of 16 positions. */
static ALWAYS_INLINE void score_group(const int n, int64_t dk, const float *q, const float *keys, float *scores) {
    v16 sum[GROUP][2];
    UNROLLED for (int r = 0; r < GROUP; r++) {
        UNROLLED for (int b = 0; b < n; b++) sum[r][b] = v16_set(0);
    }
    BY_FOUR for (int64_t d = 0; d < dk; d++, q += GROUP) {
        v16 key[2];
        UNROLLED for (int b = 0; b < n; b++) key[b] = v16_load(keys + 16 * (b * dk + d));
        UNROLLED for (int r = 0; r < GROUP; r++) {
            const v16 factor = v16_set(q[r]);
            UNROLLED for (int b = 0; b < n; b++) sum[r][b] = v16_fma(factor, key[b], sum[r][b]);
        }
    }
    UNROLLED for (int r = 0; r < GROUP; r++) {
        UNROLLED for (int b = 0; b < n; b++) v16_store(scores + r * MF_SCORE_STRIDE + 16 * b, sum[r][b]);
    }
}

/* Scores of the group at `row` against keys [block][dk][16]. */
static void score_seen(const mf_attend_chunk *c, int row, const span *seen, const float *keys) {
    const int64_t dk = c->kind->dk, size = 16 * dk;
    const float *q = c->q + mf_query_of_row(dk, row);
    int block = seen->begin / 16;
    const int end = (seen->end + 15) / 16;
    for (; block + 1 < end; block += 2) score_group(2, dk, q, keys + block * size, scores_of(c, row) + 16 * block);
    if (block < end) score_group(1, dk, q, keys + block * size, scores_of(c, row) + 16 * block);
}

/* values[r][0..16 n) += sum over positions [first, end) of p[r][position] * v[position][0..16 n), ascending, from 0 at
 * the first position seen. Masked: only where the row sees the position. v: [slice][MF_CHUNK_POSITIONS][16]. */
static ALWAYS_INLINE void weigh_group(const int n, const int is_masked, const mf_attend_chunk *c, int row,
                                      const span *seen, int64_t slice, const float *v, int first, int end) {
    const int64_t dv = c->kind->dv_padded;
    const float *weights = scores_of(c, row);
    float *values = c->values + row * dv + 16 * slice;
    v16 sum[GROUP][2];
    v += slice * 16 * MF_CHUNK_POSITIONS;
    if (first == seen->begin) {
        UNROLLED for (int r = 0; r < GROUP; r++) {
            UNROLLED for (int b = 0; b < n; b++) sum[r][b] = v16_set(0);
        }
    } else {
        UNROLLED for (int r = 0; r < GROUP; r++) {
            UNROLLED for (int b = 0; b < n; b++) sum[r][b] = v16_load(values + r * dv + 16 * b);
        }
    }
    BY_FOUR for (int64_t i = first; i < end; i++) {
        v16 value[2];
        UNROLLED for (int b = 0; b < n; b++) value[b] = v16_load(v + 16 * (b * MF_CHUNK_POSITIONS + i));
        UNROLLED for (int r = 0; r < GROUP; r++) {
            const v16 factor = v16_set(weights[r * MF_SCORE_STRIDE + i]);
            const int sees = i >= c->first[row + r] && i < c->last[row + r];
            UNROLLED for (int b = 0; b < n; b++) {
                sum[r][b] = is_masked ? v16_fma_if(sees, factor, value[b], sum[r][b])
                                      : v16_fma(factor, value[b], sum[r][b]);
            }
        }
    }
    UNROLLED for (int r = 0; r < GROUP; r++) {
        UNROLLED for (int b = 0; b < n; b++) v16_store(values + r * dv + 16 * b, sum[r][b]);
    }
}

static void weigh_all(const mf_attend_chunk *c, int row, const span *seen, const float *v) {
    const int64_t slices = c->kind->dv_padded / 16;
    int64_t slice = 0;
    for (; slice + 1 < slices; slice += 2) weigh_group(2, 0, c, row, seen, slice, v, seen->first, seen->last);
    if (slice < slices) weigh_group(1, 0, c, row, seen, slice, v, seen->first, seen->last);
}

static void weigh_some(const mf_attend_chunk *c, int row, const span *seen, const float *v, int first, int end) {
    const int64_t slices = c->kind->dv_padded / 16;
    for (int64_t slice = 0; slice < slices && first < end; slice++) {
        weigh_group(1, 1, c, row, seen, slice, v, first, end);
    }
}

/* Blocks lie anywhere, so the hardware does not see the next ones coming: every group asks for a share of them. */
static void ask_for_share(const mf_attend_chunk *c, int64_t block_bytes, int row) {
    const int64_t lines = (block_bytes + 63) / 64, first = lines * row / c->n_rows;
    const int64_t end = lines * (row + GROUP) / c->n_rows;
    for (int b = 0; b < c->n_next; b++) {
        for (int64_t i = first; i < end; i++) _mm_prefetch((const char *)c->next[b] + 64 * i, _MM_HINT_T1);
    }
}

static void attend_group(const mf_attend_chunk *c, int row, const float *keys, const float *values) {
    const span seen = span_of_group(c, row);
    if (seen.begin >= seen.end) {
        clear_values(c, row, GROUP);
        return;
    }
    score_seen(c, row, &seen, keys);
    softmax_rows(c, row, GROUP);
    weigh_some(c, row, &seen, values, seen.begin, seen.first);
    if (seen.first < seen.last) weigh_all(c, row, &seen, values);
    weigh_some(c, row, &seen, values, seen.last, seen.end);
}
