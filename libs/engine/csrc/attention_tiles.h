/* Attention of many rows as products of AMX tiles: 16 rows by 16 positions, or by 16 features. A whole number is
 * 256 times its high byte plus its low one, so that four products of bytes make one of 16 bits: exact, and so the same
 * bits as attention_whole.h, which has what is left of the rows. Four bytes of a lane are numbers 0, 2, 1 and 3 of a
 * group: that is how pairs of 16 bits come apart most easily. */

/* STEP: bytes of a row of a tile. SLICE_BYTES: 16 features of the values of a chunk. */
enum { TILE_ROWS = 16, STEP = 64, PLANES = 2, TILE_BYTES = 16 * STEP, SLICE_BYTES = PLANES * 16 * MF_CHUNK_POSITIONS };

typedef struct {
    _Alignas(64) uint8_t left[4][PLANES][TILE_BYTES]; /* by step: queries, then weights */
    _Alignas(64) int32_t sums[2][3][TILE_ROWS][16];
} tile_room;

static void configure_tiles(void) {
    mf_tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.rows[i] = 16, config.row_bytes[i] = STEP;
    mf_tile_configure(&config);
}

/* The bytes of two vectors of pairs: low ones, high ones. */
static ALWAYS_INLINE void store_planes(wholes a, wholes b, uint8_t *low, uint8_t *high) {
    const wholes mask = LANES(spread)(0x00ff00ff);
    LANES(store_pairs)((int32_t *)low, LANES(choose)(mask, a, LANES(shift_left_8)(b)));
    LANES(store_pairs)((int32_t *)high, LANES(choose)(mask, LANES(shift_right_8)(a), b));
}

/* Keys of a block: [step][plane][four features][16 positions][4]. */
static void convert_keys(const mf_attend_chunk *c, const int32_t *from, uint8_t *to) {
    for (int64_t d = 0; d < c->kind->dk; d += 4, from += 32) {
        uint8_t *low = to + d / STEP * PLANES * TILE_BYTES + d % STEP / 4 * 64;
        store_planes(LANES(load_pairs)(from), LANES(load_pairs)(from + 16), low, low + TILE_BYTES);
    }
}

/* Values of a block, a quarter of a tile of 64 positions: [slice][plane][four positions][16 features][4]. */
static void convert_values(const mf_attend_chunk *c, const int32_t *from, uint8_t *to) {
    for (int64_t slice = 0; slice < c->kind->dv_padded / 16; slice++, to += SLICE_BYTES) {
        for (int i = 0; i < 4; i++, from += 32) {
            uint8_t *low = to + 64 * i;
            store_planes(LANES(load_pairs)(from), LANES(load_pairs)(from + 16), low, low + TILE_BYTES);
        }
    }
}

/* The last tile of values is filled up: with any block, as its weights are zeros. */
static void convert_tiles(const mf_attend_chunk *c, const whole_chunk *w, int block, int end_block, uint8_t *keys,
                          uint8_t *values) {
    const int64_t key_pairs = mf_key_pairs(c->kind->dk);
    for (int b = block & ~3; b < ((end_block + 3) & ~3); b++) {
        if (b + 1 < end_block) ask_for(w->block[b + 1], key_pairs + mf_value_pairs(c->kind->dv_padded));
        if (b >= block && b < end_block) convert_keys(c, w->block[b], keys + b * 32 * c->kind->dk);
        convert_values(c, w->block[b] + key_pairs, values + b / 4 * PLANES * TILE_BYTES + b % 4 * 256);
    }
}

/* Left operands times right ones, step after step, into `sums`: high by high, mixed, low by low. Tile registers 3 and 4
 * hold the low and high bytes on the left, 5 and 6 those on the right. */
static ALWAYS_INLINE void multiply_tiles(int steps, const uint8_t *left, const uint8_t *right, int32_t *sums) {
    MF_TILE_ZERO(0);
    MF_TILE_ZERO(1);
    MF_TILE_ZERO(2);
    for (int i = 0; i < steps; i++, left += PLANES * TILE_BYTES, right += PLANES * TILE_BYTES) {
        MF_TILE_LOAD(3, left, STEP);
        MF_TILE_LOAD(5, right, STEP);
        MF_TILE_LOAD(4, left + TILE_BYTES, STEP);
        MF_TILE_LOAD(6, right + TILE_BYTES, STEP);
        MF_TILE_PRODUCT_OF("uu", 2, 3, 5);
        MF_TILE_PRODUCT_OF("su", 1, 4, 5);
        MF_TILE_PRODUCT_OF("ss", 0, 4, 6);
        MF_TILE_PRODUCT_OF("us", 1, 3, 6);
    }
    MF_TILE_STORE(2, sums + 2 * 256, 64);
    MF_TILE_STORE(1, sums + 256, 64);
    MF_TILE_STORE(0, sums, 64);
}

static ALWAYS_INLINE wholes sum_of_planes(const int32_t sums[3][TILE_ROWS][16], int r) {
    return LANES(plus_shifted)(LANES(load_pairs)(sums[0][r]), LANES(load_pairs)(sums[1][r]),
                               LANES(load_pairs)(sums[2][r]));
}

