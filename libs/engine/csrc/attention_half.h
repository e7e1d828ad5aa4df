/* One chunk of attention over f16 keys and values, in whole numbers: keys and values of up to 12 bits with a power of
 * two for each position, queries up to mf_query_limit() with a scale each, the powers of a row up to 15 bits. Sums of
 * their products are exact, so that neither the order nor the number of lanes matters, and 16-bit multiplications do
 * twice the work of float ones. Rows come in groups of GROUP, for which keys and values are converted once; the rest,
 * and the few rows of decoding, convert what they read. */

#ifdef SIXTEEN_LANES
typedef v16i wholes;
enum { GROUP = 12, GROUP_BLOCKS = 2, FEW_BLOCKS = 4 };
#else
typedef v8i wholes;
enum { GROUP = 6, GROUP_BLOCKS = 1, FEW_BLOCKS = 1 };
#endif

/* Weights of positions WIDTH apart share a lane: the products of two positions are summed by one instruction. */
enum { PAIRED = 2 * WIDTH, WEIGHT_STRIDE = MF_CHUNK_POSITIONS / 2 + 16 };

enum { VALUE_BITS = 12, WEIGHT_MOST = 32767 };
/* 2^19, and what 256 roundings may add, times the greatest whole value stays below 2^31: that is 4094, since the 11
 * bits of an f16 leave the last of 12 empty in the numbers next to a power of two. */
#define WEIGHT_SUM 524288.0f

typedef struct {
    float key_factor[MF_CHUNK_POSITIONS], key_scale[MF_CHUNK_POSITIONS]; /* to whole numbers and back */
    float value_factor[MF_CHUNK_POSITIONS];
    float value_size[MF_CHUNK_POSITIONS]; /* 2^exponent: what a weight is multiplied by */
    const uint16_t *block[MF_CHUNK_BLOCKS]; /* any of the chunk's where none is seen */
    const uint16_t *next[MF_CHUNK_BLOCKS];  /* of the next chunk, or any of this one's */
    sized_powers sized;
    float inverse[MF_SCORE_ROWS], unit[MF_SCORE_ROWS]; /* of a row's weights, and of their products with values */
    int32_t weights[GROUP * WEIGHT_STRIDE]; /* pairs of 16 bits */
} whole_chunk;

static inline float power_of_two(int exponent) { return mf_float_of_bits((uint32_t)(127 + exponent) << 23); }

/* The blocks [block, end_block) and their scales, and the blocks of the next chunk. A position that has infinities or no
 * numbers gets scores that are no number, and zeros for keys and values, which leave other rows alone. */
static void read_blocks(const mf_attend_chunk *c, int block, int end_block, whole_chunk *w) {
    const int64_t sizes = 16 * (c->kind->dk + c->kind->dv_padded);
    const int bits = mf_key_bits(c->kind->dk);
    for (int b = block & ~3; b < ((end_block + 3) & ~3); b++) { /* as many as are ever used together */
        const int is_seen = b >= block && b < end_block;
        w->block[b] = (const uint16_t *)c->blocks[is_seen ? b : block];
        for (int i = 0; i < 16; i++) {
            int key = w->block[b][sizes + i] >> 10 & 31, value = w->block[b][sizes + 16 + i] >> 10 & 31;
            const int is_finite = key < 31 && value < 31, at = 16 * b + i;
            key = key < 1 ? 1 : key, value = value < 1 ? 1 : value;
            w->key_factor[at] = is_finite ? power_of_two(bits + 14 - key) : 0;
            w->key_scale[at] = is_finite ? power_of_two(key - bits - 14) : NAN;
            w->value_factor[at] = is_finite && is_seen ? power_of_two(VALUE_BITS + 14 - value) : 0;
            w->value_size[at] = is_finite ? power_of_two(value) : 0;
        }
    }
    for (int b = 0; b < MF_CHUNK_BLOCKS; b++) {
        w->next[b] = (const uint16_t *)(b < c->n_next ? c->next[b] : c->blocks[block]);
    }
}

/* Blocks lie anywhere, so the hardware does not see the next one coming. What few rows will soon read is asked for twice:
 * while the same place of the chunk before is read into the second-level cache, which takes all of a chunk (a token at
 * depth 4096 is made 30 % faster by one core of Zen 4), and a block or two before into the first. */
static ALWAYS_INLINE void ask_for(const uint16_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i += 32) __builtin_prefetch(from + i, 0, 3);
}

static void ask_for_scales(const mf_attend_chunk *c, int block, int end_block) {
    for (int b = block; b < end_block; b++) {
        __builtin_prefetch(c->blocks[b] + 32 * (c->kind->dk + c->kind->dv_padded), 0, 3);
    }
    for (int b = 0; b < c->n_next; b++) {
        __builtin_prefetch(c->next[b] + 32 * (c->kind->dk + c->kind->dv_padded), 0, 2);
    }
}

