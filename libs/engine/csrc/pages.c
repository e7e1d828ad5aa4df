#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "pages.h"

#include <stddef.h>
#include <sys/mman.h>
#include <time.h>

enum { LARGE = 2 << 20, LEAST_LARGE = LARGE / 2, SHARE = 32 /* one part in so many of the time */, MADVISE_COLLAPSE = 25 };

/* What is worth a large page begins at one and ends with one: a part of a large page cannot be had. */
static size_t whole_pages(int64_t n_bytes) {
    if (n_bytes <= 0) n_bytes = 1;
    return (size_t)(n_bytes < LEAST_LARGE ? n_bytes : (n_bytes + LARGE - 1) / LARGE * LARGE);
}

void *mf_pages_new(int64_t n_bytes) {
    const size_t size = whole_pages(n_bytes), spare = n_bytes < LEAST_LARGE ? 0 : LARGE;
    uint8_t *pages = mmap(NULL, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return NULL;
    if (!spare) return pages;
    const size_t before = -(uintptr_t)pages % LARGE;
    if (before) munmap(pages, before);
    if (before < spare) munmap(pages + before + size, spare - before);
    return pages + before;
}

void mf_pages_prefer_large(void *pages, int64_t n_bytes) {
#if defined(__linux__)
    if (!pages || n_bytes < LEAST_LARGE) return;
    madvise(pages, whole_pages(n_bytes), MADV_HUGEPAGE); /* a wish: no matter if refused */
#else
    (void)pages, (void)n_bytes;
#endif
}

void mf_pages_free(void *pages, int64_t n_bytes) {
    if (pages) munmap(pages, whole_pages(n_bytes));
}

int64_t mf_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void mf_large_pages_begin(mf_large_pages *state, void *pages, int64_t n_bytes) {
    uintptr_t first = ((uintptr_t)pages + LARGE - 1) / LARGE * LARGE;
    uintptr_t end = ((uintptr_t)pages + (uintptr_t)n_bytes) / LARGE * LARGE;
    *state = (mf_large_pages){(uint8_t *)first, (uint8_t *)(end > first ? end : first), 0};
}

void mf_large_pages_step(mf_large_pages *state, int64_t step_nanoseconds) {
    if (state->next == state->end) return;
    state->credit += step_nanoseconds / SHARE;
    if (state->credit <= 0) return;
    int64_t start = mf_nanoseconds();
#if defined(__linux__)
    if (madvise(state->next, LARGE, MADVISE_COLLAPSE)) {
        state->next = state->end; /* an older kernel, large pages switched off, or none to be had */
        return;
    }
#endif
    state->next += LARGE;
    state->credit -= mf_nanoseconds() - start;
}
