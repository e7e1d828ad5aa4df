#include "cache.h"

#include <stdlib.h>
#include <string.h>

int64_t mf_cache_head_bytes(const mf_cache_group *spec) {
    const int64_t padded = (spec->dv + 15) / 16 * 16, magnitudes = 2 * MF_BLOCK_POSITIONS * (int64_t)sizeof(uint16_t);
    if (spec->is_whole) return mf_whole_bytes(spec->dk, padded) + magnitudes;
    return (spec->dk + padded) * MF_BLOCK_POSITIONS * (int64_t)sizeof(float);
}

int64_t mf_cache_block_bytes(const mf_cache_group *group) { return mf_cache_head_bytes(group) * group->n_kv; }

mf_cache *mf_cache_new(const mf_cache_group *groups, int32_t n_groups, const int64_t *n_blocks) {
    mf_cache *cache = calloc(1, sizeof *cache + (size_t)n_groups * sizeof cache->group[0]);
    if (!cache) return NULL;
    cache->n_groups = n_groups;
    for (int32_t g = 0; g < n_groups; g++) {
        mf_cache_store *store = &cache->group[g];
        store->spec = groups[g];
        store->n_blocks = n_blocks[g];
        store->head_bytes = mf_cache_head_bytes(&groups[g]);
        const int64_t n_whole = (n_blocks[g] + MF_CHUNK_BLOCKS - 1) / MF_CHUNK_BLOCKS * MF_CHUNK_BLOCKS;
        store->n_bytes = mf_cache_block_bytes(&groups[g]) * n_whole * groups[g].n_slots;
        store->data = mf_pages_new(store->n_bytes);
        mf_pages_prefer_large(store->data, store->n_bytes);
        if (!store->data) {
            mf_cache_free(cache);
            return NULL;
        }
    }
    return cache;
}

void mf_cache_free(mf_cache *cache) {
    if (!cache) return;
    for (int32_t g = 0; g < cache->n_groups; g++) mf_pages_free(cache->group[g].data, cache->group[g].n_bytes);
    free(cache);
}

int64_t mf_cache_bytes(const mf_cache *cache) {
    int64_t total = 0;
    for (int32_t g = 0; g < cache->n_groups; g++) total += cache->group[g].n_bytes;
    return total;
}

static mf_cache_store *store_of(const mf_cache *cache, int32_t group, int64_t block) {
    if (group < 0 || group >= cache->n_groups) return NULL;
    mf_cache_store *store = (mf_cache_store *)&cache->group[group];
    return block < 0 || block >= store->n_blocks ? NULL : store;
}

/* The parts of a block: its heads by slot. */
static int32_t n_parts(const mf_cache_store *store) { return store->spec.n_slots * store->spec.n_kv; }

static uint8_t *part_of(const mf_cache_store *store, int64_t block, int32_t index) {
    return mf_cache_part(store, index / store->spec.n_kv, block, index % store->spec.n_kv);
}

int mf_cache_copy(mf_cache *cache, int32_t group, int64_t source, int64_t target) {
    mf_cache_store *store = store_of(cache, group, source);
    if (!store || !store_of(cache, group, target)) return MF_BAD_BATCH;
    for (int32_t i = 0; i < n_parts(store); i++) {
        memmove(part_of(store, target, i), part_of(store, source, i), (size_t)store->head_bytes);
    }
    return MF_OK;
}

int mf_cache_read(const mf_cache *cache, int32_t group, int64_t block, uint8_t *data) {
    mf_cache_store *store = store_of(cache, group, block);
    if (!store) return MF_BAD_BATCH;
    for (int32_t i = 0; i < n_parts(store); i++, data += store->head_bytes) {
        memcpy(data, part_of(store, block, i), (size_t)store->head_bytes);
    }
    return MF_OK;
}

int mf_cache_write(mf_cache *cache, int32_t group, int64_t block, const uint8_t *data) {
    mf_cache_store *store = store_of(cache, group, block);
    if (!store) return MF_BAD_BATCH;
    for (int32_t i = 0; i < n_parts(store); i++, data += store->head_bytes) {
        memcpy(part_of(store, block, i), data, (size_t)store->head_bytes);
    }
    return MF_OK;
}