/* Keys of `n` blocks for features 2 pair and, unless it is alone, 2 pair + 1. */
static ALWAYS_INLINE void load_pair(const int n, const int is_alone, const whole_chunk *w, int block, int64_t pair,
                                    wholes *key) {
    UNROLLED for (int b = 0; b < n * VECTORS; b++) {
        const int lane = WIDTH * (b % VECTORS);
        const vector factor = LANES(load)(w->key_factor + 16 * block + WIDTH * b);
        const uint16_t *from = w->block[block + b / VECTORS] + 32 * pair + lane;
        key[b] = LANES(pairs)(from, from + (is_alone ? 0 : 16), factor, is_alone ? LANES(set)(0) : factor);
    }
}

static ALWAYS_INLINE void load_keys(const int n, const mf_attend_chunk *c, const whole_chunk *w, int block, int64_t pair,
                                    wholes *key) {
    if (2 * pair + 1 < c->kind->dk) load_pair(n, 0, w, block, pair, key);
    else load_pair(n, 1, w, block, pair, key);
}

/* A row's score at position `at` and those beside it, from its whole sums. */
static ALWAYS_INLINE void store_score(const mf_attend_chunk *c, const whole_chunk *w, int row, int at, wholes sum) {
    const vector scale = LANES(mul)(LANES(load)(w->key_scale + at), LANES(set)(c->q_scale[row]));
    LANES(store)(scores_of(c, row) + at, LANES(mul)(LANES(from_whole)(sum), scale));
}

/* Scores of `rows` rows against `n` blocks of 16 positions. is_ready: keys were converted to [block][pair][16]; else the
 * n blocks `after` and those of the next chunk are asked for by the way. */
