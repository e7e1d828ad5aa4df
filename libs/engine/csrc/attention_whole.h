/* One chunk of attention over f16 keys and values, in whole numbers: keys and values of up to 12 bits with a power of
 * two for each position, queries up to mf_query_limit() with a scale each, the powers of a row up to 15 bits. Sums of
 * their products are exact, so that neither the order nor the number of lanes matters, and 16-bit multiplications do
 * twice the work of float ones. */

#ifdef SIXTEEN_LANES
typedef v16i wholes;
enum { GROUP = 12, GROUP_BLOCKS = 2, FEW_BLOCKS = 4 };
#else
typedef v8i wholes;
enum { GROUP = 6, GROUP_BLOCKS = 1, FEW_BLOCKS = 1 };
#endif

/* Pairs of weights from one row's to the next. */
enum { WEIGHT_STRIDE = MF_CHUNK_POSITIONS / 2 + 16 };

/* To be asked for by each pass of softmax over a row. */
enum { SOFTMAX_LINES = 11 };

enum { WEIGHT_MOST = 32767 };
/* 2^19, and what 256 roundings may add, times the greatest whole value stays below 2^31: that is 4094, since the 11
 * bits of an f16 leave the last of 12 empty in the numbers next to a power of two. */
#define WEIGHT_SUM 524288.0f

typedef struct {
    float key_scale[MF_CHUNK_POSITIONS];    /* what one of a whole key is worth */
    float value_size[MF_CHUNK_POSITIONS];   /* 2^exponent: what a weight is multiplied by */
    const int32_t *block[MF_CHUNK_BLOCKS];  /* any of the chunk's where none is seen */
    const uint8_t *ask, *ask_end;           /* what is asked for next, and until where */
    int n_asked;                            /* blocks of the next chunk */
    sized_powers sized;
    float inverse[MF_SCORE_ROWS], unit[MF_SCORE_ROWS]; /* of a row's weights, and of their products with values */
    _Alignas(64) int32_t weights[GROUP * WEIGHT_STRIDE]; /* by row: pairs of positions, 16 bits each */
} whole_chunk;

/* The blocks [block, end_block) and their scales. A position that has infinities or no numbers gets scores that are no
 * number; its keys and values were stored as zeros, which leave other rows alone. */
static void read_blocks(const mf_attend_chunk *c, int block, int end_block, whole_chunk *w) {
    const int64_t magnitudes = mf_whole_bytes(c->kind->dk, c->kind->dv_padded);
    const int bits = mf_key_bits(c->kind->dk);
    for (int b = block & ~3; b < ((end_block + 3) & ~3); b++) { /* as many as are ever used together */
        const uint8_t *from = c->blocks[b >= block && b < end_block ? b : block];
        const uint16_t *sizes = (const uint16_t *)(from + magnitudes);
        w->block[b] = (const int32_t *)from;
        for (int i = 0; i < 16; i++) {
            const int key = exponent_of(sizes[i]), value = exponent_of(sizes[16 + i]);
            const int is_finite = key < 31 && value < 31, at = 16 * b + i;
            w->key_scale[at] = is_finite ? power_of_two(key - bits - 14) : NAN;
            w->value_size[at] = is_finite ? power_of_two(value) : 0;
        }
    }
}

/* What few rows will soon read is asked for while they work on the chunk before, line after line in the order of
 * addresses and as evenly as can be: a core drops requests beyond those it keeps under way, while the hardware, which
 * does not see from one block to another, adds its own to a stream. */
static ALWAYS_INLINE void ask_on(const mf_attend_chunk *c, whole_chunk *w, const int lines) {
    UNROLLED for (int i = 0; i < lines; i++) __builtin_prefetch(w->ask + 64 * i, 0, 3);
    w->ask += 64 * lines;
    if (w->ask < w->ask_end) return;
    const int is_left = w->n_asked < c->n_next;
    w->ask = is_left ? c->next[w->n_asked++] : (const uint8_t *)w->weights;
    w->ask_end = is_left ? w->ask + mf_whole_bytes(c->kind->dk, c->kind->dv_padded) : w->ask;
}

static void begin_asking(const mf_attend_chunk *c, whole_chunk *w) {
    w->n_asked = 0;
    w->ask = w->ask_end = (const uint8_t *)w->weights;
    ask_on(c, w, 0);
}

static ALWAYS_INLINE void ask_for(const int32_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(from + i, 0, 3);
}

