/* Memory straight from the system, and its slow conversion to large pages. */
#ifndef MINFER_PAGES_H
#define MINFER_PAGES_H

#include <stdint.h>

/* Zeroed, 4 KiB aligned at least, given back whole; NULL when there is none. */
void *mf_pages_new(int64_t n_bytes);
void mf_pages_free(void *pages, int64_t n_bytes);

/* Ask for large pages as the memory is first touched. What streams past is read a fifth to two fifths faster from them;
 * not for memory of which only little is used. */
void mf_pages_prefer_large(void *pages, int64_t n_bytes);

/* Conversion of what did not get large pages at once: at most one at a time, paid out of a small share of the time of
 * steps, as finding one can take the system long. */
typedef struct {
    uint8_t *next, *end;
    int64_t credit; /* nanoseconds that may be spent */
} mf_large_pages;

void mf_large_pages_begin(mf_large_pages *state, void *pages, int64_t n_bytes);
/* To be called after each step of `step_nanoseconds`. Costs nothing once all is done or refused. */
void mf_large_pages_step(mf_large_pages *state, int64_t step_nanoseconds);

int64_t mf_nanoseconds(void);

#endif
