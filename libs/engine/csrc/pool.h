/* A pool of threads that share one job at a time. Waiting is spin, then yield, then sleep. */
#ifndef MINFER_POOL_H
#define MINFER_POOL_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct mf_pool mf_pool;

/* Called once by every thread that arrives while the job is open; thread 0 is the caller. A job must not
 * count on any other thread than 0 to arrive: it hands out work through its own counters. */
typedef void (*mf_job)(void *context, int thread);

/* NULL when memory or threads cannot be had. Threads beyond the caller start with the first job. */
mf_pool *mf_pool_new(int n_threads);
void mf_pool_free(mf_pool *pool);
int mf_pool_threads(const mf_pool *pool);

/* Run a job; returns when thread 0 and all that joined it are done. Jobs of different callers queue. */
void mf_pool_run(mf_pool *pool, mf_job job, void *context);

/* Wait until *word differs from `seen`: for threads inside a job. */
void mf_pool_wait(mf_pool *pool, _Atomic uint64_t *word, uint64_t seen);

/* To be called after a word that others may be waiting for was changed (sequentially consistent store). */
void mf_pool_wake(mf_pool *pool);

/* Calls piece(context, i) for i in [0, n), on any thread in any order. */
void mf_pool_for(mf_pool *pool, int64_t n, void (*piece)(void *context, int64_t i), void *context);

#endif
