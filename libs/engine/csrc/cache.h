/* The bytes of the KV cache: for each group [chunk of blocks][slot][kv head][block][keys, values, magnitudes if whole:
 * kernels.h]. What a head reads of a chunk is one stretch of memory where a sequence has its blocks in order, and the
 * hardware sees the next block coming. Chunks come first, so that a short sequence touches few of the large pages. */
#ifndef MINFER_CACHE_H
#define MINFER_CACHE_H

#include "kernels.h"
#include "minfer_native.h"
#include "pages.h"

typedef struct {
    mf_cache_group spec;
    uint8_t *data;
    int64_t n_blocks, n_bytes;
    int64_t head_bytes; /* of one block */
} mf_cache_store;

struct mf_cache {
    int32_t n_groups;
    mf_cache_store group[];
};

int64_t mf_cache_head_bytes(const mf_cache_group *spec);

/* One head's part of a block. */
static inline uint8_t *mf_cache_part(const mf_cache_store *store, int32_t slot, int64_t block, int32_t head) {
    const int64_t stretch = (block / MF_CHUNK_BLOCKS * store->spec.n_slots + slot) * store->spec.n_kv + head;
    return store->data + (stretch * MF_CHUNK_BLOCKS + block % MF_CHUNK_BLOCKS) * store->head_bytes;
}

#endif