static void store_scores(const mf_attend_chunk *c, const whole_chunk *w, int row, int block,
                         const int32_t sums[3][TILE_ROWS][16]) {
    UNROLLED for (int r = 0; r < TILE_ROWS; r++) store_score(c, w, row + r, 16 * block, sum_of_planes(sums, r));
}

/* 64 numbers of row r of the left operand. */
static ALWAYS_INLINE void store_left(const int32_t *pairs, tile_room *room, int step, int r) {
    const wholes first = LANES(load_pairs)(pairs), second = LANES(load_pairs)(pairs + 16);
    store_planes(LANES(even_lanes)(first, second), LANES(odd_lanes)(first, second), room->left[step][0] + r * STEP,
                 room->left[step][1] + r * STEP);
}

/* One product is always under way while the one before is scaled. */
static void score_tiles(const mf_attend_chunk *c, const whole_chunk *w, int row, const span *seen, const uint8_t *keys,
                        tile_room *room) {
    const int64_t dk = c->kind->dk;
    const int steps = (int)(dk / STEP);
    for (int r = 0; r < TILE_ROWS; r++) {
        const int32_t *q = (const int32_t *)(c->q_rows + (row + r) * dk);
        for (int i = 0; i < steps; i++) store_left(q + STEP / 2 * i, room, i, r);
    }
    for (int block = seen->block; block <= seen->end_block; block++) {
        if (block < seen->end_block) {
            multiply_tiles(steps, room->left[0][0], keys + block * 32 * dk, room->sums[block % 2][0][0]);
        }
        if (block > seen->block) store_scores(c, w, row, block - 1, room->sums[(block - 1) % 2]);
    }
}

/* As weigh_row, to the bytes of row r in tiles of 64 positions. */
static void weigh_tile_row(const mf_attend_chunk *c, const whole_chunk *w, int row, int r, int begin, int end,
                           tile_room *room) {
    const weighing seen = weighing_of(c, w, row, r);
    for (int i = begin; i < end; i += STEP) {
        _Alignas(64) int32_t part[STEP / 2];
        UNROLLED for (int h = 0; h < STEP; h += 16) LANES(store_shorts)(part + h / 2, weights_at(&seen, w, i + h));
        store_left(part, room, i / STEP, r);
    }
}

static void store_values(const mf_attend_chunk *c, const whole_chunk *w, int row, int64_t slice,
                         const int32_t sums[3][TILE_ROWS][16]) {
    UNROLLED for (int r = 0; r < TILE_ROWS; r++) {
        LANES(store)(c->values + (row + r) * c->kind->dv_padded + 16 * slice,
                     LANES(mul)(LANES(from_whole)(sum_of_planes(sums, r)), LANES(set)(w->unit[r])));
    }
}

static void attend_tile(const mf_attend_chunk *c, whole_chunk *w, int row, const uint8_t *keys, const uint8_t *values,
                        tile_room *room) {
    const span seen = span_of(c, row, TILE_ROWS);
    const int begin = seen.block / 4, end = (seen.end_block + 3) / 4; /* tiles of 64 positions */
    const int64_t slices = c->kind->dv_padded / 16;
    score_tiles(c, w, row, &seen, keys, room);
    prepare_weights(c, w, row, TILE_ROWS, 0);
    for (int r = 0; r < TILE_ROWS; r++) weigh_tile_row(c, w, row + r, r, begin * STEP, end * STEP, room);
    for (int64_t slice = 0; slice <= slices; slice++) {
        if (slice < slices) {
            multiply_tiles(end - begin, room->left[begin][0],
                           values + slice * SLICE_BYTES + begin * PLANES * TILE_BYTES, room->sums[slice % 2][0][0]);
        }
        if (slice > 0) store_values(c, w, row, slice - 1, room->sums[(slice - 1) % 2]);
    }
}

static void attend_whole_tiles(const mf_attend_chunk *c) {
    const int many = c->n_rows / TILE_ROWS * TILE_ROWS;
    const span seen = span_of(c, 0, c->n_rows);
    if (!many || c->kind->dk % STEP || c->kind->dk > 4 * STEP || seen.block >= seen.end_block) {
        attend_whole(c);
        return;
    }
    uint8_t *keys = (uint8_t *)c->room, *values = keys + 2 * MF_CHUNK_POSITIONS * c->kind->dk;
    whole_chunk w;
    tile_room room;
    ask_for_scales(c, seen.block, seen.end_block);
    read_blocks(c, seen.block, seen.end_block, &w);
    convert_tiles(c, &w, seen.block, seen.end_block, keys, values);
    configure_tiles();
    for (int row = 0; row < many; row += TILE_ROWS) {
        ask_for_share(c, row, TILE_ROWS, many);
        attend_tile(c, &w, row, keys, values, &room);
    }
    mf_tile_release();
    attend_rest(c, &w, many);
}
