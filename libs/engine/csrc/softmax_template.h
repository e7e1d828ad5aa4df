/* Scores of one row of a tile to powers of two: included before the attention. Scores of MF_SCORE_ROWS rows are
 * kept. */

#ifdef SIXTEEN_LANES
typedef v16 vector;
enum { WIDTH = 16 };
#define MOST_OF(v) v8_max_16(v16_low((v)[0]), v16_high((v)[0]))
#define SUM_OF(v) v8_sum_16(v16_low((v)[0]), v16_high((v)[0]))
#else
typedef v8 vector;
enum { WIDTH = 8 };
#define MOST_OF(v) v8_max_16((v)[0], (v)[1])
#define SUM_OF(v) v8_sum_16((v)[0], (v)[1])
#endif
enum { VECTORS = 16 / WIDTH };

static inline float *scores_of(const mf_attend_chunk *c, int row) {
    return c->scores + row % MF_SCORE_ROWS * MF_SCORE_STRIDE;
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
    if (c->first[row] >= c->last[row]) return;
    float *s = scores_of(c, row);
    const int first = c->first[row], last = c->last[row], from = first / 16 * 16, to = (last + 15) / 16 * 16;
    adjust_scores(c, row, s, from, to);
    for (int i = from; i < first; i++) s[i] = -INFINITY;
    for (int i = last; i < to; i++) s[i] = -INFINITY;
    vector most[VECTORS];
    UNROLLED for (int v = 0; v < VECTORS; v++) most[v] = LANES(set)(-INFINITY);
    BY_FOUR for (int i = from; i < to; i += 16) {
        UNROLLED for (int v = 0; v < VECTORS; v++) most[v] = LANES(max)(most[v], LANES(load)(s + i + WIDTH * v));
    }
    c->peak[row] = MOST_OF(most);
}

/* Of powers times the sizes of what they weigh, by row of a group. */
typedef struct {
    float most[MF_SCORE_ROWS], sum[MF_SCORE_ROWS];
} sized_powers;

/* Scores to powers of two, which are summed. With `size`, by position: also the greatest power * size and their sum, into
 * sized->most[r] and sized->sum[r]. */
static void raise_powers(const mf_attend_chunk *c, int row, const float *size, sized_powers *sized, int r) {
    if (c->first[row] >= c->last[row]) return;
    float *s = scores_of(c, row);
    const int from = c->first[row] / 16 * 16, to = (c->last[row] + 15) / 16 * 16;
    const vector peak = LANES(set)(c->peak[row]);
    vector all[VECTORS], most[VECTORS], sum[VECTORS];
    UNROLLED for (int v = 0; v < VECTORS; v++) all[v] = most[v] = sum[v] = LANES(set)(0);
    BY_FOUR for (int i = from; i < to; i += 16) {
        UNROLLED for (int v = 0; v < VECTORS; v++) {
            const int at = i + WIDTH * v;
            const vector power = LANES(exp2)(LANES(sub)(LANES(load)(s + at), peak));
            LANES(store)(s + at, power);
            all[v] = LANES(add)(all[v], power);
            if (!size) continue;
            const vector part = LANES(mul)(power, LANES(load)(size + at));
            most[v] = LANES(max)(most[v], part);
            sum[v] = LANES(add)(sum[v], part);
        }
    }
    c->sum[row] = SUM_OF(all);
    if (!size) return;
    sized->most[r] = MOST_OF(most);
    sized->sum[r] = SUM_OF(sum);
}

/* All peaks come first: the end of one row's search overlaps with the next row's. */
static void softmax_rows(const mf_attend_chunk *c, int row, int rows) {
    for (int r = row; r < row + rows; r++) find_peak(c, r);
    for (int r = row; r < row + rows; r++) raise_powers(c, r, NULL, NULL, 0);
}

static void clear_values(const mf_attend_chunk *c, int row, int rows) {
    const int64_t dv = c->kind->dv_padded;
    memset(c->values + row * dv, 0, sizeof(float) * (size_t)(rows * dv));
}