static void ask_for_scales(const mf_attend_chunk *c, int block, int end_block) {
    const int64_t at = mf_whole_bytes(c->kind->dk, c->kind->dv_padded);
    for (int b = block; b < end_block; b++) __builtin_prefetch(c->blocks[b] + at, 0, 3);
    for (int b = 0; b < c->n_next; b++) __builtin_prefetch(c->next[b] + at, 0, 2);
}

/* A row's score at position `at` and those beside it, from its whole sums. */
static ALWAYS_INLINE void store_score(const mf_attend_chunk *c, const whole_chunk *w, int row, int at, wholes sum) {
    const vector scale = LANES(mul)(LANES(load)(w->key_scale + at), LANES(set)(c->q_scale[row]));
    LANES(store)(scores_of(c, row) + at, LANES(mul)(LANES(from_whole)(sum), scale));
}

/* Scores of `rows` rows against `n` blocks of 16 positions; with `asks` as many lines are asked for as are read. */
static ALWAYS_INLINE void score_blocks(const int rows, const int n, const int asks, const mf_attend_chunk *c,
                                       whole_chunk *w, int row, int block) {
    const int64_t pairs = mf_pairs(c->kind->dk);
    const int32_t *q = c->q_pairs + mf_query_of_row(pairs, row);
    const int32_t *from[FEW_BLOCKS];
    wholes sum[GROUP][FEW_BLOCKS * VECTORS], key[FEW_BLOCKS * VECTORS];
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < n * VECTORS; b++) sum[r][b] = LANES(spread)(0);
    }
    UNROLLED for (int b = 0; b < n; b++) from[b] = w->block[block + b];
    for (int64_t pair = 0; pair < pairs; pair++, q += MF_QUERY_ROWS) {
        if (asks) ask_on(c, w, n);
        UNROLLED for (int b = 0; b < n * VECTORS; b++) {
            key[b] = LANES(load_pairs)(from[b / VECTORS] + 16 * pair + WIDTH * (b % VECTORS));
        }
        UNROLLED for (int r = 0; r < rows; r++) {
            const wholes factor = LANES(spread)(q[r]);
            UNROLLED for (int b = 0; b < n * VECTORS; b++) sum[r][b] = LANES(dot)(factor, key[b], sum[r][b]);
        }
    }
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < n * VECTORS; b++) store_score(c, w, row + r, 16 * block + WIDTH * b, sum[r][b]);
    }
}

/* The unit of a row's weights: their greatest becomes 32767 or their sum 2^19, whichever is less. */
static void choose_unit(const mf_attend_chunk *c, whole_chunk *w, int row, int r) {
    w->inverse[r] = w->unit[r] = 0;
    if (c->first[row] >= c->last[row]) return;
    const float by_most = w->sized.most[r] * (1.0f / WEIGHT_MOST), by_sum = w->sized.sum[r] * (1 / WEIGHT_SUM);
    const float unit = by_most > by_sum ? by_most : by_sum;
    w->inverse[r] = 1 / unit;
    w->unit[r] = unit * power_of_two(-VALUE_BITS - 14);
}

/* Scores of some rows to powers, and the units of their weights. */
static void prepare_weights(const mf_attend_chunk *c, whole_chunk *w, int row, int rows, const int asks) {
    for (int r = row; r < row + rows; r++) {
        find_peak(c, r);
        if (asks) ask_on(c, w, SOFTMAX_LINES);
    }
    for (int r = 0; r < rows; r++) {
        raise_powers(c, row + r, w->value_size, &w->sized, r);
        choose_unit(c, w, row + r, r);
        if (asks) ask_on(c, w, 2 * SOFTMAX_LINES);
    }
}

/* A row's powers [from, until) and what makes them weights. */
typedef struct {
    const float *powers;
    int from, until;
    vector inverse;
} weighing;

static ALWAYS_INLINE weighing weighing_of(const mf_attend_chunk *c, const whole_chunk *w, int row, int r) {
    const int first = c->first[row], last = c->last[row];
    return (weighing){scores_of(c, row), first / 16 * 16, first < last ? (last + 15) / 16 * 16 : 0,
                      LANES(set)(w->inverse[r])};
}

/* Powers times the sizes of values as whole numbers, at position `at` and those beside it: zero where none is seen. */
static ALWAYS_INLINE wholes weights_at(const weighing *row, const whole_chunk *w, int at) {
    const vector x = LANES(mul)(LANES(load)(row->powers + at), LANES(load)(w->value_size + at));
    return at >= row->from && at < row->until ? LANES(round)(LANES(mul)(x, row->inverse)) : LANES(spread)(0);
}

