#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "pages.h"

enum {
    SPIN_NANOSECONDS = 60000,   /* between two operations of a step, or two steps without much in between */
    YIELD_NANOSECONDS = 200000, /* gives way to whoever else wants the core; then sleep */
    PAUSES_PER_CLOCK = 64,
    CACHE_LINE = 128,
};

struct mf_pool {
    _Alignas(CACHE_LINE) _Atomic uint64_t generation; /* counts jobs; workers wait for it to change */
    _Alignas(CACHE_LINE) _Atomic int open;            /* whether a worker may still join */
    _Alignas(CACHE_LINE) _Atomic int joined;          /* workers inside the job */
    _Alignas(CACHE_LINE) _Atomic int sleepers;
    _Alignas(CACHE_LINE) mf_job job;
    void *context;
    _Atomic bool is_closing;
    pthread_mutex_t sleep_lock; /* held only to go to sleep and to wake */
    pthread_cond_t sleep_signal;
    pthread_mutex_t job_lock; /* one job at a time */
    pthread_t *workers;
    int n_threads, n_started;
    pid_t process; /* the workers of a parent do not exist in its forked child */
};

typedef struct {
    mf_pool *pool;
    int thread;
} worker_start;

static inline void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void mf_pool_wait(mf_pool *pool, _Atomic uint64_t *word, uint64_t seen) {
    int64_t start = 0, waited;
    do {
        for (int i = 0; i < PAUSES_PER_CLOCK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != seen) return;
            pause_core();
        }
        int64_t now = mf_nanoseconds();
        if (!start) start = now;
        waited = now - start;
        if (waited > SPIN_NANOSECONDS) sched_yield();
    } while (waited < SPIN_NANOSECONDS + YIELD_NANOSECONDS);
    pthread_mutex_lock(&pool->sleep_lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(word) == seen) pthread_cond_wait(&pool->sleep_signal, &pool->sleep_lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->sleep_lock);
}

void mf_pool_wake(mf_pool *pool) {
    /* Sleepers announce themselves before they look at the word, we changed the word before looking for
     * sleepers, all of it in one total order: one of the two sees the other. */
    if (atomic_load(&pool->sleepers) == 0) return;
    pthread_mutex_lock(&pool->sleep_lock);
    pthread_cond_broadcast(&pool->sleep_signal);
    pthread_mutex_unlock(&pool->sleep_lock);
}

static void *work(void *argument) {
    worker_start start = *(worker_start *)argument;
    free(argument);
    mf_pool *pool = start.pool;
    uint64_t seen = 0;
    while (!atomic_load(&pool->is_closing)) {
        mf_pool_wait(pool, &pool->generation, seen);
        seen = atomic_load(&pool->generation);
        atomic_fetch_add(&pool->joined, 1);
        if (atomic_load(&pool->open)) pool->job(pool->context, start.thread);
        atomic_fetch_sub(&pool->joined, 1);
    }
    return NULL;
}

static void start_workers(mf_pool *pool) {
    pool->process = getpid();
    atomic_store(&pool->generation, 0);
    atomic_store(&pool->open, 0);
    atomic_store(&pool->joined, 0);
    atomic_store(&pool->sleepers, 0);
    pthread_mutex_init(&pool->sleep_lock, NULL);
    pthread_cond_init(&pool->sleep_signal, NULL);
    pool->n_started = 0;
    sigset_t all, before; /* signals are for the threads of the program, not for ours */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int thread = 1; thread < pool->n_threads; thread++) {
        worker_start *start = malloc(sizeof *start);
        if (!start) break; /* fewer threads give the same result later */
        *start = (worker_start){pool, thread};
        if (pthread_create(&pool->workers[pool->n_started], NULL, work, start)) {
            free(start);
            break;
        }
        pool->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

mf_pool *mf_pool_new(int n_threads) {
    if (n_threads < 1) n_threads = 1;
    mf_pool *pool = NULL;
    if (posix_memalign((void **)&pool, CACHE_LINE, sizeof *pool)) return NULL;
    *pool = (mf_pool){.n_threads = n_threads};
    pool->workers = calloc((size_t)n_threads, sizeof *pool->workers);
    if (!pool->workers) {
        free(pool);
        return NULL;
    }
    pthread_mutex_init(&pool->job_lock, NULL);
    return pool;
}

static void stop_workers(mf_pool *pool) {
    atomic_store(&pool->is_closing, true);
    atomic_store(&pool->open, 0);
    atomic_fetch_add(&pool->generation, 1);
    mf_pool_wake(pool);
    for (int i = 0; i < pool->n_started; i++) pthread_join(pool->workers[i], NULL);
}

void mf_pool_free(mf_pool *pool) {
    if (!pool) return;
    if (pool->process == getpid()) stop_workers(pool);
    free(pool->workers);
    free(pool);
}

int mf_pool_threads(const mf_pool *pool) { return pool->n_threads; }

void mf_pool_run(mf_pool *pool, mf_job job, void *context) {
    if (pool->process && pool->process != getpid()) pthread_mutex_init(&pool->job_lock, NULL);
    pthread_mutex_lock(&pool->job_lock);
    if (pool->process != getpid()) start_workers(pool);
    pool->job = job;
    pool->context = context;
    atomic_store(&pool->open, 1);
    atomic_fetch_add(&pool->generation, 1);
    mf_pool_wake(pool);
    job(context, 0);
    atomic_store(&pool->open, 0);
    for (int tries = 0; atomic_load(&pool->joined); tries++) {
        if (tries < PAUSES_PER_CLOCK * 16) {
            pause_core();
        } else {
            sched_yield();
        }
    }
    pthread_mutex_unlock(&pool->job_lock);
}

typedef struct {
    _Atomic int64_t next;
    int64_t n;
    void (*piece)(void *, int64_t);
    void *context;
} for_loop;

static void run_pieces(void *argument, int thread) {
    (void)thread;
    for_loop *loop = argument;
    for (int64_t i; (i = atomic_fetch_add(&loop->next, 1)) < loop->n;) loop->piece(loop->context, i);
}

void mf_pool_for(mf_pool *pool, int64_t n, void (*piece)(void *context, int64_t i), void *context) {
    for_loop loop = {0, n, piece, context};
    mf_pool_run(pool, run_pieces, &loop);
}
