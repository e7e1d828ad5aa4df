/* One chunk of attention over f32 keys and values, eight lanes at a time on every instruction set. Scores: lanes are
 * positions. Values: lanes are features. Neither is ever summed across lanes, and a row's arithmetic does not depend on
 * the other rows of its tile. */

/* Scores of `rows` rows against `n` blocks of 16 positions. */
static ALWAYS_INLINE void score_floats(const int rows, const int n, const mf_attend_chunk *c, int row, const float *q,
                                       const float *const *keys, int block) {
    const int64_t dk = c->kind->dk;
    v8 sum[6][4];
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < 2 * n; b++) sum[r][b] = v8_set(0);
    }
    for (int64_t d = 0; d < dk; d++) {
        /* Three rows and two blocks fill the sixteen registers if keys come one at a time. */
        v8 factor[6], key[4];
        UNROLLED for (int r = 0; r < rows && n == 2; r++) factor[r] = v8_set(q[d * MF_QUERY_ROWS + r]);
        UNROLLED for (int b = 0; b < 4 && n == 2; b++) {
            key[0] = v8_load(keys[b / 2] + 16 * d + 8 * (b % 2));
            UNROLLED for (int r = 0; r < rows; r++) sum[r][b] = v8_fma(factor[r], key[0], sum[r][b]);
        }
        UNROLLED for (int b = 0; b < 2 && n == 1; b++) key[b] = v8_load(keys[0] + 16 * d + 8 * b);
        UNROLLED for (int r = 0; r < rows && n == 1; r++) {
            factor[0] = v8_set(q[d * MF_QUERY_ROWS + r]);
            UNROLLED for (int b = 0; b < 2; b++) sum[r][b] = v8_fma(factor[0], key[b], sum[r][b]);
        }
    }
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < 2 * n; b++) v8_store(scores_of(c, row + r) + 16 * block + 8 * b, sum[r][b]);
    }
}

static void score_float_rows(int rows, const mf_attend_chunk *c, int first_row, int first_block, int end_block) {
    const float *q = c->q + mf_query_of_row(c->kind->dk, first_row);
    for (int b = first_block; b < end_block;) {
        const float *keys[2] = {(const float *)c->blocks[b],
                                (const float *)c->blocks[b + 1 < end_block ? b + 1 : b]};
        int two = rows <= 3 && b + 1 < end_block;
        switch (rows) {
            case 1:
                if (two) score_floats(1, 2, c, first_row, q, keys, b);
                else score_floats(1, 1, c, first_row, q, keys, b);
                break;
            case 2:
                if (two) score_floats(2, 2, c, first_row, q, keys, b);
                else score_floats(2, 1, c, first_row, q, keys, b);
                break;
            case 3:
                if (two) score_floats(3, 2, c, first_row, q, keys, b);
                else score_floats(3, 1, c, first_row, q, keys, b);
                break;
            case 4: score_floats(4, 1, c, first_row, q, keys, b); break;
            case 5: score_floats(5, 1, c, first_row, q, keys, b); break;
            default: score_floats(6, 1, c, first_row, q, keys, b); break;
        }
        b += two ? 2 : 1;
    }
}

