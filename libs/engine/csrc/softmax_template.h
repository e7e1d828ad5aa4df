/* Scores of one row of a tile to powers of two: included before the attention. SCORE_ROWS rows of scores are kept. */

static inline float *scores_of(const mf_attend_chunk *c, int row) {
    return c->scores + row % SCORE_ROWS * MF_SCORE_STRIDE;
}

static void adjust_scores(const mf_attend_chunk *c, int row, float *s, int from, int to) {
    const mf_attend_kind *kind = c->kind;
    if (kind->softcap > 0) {
        v8 cap = v8_set(kind->softcap), outer = v8_set(kind->softcap * LOG2_E);
        for (int i = from; i < to; i += 8) v8_store(s + i, v8_mul(outer, v8_tanh(v8_div(v8_load(s + i), cap))));
    }
    if (c->slopes) {
        for (int i = from; i < to; i++) s[i] = fmaf(-c->slopes[row], fabsf((float)(c->distance[row] + i)), s[i]);
    }
}

/* Leaves the row's greatest score in c->peak, and scores of -infinity where it sees nothing. */
static void find_peak(const mf_attend_chunk *c, int row) {
    float *s = scores_of(c, row);
    const int first = c->first[row], last = c->last[row], from = first / 16 * 16, to = (last + 15) / 16 * 16;
    adjust_scores(c, row, s, from, to);
    for (int i = from; i < first; i++) s[i] = -INFINITY;
    for (int i = last; i < to; i++) s[i] = -INFINITY;
#ifdef SIXTEEN_LANES
    int i = from;
    v16 even = v16_set(-INFINITY), odd = even;
    for (; i + 32 <= to; i += 32) {
        even = v16_max(even, v16_load(s + i));
        odd = v16_max(odd, v16_load(s + i + 16));
    }
    if (i < to) even = v16_max(even, v16_load(s + i));
    even = v16_max(even, odd);
    c->peak[row] = v8_max_16(v16_low(even), v16_high(even));
#else
    v8 low = v8_set(-INFINITY), high = low;
    for (int i = from; i < to; i += 16) {
        low = v8_max(low, v8_load(s + i));
        high = v8_max(high, v8_load(s + i + 8));
    }
    c->peak[row] = v8_max_16(low, high);
#endif
}

/* Scores to powers of two, which are summed. */
static void raise_powers(const mf_attend_chunk *c, int row) {
    float *s = scores_of(c, row);
    const int from = c->first[row] / 16 * 16, to = (c->last[row] + 15) / 16 * 16;
#ifdef SIXTEEN_LANES
    const v16 peak = v16_set(c->peak[row]);
    v16 all = v16_set(0);
    BY_FOUR for (int i = from; i < to; i += 16) {
        v16 a = v16_exp2(v16_sub(v16_load(s + i), peak));
        v16_store(s + i, a);
        all = v16_add(all, a);
    }
    c->sum[row] = v8_sum_16(v16_low(all), v16_high(all));
#else
    const v8 peak = v8_set(c->peak[row]);
    v8 low = v8_set(0), high = low;
    for (int i = from; i < to; i += 16) {
        v8 a = v8_exp2(v8_sub(v8_load(s + i), peak)), b = v8_exp2(v8_sub(v8_load(s + i + 8), peak));
        v8_store(s + i, a);
        v8_store(s + i + 8, b);
        low = v8_add(low, a);
        high = v8_add(high, b);
    }
    c->sum[row] = v8_sum_16(low, high);
#endif
}

/* All peaks come first: the end of one row's search overlaps with the next row's. */
static void softmax_rows(const mf_attend_chunk *c, int row, int rows) {
    for (int r = row; r < row + rows; r++) {
        if (c->first[r] < c->last[r]) find_peak(c, r);
    }
    for (int r = row; r < row + rows; r++) {
        if (c->first[r] < c->last[r]) raise_powers(c, r);
    }
}

/* Finds the positions [begin, end) that any row sees; 0 when there are none. */
static int find_seen(const mf_attend_chunk *c, int *begin, int *end) {
    *begin = MF_CHUNK_POSITIONS, *end = 0;
    for (int r = 0; r < c->n_rows; r++) {
        if (c->first[r] >= c->last[r]) continue;
        if (c->first[r] < *begin) *begin = c->first[r];
        if (c->last[r] > *end) *end = c->last[r];
    }
    return *begin < *end;
}

static void clear_values(const mf_attend_chunk *c, int row, int rows) {
    const int64_t dv = c->kind->dv_padded;
    memset(c->values + row * dv, 0, sizeof(float) * (size_t)(rows * dv));
}
