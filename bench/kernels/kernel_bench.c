/* How fast the matrix kernels are, beside what this machine can do at all.
 *
 * One column: GB/s of weights streamed from memory, beside the same buffer read by plain loads in the same rounds.
 * Many columns: multiply-adds per core cycle, beside a loop of register-only multiply-adds as the ceiling.
 * The machine is shared: figures are the best tenth and the median of many short alternating rounds.
 * Usage: kernel_bench [isa or ""] [seconds per section] [huge]. */
#define _GNU_SOURCE
#include "minfer_matmul.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { STREAM_BYTES = 96 << 20, MOST_THREADS = 2 };

static const struct {
    int type;
    const char *name;
} types[] = {{MF_Q4_1, "Q4_1"}, {MF_Q5_0, "Q5_0"}, {MF_Q8_0, "Q8_0"}, {MF_Q6_K, "Q6_K"}, {MF_Q4_K, "Q4_K"}, {MF_Q4_0, "Q4_0"},
             {MF_Q5_1, "Q5_1"}, {MF_Q5_K, "Q5_K"}, {MF_F16, "F16"}, {MF_BF16, "BF16"}, {MF_F32, "F32"}};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#define HIDE(x) __extension__({ __asm__ volatile("" : "+r"(x)); })

/* Core clock in Hz: a chain of dependent additions of a register takes one cycle each (of constants
 * less where the renamer folds them). */
static double core_clock(void) {
    double best = 1e9;
    for (int round = 0; round < 200; round++) {
        const double start = seconds();
        unsigned long long x = 1, y = 3;
        HIDE(y);
        for (int i = 0; i < 1000; i++) {
            x += y, HIDE(x);
            x ^= y, HIDE(x);
            x += y, HIDE(x);
            x ^= y, HIDE(x);
        }
        const double took = seconds() - start;
        if (took < best) best = took;
    }
    return 4000 / best;
}

/* One thread's share of a stream: slices of panels, in turn multiplied and read. */
enum { SLICES = 4000 };

typedef struct job {
    const mf_kernels *kernels;
    const mf_weight *weight;
    const void *activations;
    mf_output out;
    int64_t first, last, slice; /* panels */
    double limit;
    pthread_barrier_t *barrier;
    int n;
    double product[SLICES], read[SLICES];
    unsigned long long sum;
} job;

/* Four streams: one alone leaves the memory idle between its pages. */
static unsigned long long read_bytes(const uint8_t *p, int64_t bytes) {
    typedef unsigned long long lanes __attribute__((vector_size(32), aligned(32)));
    enum { STREAMS = 4 };
    const int64_t quarter = bytes / STREAMS / 64 * 64;
    lanes sum[STREAMS] = {{0}};
    for (int64_t i = 0; i < quarter; i += 64)
        for (int s = 0; s < STREAMS; s++) {
            const lanes *v = (const lanes *)(const void *)(p + s * quarter + i);
            sum[s] += v[0] + v[1];
        }
    const lanes all = sum[0] + sum[1] + sum[2] + sum[3];
    return all[0] + all[1] + all[2] + all[3];
}

/* The slices of one round are far apart, so that neither finds its bytes in the cache. */
static void *work(void *argument) {
    job *j = (job *)argument;
    const int64_t bytes = j->weight->panel_bytes, half = (j->last - j->first) / 2;
    int64_t at = 0;
    pthread_barrier_wait(j->barrier);
    for (const double end = seconds() + j->limit; j->n < SLICES && seconds() < end; j->n++) {
        const int64_t p = j->first + at, far = j->first + (at + half) % (2 * half);
        const double start = seconds();
        j->kernels->matmul(j->weight, j->activations, p, p + j->slice, 0, 1, &j->out);
        const double middle = seconds();
        j->sum += read_bytes(j->weight->panels + far * bytes, j->slice * bytes);
        j->product[j->n] = middle - start;
        j->read[j->n] = seconds() - middle;
        at += j->slice;
        if (at + j->slice > half && at < half) at = half;
        if (at + j->slice > 2 * half) at = 0;
    }
    return NULL;
}

static int huge_pages;

typedef struct fixture {
    mf_weight weight;
    uint8_t *activations;
    float *out;
} fixture;

static void *allocate(int64_t bytes) {
    void *p = aligned_alloc(1 << 21, (size_t)((bytes + (1 << 21) - 1) >> 21 << 21));
    if (!p) exit(2);
    if (huge_pages) madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    return p;
}

