/* The instructions of AMX tiles by their assembler's names, so that neither an old compiler's intrinsics nor its idea of
 * what they touch matter. */
#ifndef MINFER_AMX_TILES_H
#define MINFER_AMX_TILES_H

#include <stdint.h>

#if defined(__x86_64__) && defined(__linux__) && (__GNUC__ >= 11 || __clang_major__ >= 11) /* whose assembler knows them */
#define MF_HAVE_AMX 1

/* Rows and bytes of each tile register, as the instruction reads them. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} mf_tile_config;

#define MF_TILE_LOAD(tile, base, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(base), "r"((int64_t)(stride)) : "memory")
#define MF_TILE_STORE(tile, base, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(base), "r"((int64_t)(stride)) : "memory")
#define MF_TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
/* sums += left times right, kind: whether their bytes are signed, as two letters s or u */
#define MF_TILE_PRODUCT_OF(kind, sums, left, right) \
    __asm__ volatile("tdpb" kind "d %%tmm" #right ", %%tmm" #left ", %%tmm" #sums ::)

static inline void mf_tile_configure(const mf_tile_config *config) { __asm__ volatile("ldtilecfg %0" ::"m"(*config)); }
static inline void mf_tile_release(void) { __asm__ volatile("tilerelease"); }

#endif
#endif
