/* Every type, 1 to 17 columns, odd rows, tails of k and extreme values: each instruction set against scalar, bit by bit.
 *
 * The digests of two machines agree line by line: random numbers go on from one table to the next.
 * Buffers are exactly as large as promised, so that a build with sanitizers sees every step outside. Prints one line
 * per table and returns the number of differences. Usage: kernel_suite [rounds]. */
#include "minfer_matmul.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 17 };

typedef enum values { ORDINARY, EXTREME, BROKEN, VALUES } values;

typedef struct shape {
    int type;
    int64_t rows, k;
    values values;
} shape;

static uint64_t state = 88172645463325252u;

static uint32_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static void *allocate(int64_t bytes) {
    void *p = aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
    if (!p) exit(2);
    return p;
}

/* Byte offsets of the half floats of a block, -1 after the last. */
static void halves_of(int type, int at[3]) {
    at[0] = at[1] = at[2] = -1;
    if (type == MF_Q6_K) at[0] = 208;
    else if (type != MF_F32 && type != MF_F16 && type != MF_BF16) at[0] = 0;
    if (type == MF_Q4_1 || type == MF_Q5_1 || type == MF_Q4_K || type == MF_Q5_K) at[1] = 2;
}

static void fill_source(const shape *s, uint8_t *source) {
    static const uint16_t broken[] = {0x7c00, 0xfc00, 0x7e01, 0x0001, 0x8000, 0x7bff, 0x3c00, 0x0000};
    const int64_t row_bytes = mf_source_row_bytes(s->type, s->k), blocks = s->k / mf_type_block(s->type);
    const int64_t block_bytes = row_bytes / blocks;
    for (int64_t i = 0; i < s->rows * row_bytes; i++) source[i] = s->values == EXTREME ? 0xff : (uint8_t)draw();
    if (s->values == EXTREME && s->type == MF_Q8_0) memset(source, 0x80, (size_t)(s->rows * row_bytes));
    int at[3];
    halves_of(s->type, at);
    for (int64_t b = 0; b < s->rows * blocks; b++)
        for (int h = 0; at[h] >= 0; h++) {
            uint16_t half = (uint16_t)(0x2000 + (draw() & 0x9fff)); /* 2^-7 to 2^3, both signs */
            if (s->values == BROKEN && draw() % 4 == 0) half = broken[draw() % 8];
            memcpy(source + b * block_bytes + at[h], &half, 2);
        }
    if (s->type == MF_F32 && s->values == ORDINARY)
        for (int64_t i = 0; i < s->rows * s->k; i++) {
            const float x = (float)(int32_t)draw() * 0x1p-31f;
            memcpy(source + 4 * i, &x, 4);
        }
}

static void fill_input(const shape *s, float *x) {
    for (int64_t i = 0; i < s->k * COLUMNS; i++) {
        x[i] = s->values == EXTREME ? (i % 3 ? 1.0f : -1.0f) : (float)(int32_t)draw() * 0x1p-31f;
        if (s->values == EXTREME && i / s->k % 2) x[i] = 1.0f;
        if (s->values == BROKEN && draw() % 97 == 0) {
            const uint32_t bits[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 1u, 0x80000000u, 0x7f7fffffu};
            memcpy(&x[i], &bits[draw() % 6], 4);
        }
    }
}

/* All results so far, NaN as one value: programs for different machines print the same. */
static uint64_t digest = 14695981039346656037u;

static void add_to_digest(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = 0x7fc00000u;
        if (x[i] == x[i]) memcpy(&bits, &x[i], 4);
        digest = (digest ^ bits) * 1099511628211u;
    }
}

/* Floats equal bit by bit, or both NaN. */
static int64_t differences(const float *a, const float *b, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], 4) != 0 && !(a[i] != a[i] && b[i] != b[i])) count++;
    return count;
}

typedef struct fixture {
    const shape *shape;
    mf_weight weight;
    uint8_t *activations;
    float *bias, *want, *got;
} fixture;

