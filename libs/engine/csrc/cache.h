/* The bytes of the KV cache: for each group [slot][block][kv head][keys, values, magnitudes if f16: kernels.h]. */
#ifndef MINFER_CACHE_H
#define MINFER_CACHE_H

#include "minfer_native.h"
#include "pages.h"

typedef struct {
    mf_cache_group spec;
    uint8_t *data;
    int64_t n_blocks, n_bytes;
    int64_t head_bytes, block_bytes; /* of one slot */
} mf_cache_store;

struct mf_cache {
    int32_t n_groups;
    mf_cache_store group[];
};

int64_t mf_cache_head_bytes(const mf_cache_group *spec);

static inline uint8_t *mf_cache_block(const mf_cache_store *store, int32_t slot, int64_t block) {
    return store->data + ((int64_t)slot * store->n_blocks + block) * store->block_bytes;
}

#endif