/* The weights of a row into w->weights[r], positions [begin, end). */
static void weigh_row(const mf_attend_chunk *c, whole_chunk *w, int row, int r, int begin, int end) {
    const weighing seen = weighing_of(c, w, row, r);
    int32_t *to = w->weights + r * WEIGHT_STRIDE;
    for (int i = begin; i < end; i += WIDTH) LANES(store_shorts)(to + i / 2, weights_at(&seen, w, i));
}

/* values of `rows` rows for `n` slices of 16 features: sums over the positions of blocks [block, end_block). With `asks`
 * lines are asked for, a few less than are read: others have been during the softmax. */
static ALWAYS_INLINE void weigh_slices(const int rows, const int n, const int asks, const mf_attend_chunk *c,
                                       whole_chunk *w, int row, int64_t slice, int block, int end_block) {
    enum { SLICE = MF_VALUE_SLICE };
    const int64_t dv = c->kind->dv_padded, at = mf_key_pairs(c->kind->dk) + SLICE * slice;
    wholes sum[GROUP][FEW_BLOCKS * VECTORS], value[FEW_BLOCKS * VECTORS];
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < n * VECTORS; b++) sum[r][b] = LANES(spread)(0);
    }
    for (int i = block; i < end_block; i++) {
        const int32_t *values = w->block[i] + at, *weights = w->weights + 8 * i;
        for (int j = 0; j < 8; j++) {
            if (asks) ask_on(c, w, n - n / 4);
            UNROLLED for (int b = 0; b < n * VECTORS; b++) {
                value[b] = LANES(load_pairs)(values + SLICE * (b / VECTORS) + 16 * j + WIDTH * (b % VECTORS));
            }
            UNROLLED for (int r = 0; r < rows; r++) {
                const wholes weight = LANES(spread)(weights[r * WEIGHT_STRIDE + j]);
                UNROLLED for (int b = 0; b < n * VECTORS; b++) sum[r][b] = LANES(dot)(weight, value[b], sum[r][b]);
            }
        }
    }
    UNROLLED for (int r = 0; r < rows; r++) {
        float *to = c->values + (row + r) * dv + 16 * slice;
        const vector unit = LANES(set)(w->unit[r]);
        UNROLLED for (int b = 0; b < n * VECTORS; b++) {
            LANES(store)(to + WIDTH * b, LANES(mul)(LANES(from_whole)(sum[r][b]), unit));
        }
    }
}

/* The blocks that a group of rows sees something of. */
typedef struct {
    int block, end_block;
} span;

static span span_of(const mf_attend_chunk *c, int row, int rows) {
    int begin = MF_CHUNK_POSITIONS, end = 0;
    for (int r = row; r < row + rows; r++) {
        if (c->first[r] >= c->last[r]) continue;
        if (c->first[r] < begin) begin = c->first[r];
        if (c->last[r] > end) end = c->last[r];
    }
    return begin < end ? (span){begin / 16, (end + 15) / 16} : (span){0, 0};
}

static void weigh_rows(const mf_attend_chunk *c, whole_chunk *w, int row, int rows, const int asks, const span *seen) {
    prepare_weights(c, w, row, rows, asks);
    for (int r = 0; r < rows; r++) {
        weigh_row(c, w, row + r, r, 16 * seen->block, 16 * seen->end_block);
        if (asks) ask_on(c, w, SOFTMAX_LINES);
    }
}

static void attend_group(const mf_attend_chunk *c, whole_chunk *w, int row) {
    const span seen = span_of(c, row, GROUP);
    const int64_t slices = c->kind->dv_padded / 16;
    int block = seen.block;
    int64_t slice = 0;
    for (; block + GROUP_BLOCKS <= seen.end_block; block += GROUP_BLOCKS) {
        score_blocks(GROUP, GROUP_BLOCKS, 0, c, w, row, block);
    }
    if (GROUP_BLOCKS > 1 && block < seen.end_block) score_blocks(GROUP, 1, 0, c, w, row, block);
    weigh_rows(c, w, row, GROUP, 0, &seen);
    for (; slice + GROUP_BLOCKS <= slices; slice += GROUP_BLOCKS) {
        weigh_slices(GROUP, GROUP_BLOCKS, 0, c, w, row, slice, seen.block, seen.end_block);
    }
    if (GROUP_BLOCKS > 1 && slice < slices) weigh_slices(GROUP, 1, 0, c, w, row, slice, seen.block, seen.end_block);
}