static int64_t compare_split(const fixture *f, const mf_kernels *kernels, int columns, int64_t cut) {
    const int64_t rows = f->shape->rows, stride = rows + 3, panels = mf_panel_count(rows);
    const int64_t bytes = stride * (columns - 1) + rows;
    for (int64_t i = 0; i < bytes; i++) f->want[i] = f->got[i] = (float)(i % 7);
    const int accumulate = columns % 2;
    const mf_output want = {f->want, stride, columns % 3 ? f->bias : NULL, accumulate};
    const mf_output got = {f->got, stride, columns % 3 ? f->bias : NULL, accumulate};
    mf_kernels_named("scalar")->matmul(&f->weight, f->activations, 0, panels, 0, columns, &want);
    kernels->matmul(&f->weight, f->activations, 0, cut, 0, columns, &got);
    kernels->matmul(&f->weight, f->activations, cut, panels, 0, columns / 2, &got);
    kernels->matmul(&f->weight, f->activations, cut, panels, columns / 2, columns, &got);
    add_to_digest(f->got, bytes);
    return differences(f->want, f->got, bytes);
}

static int64_t compare_quantize(const fixture *f, const mf_kernels *kernels, const float *x) {
    const int64_t bytes = mf_activation_bytes(f->weight.activation, f->weight.k);
    uint8_t *want = allocate(bytes), *got = allocate(bytes);
    int64_t count = 0;
    for (int c = 0; c < COLUMNS; c++) {
        memset(want, 0, (size_t)bytes);
        memset(got, 0, (size_t)bytes);
        mf_kernels_named("scalar")->quantize(f->weight.activation, f->weight.k, x + c * f->weight.k, want);
        kernels->quantize(f->weight.activation, f->weight.k, x + c * f->weight.k, got);
        count += memcmp(want, got, (size_t)bytes) != 0;
        memcpy(f->activations + c * bytes, want, (size_t)bytes);
    }
    free(want);
    free(got);
    return count;
}

static int64_t run(const shape *s, const mf_kernels *kernels) {
    const int64_t row_bytes = mf_source_row_bytes(s->type, s->k), panels = mf_panel_count(s->rows);
    fixture f = {.shape = s};
    uint8_t *source = malloc((size_t)(s->rows * row_bytes));
    float *x = malloc((size_t)(s->k * COLUMNS * 4));
    fill_source(s, source);
    fill_input(s, x);
    if (mf_weight_init(&f.weight, s->type, s->rows, s->k, allocate(mf_weight_bytes(s->type, s->rows, s->k)))) exit(3);
    kernels->repack(&f.weight, source, NULL, 0, panels);
    f.activations = allocate(mf_activation_bytes(f.weight.activation, s->k) * COLUMNS);
    f.bias = malloc((size_t)s->rows * 4);
    for (int64_t i = 0; i < s->rows; i++) f.bias[i] = (float)i;
    f.want = malloc((size_t)((s->rows + 3) * COLUMNS * 4));
    f.got = malloc((size_t)((s->rows + 3) * COLUMNS * 4));
    int64_t count = compare_quantize(&f, kernels, x);
    for (int n = 1; n <= COLUMNS; n++) count += compare_split(&f, kernels, n, (int64_t)(draw() % (uint32_t)(panels + 1)));
    if (count) printf("%s: type %d [%d x %d] values %d: %d differences\n", kernels->name, s->type, (int)s->rows,
                      (int)s->k, s->values, (int)count);
    free(f.weight.panels);
    free(f.activations);
    free(f.bias);
    free(f.want);
    free(f.got);
    free(source);
    free(x);
    return count;
}

int main(int argc, char **argv) {
    static const int types[] = {MF_Q4_1, MF_Q5_0, MF_Q8_0, MF_Q6_K, MF_Q4_K, MF_Q4_0, MF_Q5_1, MF_Q5_K, MF_F16, MF_BF16, MF_F32};
    static const int64_t rows[] = {7, 8, 33};
    const int rounds = argc > 1 ? atoi(argv[1]) : 1;
    int64_t count = 0;
    const mf_kernels *kernels;
    for (int i = 0; (kernels = mf_kernels_at(i)) != NULL; i++) {
        int64_t cases = 0;
        for (int round = 0; round < rounds; round++)
            for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
                for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
                    for (int v = 0; v < VALUES; v++, cases++) {
                        const int64_t block = mf_type_block(types[t]), most = block == 1 ? 300 : block == 32 ? 30 : 5;
                        const int64_t at = round % 2 ? 1 + (int64_t)(draw() % 40) : rows[r];
                        const shape s = {types[t], at, block * (1 + (int64_t)(draw() % (uint32_t)most)), (values)v};
                        count += run(&s, kernels);
                    }
        printf("%s: %d cases, digest %016llx\n", kernels->name, (int)cases, (unsigned long long)digest);
    }
    return count != 0;
}