static ALWAYS_INLINE void score_blocks(const int rows, const int n, const int is_ready, const mf_attend_chunk *c,
                                       const whole_chunk *w, int row, int block, const uint16_t *const *after) {
    const int64_t pairs = mf_pairs(c->kind->dk);
    const int32_t *q = c->q_pairs + mf_query_of_row(pairs, row), *keys = (const int32_t *)c->room;
    wholes sum[GROUP][FEW_BLOCKS * VECTORS], key[FEW_BLOCKS * VECTORS];
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < n * VECTORS; b++) sum[r][b] = LANES(spread)(0);
    }
    for (int64_t pair = 0; pair < pairs; pair++, q += MF_QUERY_ROWS) {
        UNROLLED for (int b = 0; b < n && !is_ready; b++) {
            __builtin_prefetch(after[b] + 32 * pair, 0, 3);
            __builtin_prefetch(w->next[block + b] + 32 * pair, 0, 2);
        }
        if (is_ready) {
            UNROLLED for (int b = 0; b < n * VECTORS; b++) {
                key[b] = LANES(load_pairs)(keys + 16 * ((block + b / VECTORS) * pairs + pair) + WIDTH * (b % VECTORS));
            }
        } else {
            load_keys(n, c, w, block, pair, key);
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
static void prepare_weights(const mf_attend_chunk *c, whole_chunk *w, int row, int rows) {
    softmax_rows(c, row, rows, w->value_size, &w->sized);
    for (int r = 0; r < rows; r++) choose_unit(c, w, row + r, r);
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

/* The weights of a row into w->weights[r]. begin and end are multiples of PAIRED. */
static void weigh_row(const mf_attend_chunk *c, whole_chunk *w, int row, int r, int begin, int end) {
    const weighing seen = weighing_of(c, w, row, r);
    int32_t *to = w->weights + r * WEIGHT_STRIDE;
    for (int i = begin; i < end; i += PAIRED) {
        LANES(store_pairs)(to + i / 2, LANES(join)(weights_at(&seen, w, i), weights_at(&seen, w, i + WIDTH)));
    }
}

/* values of `rows` rows for `n` slices of 16 features: sums over positions [begin, end), multiples of PAIRED. is_ready:
 * values were converted to [slice][pair of positions][16]. */
static ALWAYS_INLINE void weigh_slices(const int rows, const int n, const int is_ready, const mf_attend_chunk *c,
                                       const whole_chunk *w, int row, int64_t slice, int begin, int end) {
    const int64_t dk = c->kind->dk, dv = c->kind->dv_padded, slice_pairs = 16 * MF_CHUNK_POSITIONS / 2;
    const int32_t *values = (const int32_t *)c->room + MF_CHUNK_POSITIONS * mf_pairs(dk) + slice * slice_pairs;
    wholes sum[GROUP][FEW_BLOCKS * VECTORS], value[FEW_BLOCKS * VECTORS];
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int b = 0; b < n * VECTORS; b++) sum[r][b] = LANES(spread)(0);
    }
    for (int i = begin; i < end; i += PAIRED) {
        const uint16_t *low = w->block[i / 16] + 16 * dk + 256 * slice;
        const uint16_t *high = w->block[(i + WIDTH) / 16] + 16 * dk + 256 * slice + (i + WIDTH) % 16 * 16;
        const int after = i + PAIRED < end ? i + PAIRED : i;
        const int32_t *p = w->weights + i / 2, *ready = values + 16 * (i / 2);
        for (int j = 0; j < WIDTH; j++) {
            vector factor[2];
            if (!is_ready) {
                const int64_t at = 16 * dk + 256 * slice + 32 * (j % 8);
                const uint16_t *soon = w->block[(after + 2 * j) / 16] + at, *later = w->next[(i + 2 * j) / 16] + at;
                UNROLLED for (int b = 0; b < n; b++) {
                    __builtin_prefetch(soon + 256 * b, 0, 3);
                    __builtin_prefetch(later + 256 * b, 0, 2);
                }
                factor[0] = LANES(set)(w->value_factor[i + j]);
                factor[1] = LANES(set)(w->value_factor[i + j + WIDTH]);
            }
            UNROLLED for (int b = 0; b < n * VECTORS; b++) {
                const int64_t at = 16 * j + b / VECTORS * (is_ready ? slice_pairs : 256) + WIDTH * (b % VECTORS);
                value[b] = is_ready ? LANES(load_pairs)(ready + at)
                                    : LANES(pairs)(low + at, high + at, factor[0], factor[1]);
            }
            UNROLLED for (int r = 0; r < rows; r++) {
                const wholes weight = LANES(spread)(p[r * WEIGHT_STRIDE + j]);
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

/* What a group of rows sees: blocks of keys, and positions of values in whole pairs of vectors. */
typedef struct {
    int block, end_block, begin, end;
} span;

static span span_of(const mf_attend_chunk *c, int row, int rows) {
    int begin = MF_CHUNK_POSITIONS, end = 0;
    for (int r = row; r < row + rows; r++) {
        if (c->first[r] >= c->last[r]) continue;
        if (c->first[r] < begin) begin = c->first[r];
        if (c->last[r] > end) end = c->last[r];
    }
    if (begin >= end) return (span){0, 0, 0, 0};
    return (span){begin / 16, (end + 15) / 16, begin / PAIRED * PAIRED, (end + PAIRED - 1) / PAIRED * PAIRED};
}

static void weigh_rows(const mf_attend_chunk *c, whole_chunk *w, int row, int rows, const span *seen) {
    prepare_weights(c, w, row, rows);
    for (int r = 0; r < rows; r++) weigh_row(c, w, row + r, r, seen->begin, seen->end);
}

static void attend_group(const mf_attend_chunk *c, whole_chunk *w, int row) {
    const span seen = span_of(c, row, GROUP);
    const int64_t slices = c->kind->dv_padded / 16;
    int block = seen.block;
    int64_t slice = 0;
    for (; block + GROUP_BLOCKS <= seen.end_block; block += GROUP_BLOCKS) {
        score_blocks(GROUP, GROUP_BLOCKS, 1, c, w, row, block, NULL);
    }
    if (GROUP_BLOCKS > 1 && block < seen.end_block) score_blocks(GROUP, 1, 1, c, w, row, block, NULL);
    weigh_rows(c, w, row, GROUP, &seen);
    for (; slice + GROUP_BLOCKS <= slices; slice += GROUP_BLOCKS) {
        weigh_slices(GROUP, GROUP_BLOCKS, 1, c, w, row, slice, seen.begin, seen.end);
    }
    if (GROUP_BLOCKS > 1 && slice < slices) weigh_slices(GROUP, 1, 1, c, w, row, slice, seen.begin, seen.end);
}

/* Every group of the first `many` rows asks for a share of the next chunk. */
static void ask_for_share(const mf_attend_chunk *c, int row, int rows, int many) {
    const int64_t lines = (16 * (c->kind->dk + c->kind->dv_padded) + 63) / 32;
    const int64_t first = lines * row / many, end = lines * (row + rows) / many;
    for (int b = 0; b < c->n_next; b++) {
        for (int64_t i = first; i < end; i++) __builtin_prefetch(c->next[b] + 64 * i, 0, 2);
    }
}

/* Keys and values of the blocks [block, end_block) into c->room. */
static void convert(const mf_attend_chunk *c, const whole_chunk *w, int block, int end_block) {
    const int64_t dk = c->kind->dk, pairs = mf_pairs(dk), slices = c->kind->dv_padded / 16;
    int32_t *keys = (int32_t *)c->room, *values = keys + MF_CHUNK_POSITIONS * pairs;
    for (int b = block; b < end_block; b++) {
        if (b + 1 < end_block) ask_for(w->block[b + 1], 16 * (dk + c->kind->dv_padded));
        for (int64_t pair = 0; pair < pairs; pair++) {
            wholes key[VECTORS];
            load_keys(1, c, w, b, pair, key);
            UNROLLED for (int v = 0; v < VECTORS; v++) {
                LANES(store_pairs)(keys + 16 * (b * pairs + pair) + WIDTH * v, key[v]);
            }
        }
    }
    for (int i = 16 * block / PAIRED * PAIRED; i < 16 * end_block; i += PAIRED) {
        const uint16_t *low = w->block[i / 16] + 16 * dk;
        const uint16_t *high = w->block[(i + WIDTH) / 16] + 16 * dk + (i + WIDTH) % 16 * 16;
        for (int j = 0; j < WIDTH; j++) {
            const vector first = LANES(set)(w->value_factor[i + j]), second = LANES(set)(w->value_factor[i + j + WIDTH]);
            for (int64_t slice = 0; slice < slices; slice++) {
                int32_t *to = values + 16 * (slice * MF_CHUNK_POSITIONS / 2 + i / 2 + j);
                UNROLLED for (int v = 0; v < VECTORS; v++) {
                    const int64_t at = 256 * slice + 16 * j + WIDTH * v;
                    LANES(store_pairs)(to + WIDTH * v, LANES(pairs)(low + at, high + at, first, second));
                }
            }
        }
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
        const uint16_t *after[FEW_BLOCKS];
        n = seen.end_block - block >= FEW_BLOCKS ? FEW_BLOCKS : 1;
        for (int b = 0; b < n; b++) { /* the next keys, and in the end the first values */
            after[b] = block + n + b < seen.end_block ? w->block[block + n + b]
                                                      : w->block[seen.block] + 16 * c->kind->dk;
        }
#define CALL(rows, n) score_blocks(rows, n, 0, c, w, row, block, after)
        FOR_FEW(rows, n, CALL)
#undef CALL
    }
    weigh_rows(c, w, row, rows, &seen);
    for (int64_t slice = 0, n; slice < slices; slice += n) {
        n = slices - slice >= FEW_BLOCKS ? FEW_BLOCKS : 1;
#define CALL(rows, n) weigh_slices(rows, n, 0, c, w, row, slice, seen.begin, seen.end)
        FOR_FEW(rows, n, CALL)
#undef CALL
    }
}

/* The rows from `row` on, a few at a time, which lie together among the queries. */
static void attend_rest(const mf_attend_chunk *c, whole_chunk *w, int row) {
    for (int rows; row < c->n_rows; row += rows) {
        const int together = MF_QUERY_ROWS - row % MF_QUERY_ROWS, left = c->n_rows - row;
        rows = few_rows(left < together ? left : together);
        attend_few(c, w, row, rows);
    }
}

static void attend_half(const mf_attend_chunk *c) {
    const int many = c->n_rows / GROUP * GROUP;
    const span seen = span_of(c, 0, c->n_rows);
    whole_chunk w;
    if (seen.block >= seen.end_block) {
        clear_values(c, 0, c->n_rows);
        return;
    }
    ask_for_scales(c, seen.block, seen.end_block);
    read_blocks(c, seen.block, seen.end_block, &w);
    if (many) convert(c, &w, seen.block, seen.end_block);
    for (int row = 0; row < many; row += GROUP) {
        ask_for_share(c, row, GROUP, many);
        attend_group(c, &w, row);
    }
    attend_rest(c, &w, many);
}

/* A query as whole numbers up to `limit`, in `row` and as pairs in every MF_QUERY_ROWS-th place of `pairs`; returns what
 * one is worth. */
static float query_pairs(int64_t n, const float *x, float limit, int16_t *row, int32_t *pairs) {
    uint32_t bits = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t size = mf_bits_of_float(x[i]) & 0x7fffffff;
        bits = size > bits ? size : bits;
    }
    if (bits >= 0x7f800000) bits = 0x7fc00000; /* no number */
    const float most = mf_float_of_bits(bits);
    const float factor = most > 1e-30f ? limit / most : 0;
    for (int64_t i = 0; i < n; i++) row[i] = (int16_t)mf_bits_of_float(fmaf(x[i], factor, ROUNDING));
    for (int64_t i = 0; i < n; i += 2, pairs += MF_QUERY_ROWS) {
        *pairs = (int32_t)((uint16_t)row[i] | (i + 1 < n ? (uint32_t)(uint16_t)row[i + 1] << 16 : 0));
    }
    return most / limit;
}