/* 16 n values of `rows` rows += sum over positions [first, end) of p[r][position] * v[position][0..16 n), ascending. */
static ALWAYS_INLINE void weigh_floats(const int rows, const int n, const mf_attend_chunk *c, int64_t slice, int row,
                                       int first, int end) {
    const int64_t dv = c->kind->dv_padded, offset = 16 * (int64_t)c->kind->dk + 256 * slice;
    v8 sum[6][4];
    float *values = c->values + row * dv + 16 * slice;
    const float *p[6];
    UNROLLED for (int r = 0; r < rows; r++) p[r] = scores_of(c, row + r);
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < 2 * n; b++) sum[r][b] = v8_load(values + r * dv + 8 * b);
    }
    while (first < end) {
        const float *v = (const float *)c->blocks[first / 16] + offset;
        int stop = first / 16 * 16 + 16 < end ? first / 16 * 16 + 16 : end;
        for (; first < stop; first++) {
            v8 factor[6], value[2];
            UNROLLED for (int r = 0; r < rows && n == 2; r++) factor[r] = v8_set(p[r][first]);
            UNROLLED for (int b = 0; b < 4 && n == 2; b++) {
                value[0] = v8_load(v + b / 2 * 256 + first % 16 * 16 + 8 * (b % 2));
                UNROLLED for (int r = 0; r < rows; r++) sum[r][b] = v8_fma(factor[r], value[0], sum[r][b]);
            }
            UNROLLED for (int b = 0; b < 2 && n == 1; b++) value[b] = v8_load(v + first % 16 * 16 + 8 * b);
            UNROLLED for (int r = 0; r < rows && n == 1; r++) {
                factor[0] = v8_set(p[r][first]);
                UNROLLED for (int b = 0; b < 2; b++) sum[r][b] = v8_fma(factor[0], value[b], sum[r][b]);
            }
        }
    }
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < 2 * n; b++) v8_store(values + r * dv + 8 * b, sum[r][b]);
    }
}

/* A few rows take two slices at a time: enough sums in flight to hide the latency of an addition. */
static void weigh_float_rows(int rows, const mf_attend_chunk *c, int64_t slice, int row, int first, int end) {
    const int two = c->n_rows <= 3 && slice + 1 < c->kind->dv_padded / 16;
    if (c->n_rows <= 3 && slice % 2) return;
    switch (rows + (two ? 0 : 3)) {
        case 1: weigh_floats(1, 2, c, slice, row, first, end); break;
        case 2: weigh_floats(2, 2, c, slice, row, first, end); break;
        case 3: weigh_floats(3, 2, c, slice, row, first, end); break;
        case 4: weigh_floats(1, 1, c, slice, row, first, end); break;
        case 5: weigh_floats(2, 1, c, slice, row, first, end); break;
        case 6: weigh_floats(3, 1, c, slice, row, first, end); break;
        case 7: weigh_floats(4, 1, c, slice, row, first, end); break;
        case 8: weigh_floats(5, 1, c, slice, row, first, end); break;
        default: weigh_floats(6, 1, c, slice, row, first, end); break;
    }
}

/* Rows see different positions only at the edges: those are done row by row, so that nothing masked is touched. */
static void weigh_float_group(const mf_attend_chunk *c, int64_t slice, int row, int rows) {
    int first = c->first[row], end = c->last[row];
    for (int r = row + 1; r < row + rows; r++) {
        if (c->first[r] > first) first = c->first[r];
        if (c->last[r] < end) end = c->last[r];
    }
    if (first >= end) {
        for (int r = row; r < row + rows; r++) weigh_float_rows(1, c, slice, r, c->first[r], c->last[r]);
        return;
    }
    for (int r = row; r < row + rows; r++) {
        if (c->first[r] < first) weigh_float_rows(1, c, slice, r, c->first[r], first);
    }
    weigh_float_rows(rows, c, slice, row, first, end);
    for (int r = row; r < row + rows; r++) {
        if (end < c->last[r]) weigh_float_rows(1, c, slice, r, end, c->last[r]);
    }
}

static void attend_float(const mf_attend_chunk *c) {
    const span seen = span_of(c, 0, c->n_rows);
    clear_values(c, 0, c->n_rows);
    for (int row = 0; row < c->n_rows && seen.block < seen.end_block; row += 6) {
        const int rows = c->n_rows - row < 6 ? c->n_rows - row : 6;
        score_float_rows(rows, c, row, seen.block, seen.end_block);
        softmax_rows(c, row, rows);
        for (int64_t slice = 0; slice < c->kind->dv_padded / 16; slice++) weigh_float_group(c, slice, row, rows);
    }
}