/* Every group of the first `many` rows asks for a share of the next chunk. */
static void ask_for_share(const mf_attend_chunk *c, int row, int rows, int many) {
    const int64_t lines = mf_whole_bytes(c->kind->dk, c->kind->dv_padded) / 64 + 1;
    const int64_t first = lines * row / many, end = lines * (row + rows) / many;
    for (int b = 0; b < c->n_next; b++) {
        for (int64_t i = first; i < end; i++) __builtin_prefetch(c->next[b] + 64 * i, 0, 2);
    }
}

/* Rows fewer than a group: FEW_BLOCKS blocks of positions, or slices of features, at a time. */
#ifdef SIXTEEN_LANES
#define FOR_FEW(rows, n, call) \
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
static int few_rows(int left) { return left >= 6 ? 6 : left >= 4 ? 4 : left; }
#else
#define FOR_FEW(rows, n, call) \
    switch (rows) { \
        case 5: call(5, 1); break; \
        case 4: call(4, 1); break; \
        case 3: call(3, 1); break; \
        case 2: call(2, 1); break; \
        default: call(1, 1); break; \
    }
static int few_rows(int left) { return left; }
#endif

static void attend_few(const mf_attend_chunk *c, whole_chunk *w, int row, int rows) {
    const span seen = span_of(c, row, rows);
    const int64_t slices = c->kind->dv_padded / 16;
    for (int block = seen.block, n; block < seen.end_block; block += n) {
        n = seen.end_block - block >= FEW_BLOCKS ? FEW_BLOCKS : 1;
#define CALL(rows, n) score_blocks(rows, n, 1, c, w, row, block)
        FOR_FEW(rows, n, CALL)
#undef CALL
    }
    weigh_rows(c, w, row, rows, 1, &seen);
    for (int64_t slice = 0, n; slice < slices; slice += n) {
        n = slices - slice >= FEW_BLOCKS ? FEW_BLOCKS : 1;
#define CALL(rows, n) weigh_slices(rows, n, 1, c, w, row, slice, seen.block, seen.end_block)
        FOR_FEW(rows, n, CALL)
#undef CALL
    }
}

/* The rows from `row` on, a few at a time, which lie together among the queries. */
static void attend_rest(const mf_attend_chunk *c, whole_chunk *w, int row) {
    begin_asking(c, w);
    for (int rows; row < c->n_rows; row += rows) {
        const int together = MF_QUERY_ROWS - row % MF_QUERY_ROWS, left = c->n_rows - row;
        rows = few_rows(left < together ? left : together);
        attend_few(c, w, row, rows);
    }
}

static void attend_whole(const mf_attend_chunk *c) {
    const int many = c->n_rows / GROUP * GROUP;
    const span seen = span_of(c, 0, c->n_rows);
    whole_chunk w;
    if (seen.block >= seen.end_block) {
        clear_values(c, 0, c->n_rows);
        return;
    }
    ask_for_scales(c, seen.block, seen.end_block);
    read_blocks(c, seen.block, seen.end_block, &w);
    for (int row = 0; row < many; row += GROUP) {
        ask_for_share(c, row, GROUP, many);
        attend_group(c, &w, row);
    }
    attend_rest(c, &w, many);
}

/* A query as whole numbers up to `limit`, in `row` and as pairs in every MF_QUERY_ROWS-th place of `pairs`; returns what
 * one is worth. */
static float query_pairs(int64_t n, const float *x, float limit, int16_t *row, int32_t *pairs) {
    uint32_t bits = greatest_bits(n, x);
    if (bits >= 0x7f800000) bits = 0x7fc00000; /* no number */
    const float most = mf_float_of_bits(bits);
    const float factor = most > 1e-30f ? limit / most : 0;
    for (int64_t i = 0; i < n; i++) row[i] = (int16_t)mf_bits_of_float(fmaf(x[i], factor, ROUNDING));
    for (int64_t i = 0; i < n; i += 2, pairs += MF_QUERY_ROWS) {
        *pairs = (int32_t)((uint16_t)row[i] | (i + 1 < n ? (uint32_t)(uint16_t)row[i + 1] << 16 : 0));
    }
    return most / limit;
}
