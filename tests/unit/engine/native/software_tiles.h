/* The instructions of csrc/amx_tiles.h in plain C, as Intel's manual describes them, for CPUs that lack them. Compiled
 * in with -include, it takes that header's place. */
#ifndef MINFER_AMX_TILES_H
#define MINFER_AMX_TILES_H

#include <stdint.h>
#include <string.h>

#define MF_HAVE_AMX 1
#define SOFTWARE_TILES 1

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} mf_tile_config;

typedef struct {
    mf_tile_config config;
    uint8_t data[8][16][64];
} mf_tiles;

static __thread mf_tiles mf_software_tiles;

static inline void mf_tile_configure(const mf_tile_config *config) {
    memset(&mf_software_tiles, 0, sizeof mf_software_tiles);
    mf_software_tiles.config = *config;
}
static inline void mf_tile_release(void) { memset(&mf_software_tiles, 0, sizeof mf_software_tiles); }

static inline void mf_tile_move(int tile, uint8_t *base, int64_t stride, int is_store) {
    const mf_tiles *t = &mf_software_tiles;
    for (int row = 0; row < t->config.rows[tile]; row++) {
        uint8_t *memory = base + row * stride, *line = mf_software_tiles.data[tile][row];
        memcpy(is_store ? memory : line, is_store ? line : memory, t->config.row_bytes[tile]);
    }
}
#define MF_TILE_LOAD(tile, base, stride) mf_tile_move(tile, (uint8_t *)(uintptr_t)(base), stride, 0)
#define MF_TILE_STORE(tile, base, stride) mf_tile_move(tile, (uint8_t *)(base), stride, 1)
#define MF_TILE_ZERO(tile) memset(mf_software_tiles.data[tile], 0, sizeof mf_software_tiles.data[tile])

static inline int32_t mf_tile_byte(char kind, uint8_t byte) { return kind == 's' ? (int8_t)byte : byte; }

static inline void mf_tile_product(const char *kind, int sums, int left, int right) {
    mf_tiles *t = &mf_software_tiles;
    for (int m = 0; m < t->config.rows[sums]; m++) {
        for (int n = 0; n < t->config.row_bytes[sums] / 4; n++) {
            int32_t sum;
            memcpy(&sum, &t->data[sums][m][4 * n], 4);
            for (int k = 0; k < t->config.row_bytes[left]; k++) {
                const int32_t product = mf_tile_byte(kind[0], t->data[left][m][k]) *
                                        mf_tile_byte(kind[1], t->data[right][k / 4][4 * n + k % 4]);
                sum = (int32_t)((uint32_t)sum + (uint32_t)product);
            }
            memcpy(&t->data[sums][m][4 * n], &sum, 4);
        }
    }
}
#define MF_TILE_PRODUCT_OF(kind, sums, left, right) mf_tile_product(kind, sums, left, right)

#endif