static fixture make(const mf_kernels *kernels, int type, int64_t rows, int64_t k, int columns) {
    fixture f;
    const int64_t row_bytes = mf_source_row_bytes(type, k), panels = mf_panel_count(rows);
    uint8_t *source = malloc((size_t)(8 * row_bytes));
    /* 0x2d to 0x3f in the upper bytes of floats: subnormal numbers would take a hundred times as long. */
    const int is_float = mf_activation_of(type) == MF_ACTIVATION_F32;
    for (int64_t i = 0; i < 8 * row_bytes; i++)
        source[i] = is_float ? (uint8_t)(0x2d + rand() % 19) : (uint8_t)(rand() & 0x3b);
    mf_weight_init(&f.weight, type, rows, k, allocate(mf_weight_bytes(type, rows, k)));
    kernels->repack(&f.weight, source, NULL, 0, 1);
    for (int64_t p = 1; p < panels; p++)
        memcpy(f.weight.panels + p * f.weight.panel_bytes, f.weight.panels, (size_t)f.weight.panel_bytes);
    const int64_t bytes = mf_activation_bytes(f.weight.activation, k);
    f.activations = allocate(bytes * columns);
    f.out = allocate(rows * columns * 4);
    float *x = malloc((size_t)k * 4);
    for (int c = 0; c < columns; c++) {
        for (int64_t i = 0; i < k; i++) x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
        kernels->quantize(f.weight.activation, k, x, f.activations + c * bytes);
    }
    free(x);
    free(source);
    return f;
}

static void drop(fixture *f) {
    free(f->weight.panels);
    free(f->activations);
    free(f->out);
}

/* Bytes per second at a quantile of slice times, summed over threads. */
static double rate(job *jobs, int threads, int read, double quantile, double bytes) {
    double total = 0;
    for (int t = 0; t < threads; t++) {
        double *took = read ? jobs[t].read : jobs[t].product;
        qsort(took, (size_t)jobs[t].n, sizeof(double), ascending);
        total += bytes / took[(int)(quantile * (jobs[t].n - 1))];
    }
    return total * 1e-9;
}

static void stream(const mf_kernels *kernels, int t, double limit) {
    const int64_t k = mf_type_block(types[t].type) == 256 ? 2048 : 640;
    const int64_t rows = STREAM_BYTES / mf_panel_bytes(types[t].type, k) * 8, panels = mf_panel_count(rows);
    fixture f = make(kernels, types[t].type, rows, k, 1);
    static job jobs[MOST_THREADS];
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        pthread_barrier_t barrier;
        pthread_t id[MOST_THREADS];
        pthread_barrier_init(&barrier, NULL, (unsigned)threads);
        const int64_t slice = (512 << 10) / f.weight.panel_bytes;
        for (int i = 0; i < threads; i++) {
            jobs[i] = (job){.kernels = kernels, .weight = &f.weight, .activations = f.activations,
                            .out = {f.out, rows, NULL, 0}, .first = panels * i / threads, .slice = slice,
                            .last = panels * (i + 1) / threads, .limit = limit, .barrier = &barrier};
            pthread_create(&id[i], NULL, work, &jobs[i]);
        }
        for (int i = 0; i < threads; i++) pthread_join(id[i], NULL);
        pthread_barrier_destroy(&barrier);
        const double bytes = (double)(slice * f.weight.panel_bytes);
        const double fast = rate(jobs, threads, 0, 0.1, bytes), read = rate(jobs, threads, 1, 0.1, bytes);
        printf("%-5s 1 column  %d threads  %5.1f GB/s (median %5.1f) | plain reading %5.1f (median %5.1f) | %3.0f%%\n",
               types[t].name, threads, fast, rate(jobs, threads, 0, 0.5, bytes), read,
               rate(jobs, threads, 1, 0.5, bytes), 100 * fast / read);
    }
    drop(&f);
}

static void multiply(const mf_kernels *kernels, int t, int columns, double clock, double limit) {
    const int64_t k = mf_type_block(types[t].type) == 256 ? 1024 : 576, rows = 576;
    fixture f = make(kernels, types[t].type, rows, k, columns);
    const mf_output out = {f.out, rows, NULL, 0};
    static double took[20000];
    int n = 0;
    for (const double end = seconds() + limit; n < 20000 && (n < 5 || seconds() < end); n++) {
        const double start = seconds();
        kernels->matmul(&f.weight, f.activations, 0, mf_panel_count(rows), 0, columns, &out);
        took[n] = seconds() - start;
    }
    qsort(took, (size_t)n, sizeof(double), ascending);
    const double work = (double)rows * (double)k * columns;
    printf("%-5s %3d columns 1 thread  %5.1f MAC/cycle (median %5.1f) %6.1f GMAC/s\n", types[t].name, columns,
           work / took[n / 10] / clock, work / took[n / 2] / clock, work / took[n / 10] * 1e-9);
    drop(&f);
}

int main(int argc, char **argv) {
    const mf_kernels *kernels = argc > 1 && argv[1][0] ? mf_kernels_named(argv[1]) : mf_kernels_best();
    const double limit = argc > 2 ? atof(argv[2]) : 1.0, clock = core_clock();
    huge_pages = argc > 3;
    if (!kernels) {
        fprintf(stderr, "kernel_bench: this machine does not run %s\n", argv[1]);
        return 1;
    }
    printf("kernels %s, core clock %.2f GHz, %s pages\n", kernels->name, clock * 1e-9, huge_pages ? "huge" : "ordinary");
    static const int columns[] = {2, 3, 8, 64, 512};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
            multiply(kernels, (int)t, columns[c], clock, limit / 4);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) stream(kernels, (int)t, limit);
    return 0;
}
