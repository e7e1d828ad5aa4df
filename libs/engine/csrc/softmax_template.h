/* Scores of one row of a tile to powers of two: included before attention_template.h. */

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

static void softmax_chunk(const mf_attend_chunk *c, int row) {
    float *s = c->scores + row * MF_SCORE_STRIDE;
    const int first = c->first[row], last = c->last[row], from = first / 16 * 16, to = (last + 15) / 16 * 16;
    adjust_scores(c, row, s, from, to);
    for (int i = from; i < first; i++) s[i] = -INFINITY;
    for (int i = last; i < to; i++) s[i] = -INFINITY;
#ifdef SIXTEEN_LANES
    v16 all = v16_set(-INFINITY);
    for (int i = from; i < to; i += 16) all = v16_max(all, v16_load(s + i));
    const float peak = v8_max_16(v16_low(all), v16_high(all));
    all = v16_set(0);
    for (int i = from; i < to; i += 16) {
        v16 a = v16_exp2(v16_sub(v16_load(s + i), v16_set(peak)));
        v16_store(s + i, a);
        all = v16_add(all, a);
    }
    const v8 low = v16_low(all), high = v16_high(all);
#else
    v8 low = v8_set(-INFINITY), high = low;
    for (int i = from; i < to; i += 16) {
        low = v8_max(low, v8_load(s + i));
        high = v8_max(high, v8_load(s + i + 8));
    }
    const float peak = v8_max_16(low, high);
    const v8 p = v8_set(peak);
    low = high = v8_set(0);
    for (int i = from; i < to; i += 16) {
        v8 a = v8_exp2(v8_sub(v8_load(s + i), p)), b = v8_exp2(v8_sub(v8_load(s + i + 8), p));
        v8_store(s + i, a);
        v8_store(s + i + 8, b);
        low = v8_add(low, a);
        high = v8_add(high, b);
    }
#endif
    c->peak[row] = peak;
    c->sum[row] = v8_sum_16(low, high);
}

/* Clears the results, and finds the positions [begin, end) that any row sees; 0 when there are none. */
static int begin_chunk(const mf_attend_chunk *c, int *begin, int *end) {
    *begin = MF_CHUNK_POSITIONS, *end = 0;
    for (int r = 0; r < c->n_rows; r++) {
        if (c->first[r] >= c->last[r]) continue;
        if (c->first[r] < *begin) *begin = c->first[r];
        if (c->last[r] > *end) *end = c->last[r];
    }
    memset(c->values, 0, sizeof(float) * (size_t)(c->n_rows * c->kind->dv_padded));
    return *begin < *end;
}
