/* How fast the matrix kernels are, beside what this machine can do at all.
 *
 * One column: GB/s of weights streamed from memory, beside the same buffer read by plain loads in the same rounds.
 * Many columns: multiply-adds per core cycle, beside a loop of register-only multiply-adds as the ceiling.
 * The machine is shared: every figure is the best and the median of many short alternating rounds.
 * Usage: kernel_bench [isa] [seconds per section]. */
#define _POSIX_C_SOURCE 200809L
#include "minfer_matmul.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 200, STREAM_BYTES = 96 << 20, MOST_THREADS = 2 };

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

/* Core clock in Hz: a chain of dependent additions takes one cycle each. */
static double core_clock(void) {
    double best = 1e9;
    for (int round = 0; round < 200; round++) {
        const double start = seconds();
        unsigned long long x = 1;
        for (int i = 0; i < 1000; i++) {
            x += 1, HIDE(x);
            x += 2, HIDE(x);
            x += 3, HIDE(x);
            x += 4, HIDE(x);
        }
        const double took = seconds() - start;
        if (took < best) best = took;
    }
    return 4000 / best;
}

typedef struct job {
    const mf_kernels *kernels; /* NULL: only read */
    const mf_weight *weight;
    const void *activations;
    mf_output out;
    int64_t first, last;
    int columns;
    pthread_barrier_t *barrier;
    unsigned long long sum;
} job;

static unsigned long long read_bytes(const uint8_t *p, int64_t bytes) {
    typedef unsigned long long lanes __attribute__((vector_size(32), aligned(32)));
    const lanes *v = (const lanes *)(const void *)p;
    lanes a = {0}, b = {0}, c = {0}, d = {0};
    for (int64_t i = 0; i + 4 <= bytes / 32; i += 4) {
        a += v[i];
        b += v[i + 1];
        c += v[i + 2];
        d += v[i + 3];
    }
    a += b + c + d;
    return a[0] + a[1] + a[2] + a[3];
}

static void work(job *j) {
    if (j->kernels) {
        j->kernels->matmul(j->weight, j->activations, j->first, j->last, 0, j->columns, &j->out);
    } else {
        const int64_t bytes = j->weight->panel_bytes;
        j->sum += read_bytes(j->weight->panels + j->first * bytes, (j->last - j->first) * bytes);
    }
}

static void *worker(void *argument) {
    job *j = (job *)argument;
    pthread_barrier_wait(j->barrier);
    work(j);
    return NULL;
}

/* Seconds of one pass over the matrix with its panels split over the threads. */
static double pass(job base, int threads) {
    pthread_barrier_t barrier;
    pthread_t id[MOST_THREADS];
    job jobs[MOST_THREADS];
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    const int64_t panels = mf_panel_count(base.weight->rows);
    for (int t = 0; t < threads; t++) {
        jobs[t] = base;
        jobs[t].barrier = &barrier;
        jobs[t].first = panels * t / threads;
        jobs[t].last = panels * (t + 1) / threads;
        if (t) pthread_create(&id[t], NULL, worker, &jobs[t]);
    }
    pthread_barrier_wait(&barrier);
    const double start = seconds();
    work(&jobs[0]);
    for (int t = 1; t < threads; t++) pthread_join(id[t], NULL);
    const double took = seconds() - start;
    pthread_barrier_destroy(&barrier);
    return took;
}

typedef struct fixture {
    mf_weight weight;
    uint8_t *activations;
    float *out;
} fixture;

static void *allocate(int64_t bytes) {
    void *p = aligned_alloc(1 << 21, (size_t)((bytes + (1 << 21) - 1) >> 21 << 21));
    if (!p) exit(2);
    return p;
}

static fixture make(const mf_kernels *kernels, int type, int64_t rows, int64_t k, int columns) {
    fixture f;
    const int64_t row_bytes = mf_source_row_bytes(type, k), panels = mf_panel_count(rows);
    uint8_t *source = malloc((size_t)(8 * row_bytes));
    for (int64_t i = 0; i < 8 * row_bytes; i++) source[i] = (uint8_t)(rand() & 0x3b);
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

static void stream(const mf_kernels *kernels, int t, double limit) {
    const int64_t k = mf_type_block(types[t].type) == 256 ? 2048 : 640;
    const int64_t rows = STREAM_BYTES / mf_panel_bytes(types[t].type, k) * 8;
    fixture f = make(kernels, types[t].type, rows, k, 1);
    const double bytes = (double)mf_weight_bytes(types[t].type, rows, k);
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        double read[ROUNDS], product[ROUNDS], ratio[ROUNDS];
        int n = 0;
        for (const double end = seconds() + limit; n < ROUNDS && (n < 5 || seconds() < end); n++) {
            job base = {NULL, &f.weight, f.activations, {f.out, rows, NULL, 0}, 0, 0, 1, NULL, 0};
            read[n] = pass(base, threads);
            base.kernels = kernels;
            product[n] = pass(base, threads);
            ratio[n] = read[n] / product[n];
        }
        qsort(read, (size_t)n, sizeof(double), ascending);
        qsort(product, (size_t)n, sizeof(double), ascending);
        qsort(ratio, (size_t)n, sizeof(double), ascending);
        printf("%-5s 1 column  %d threads  %5.1f GB/s best %5.1f median | read %5.1f best %5.1f median | %3.0f%% best/best"
               " %3.0f%% median of pairs\n",
               types[t].name, threads, bytes / product[0] * 1e-9, bytes / product[n / 2] * 1e-9, bytes / read[0] * 1e-9,
               bytes / read[n / 2] * 1e-9, 100 * read[0] / product[0], 100 * ratio[n / 2]);
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
    printf("%-5s %3d columns 1 thread  %5.1f MAC/cycle best %5.1f median  (%5.1f GMAC/s best)\n", types[t].name, columns,
           work / took[0] / clock, work / took[n / 2] / clock, work / took[0] * 1e-9);
    drop(&f);
}

int main(int argc, char **argv) {
    const mf_kernels *kernels = argc > 1 ? mf_kernels_named(argv[1]) : mf_kernels_best();
    const double limit = argc > 2 ? atof(argv[2]) : 1.0, clock = core_clock();
    if (!kernels) {
        fprintf(stderr, "kernel_bench: this machine does not run %s\n", argv[1]);
        return 1;
    }
    printf("kernels %s, core clock %.2f GHz\n", kernels->name, clock * 1e-9);
    static const int columns[] = {2, 3, 8, 64, 512};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
            multiply(kernels, (int)t, columns[c], clock, limit / 4);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) stream(kernels, (int)t, limit);
    return 0;
}
