/* Row kernels and the pool: every instruction set equal to scalar bit by bit, scalar close to double precision.
 * Buffers are allocated to the byte, so that a sanitizer sees every step too far. Prints the first difference. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"
#include "kernels.h"
#include "pool.h"

static unsigned long long seed = 88172645463325252ull;
static int failures;

static float uniform(float low, float high) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return low + (high - low) * (float)((double)(seed >> 11) * 0x1p-53);
}

static float *floats(int64_t n, float low, float high) {
    float *x = malloc(sizeof(float) * (size_t)(n ? n : 1));
    for (int64_t i = 0; i < n; i++) x[i] = uniform(low, high);
    return x;
}

static void check(int ok, const char *what, int64_t n) {
    if (!ok && failures++ < 10) printf("%s differs at n = %lld\n", what, (long long)n);
}

static int same(const float *a, const float *b, int64_t n) { return !memcmp(a, b, sizeof(float) * (size_t)n); }

typedef struct {
    int64_t n;
    float *a, *b, *w, *y;
} rows;

/* Call number `which` of a table into r->y; 0 when there is no such call. */
static int call(const mf_row_kernels *k, const rows *r, int which) {
    int32_t query[3 * MF_QUERY_ROWS] = {0};
    int16_t row[5];
    memset(r->y, 0, sizeof(float) * 2 * (size_t)r->n);
    switch (which) {
        case 0: k->norm_rms(r->n, r->a, r->w, NULL, 1e-5f, r->y); break;
        case 1: k->norm_layer(r->n, r->a, r->w, r->b, 1e-5f, r->y); break;
        case 2: k->norm_l2(r->n, r->a, r->y); break;
        case 3: k->glu(MF_SILU, 0, r->n, r->a, r->b, r->y); break;
        case 4: k->glu(MF_SILU, 2.5f, r->n, r->a, r->b, r->y); break;
        case 5: k->add(r->n, r->a, r->b, r->y); break;
        case 6: k->mul(r->n, r->a, r->b, r->y); break;
        case 7: k->scale(r->n, r->a, 1.7f, r->y); break;
        case 8: k->softcap(r->n, r->a, 3.0f, r->y); break;
        case 9: k->add_scaled(r->n, r->a, 0.3f, r->y); break;
        case 10: k->softmax(r->n, r->a, r->y); break;
        case 11: k->rope_halves(r->n, r->w, r->b, r->a, r->y); break;
        case 12: k->rope_neighbours(r->n, r->w, r->b, r->a, r->y); break;
        case 13: r->y[0] = k->maximum(r->n, r->a); break;
        case 14: r->y[0] = k->sum_exp(r->n, r->a, 2.0f); break;
        case 15: case 16: case 17: case 18: case 19: case 20: k->activate(which - 15, r->n, r->a, r->y); break;
        case 21: r->y[1] = k->query_pairs(r->n > 5 ? 5 : r->n, r->a, 8191, row, query); r->y[0] = (float)query[24]; break;
        default: return 0;
    }
    return 1;
}

static void compare_rows(const mf_row_kernels *other) {
    for (int64_t n = 1; n <= 67; n++) {
        rows r = {n, floats(2 * n, -9, 9), floats(n, -2, 2), floats(n, -1, 1), floats(2 * n, 0, 0)};
        float *expected = malloc(sizeof(float) * 2 * (size_t)n);
        for (int which = 0; call(&mf_row_kernels_scalar, &r, which); which++) {
            memcpy(expected, r.y, sizeof(float) * 2 * (size_t)n);
            call(other, &r, which);
            char name[32];
            snprintf(name, sizeof name, "call %d", which);
            check(same(expected, r.y, 2 * n), name, n);
        }
        free(r.a), free(r.b), free(r.w), free(r.y), free(expected);
    }
}

/* The largest error of an elementwise function, relative to max(1, |value|). */
static void compare_function(int function, double (*exact)(double), double bound, const char *name) {
    double worst = 0;
    for (float x = -30; x < 30; x += 0.0371f) {
        float y;
        mf_row_kernels_scalar.activate(function, 1, &x, &y);
        double expected = exact((double)x), error = fabs((double)y - expected) / fmax(1, fabs(expected));
        if (error > worst) worst = error;
    }
    if (!(worst <= bound) && failures++ < 10) printf("%s is off by %g\n", name, worst);
}

static double silu(double x) { return x / (1 + exp(-x)); }
static double gelu(double x) { return 0.5 * x * (1 + erf(x / sqrt(2))); }
static double gelu_tanh(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void compare_softcap(void) {
    for (float x = -200; x < 200; x += 0.173f) {
        float y, cap = 30;
        mf_row_kernels_scalar.softcap(1, &x, cap, &y);
        double expected = 30 * tanh((double)x / 30);
        check(fabs((double)y - expected) <= 4e-7 * (1 + fabs(expected)), "softcap", (int64_t)x);
    }
}

typedef struct {
    mf_attend_kind kind;
    mf_attend_chunk chunk;
    uint8_t *cache;
    uint16_t *halves;
    int32_t *q_pairs;
    int16_t *q_rows;
    float *q, *q_scale, *scores, *room, *peak, *sum, *values;
    double tolerance; /* of a sum of powers, relative to it */
} attention;

static int64_t block_bytes(const attention *a) {
    const int64_t pairs = mf_key_pairs(a->kind.dk) + mf_value_pairs(a->kind.dv_padded);
    return a->kind.is_whole ? 4 * pairs + 64 : 64 * (a->kind.dk + a->kind.dv_padded);
}

/* The halves that a cache of whole numbers was made of, by position: key, then value. */
static uint16_t *halves_at(const attention *a, int position) {
    return a->halves + position * (a->kind.dk + a->kind.dv_padded);
}

static uint16_t greatest(const uint16_t *halves, int n) {
    uint16_t most = 0;
    for (int i = 0; i < n; i++) most = (halves[i] & 0x7fff) > most ? halves[i] & 0x7fff : most;
    return most;
}

/* A half as a whole number, when the greatest one beside it becomes one of so many bits. */
static int16_t whole_of(uint16_t half, uint16_t most, int bits) {
    const int exponent = most >> 10 ? most >> 10 : 1;
    return (int16_t)nearbyint(ldexp((double)mf_float_of_half(half), bits + 14 - exponent));
}

/* Position by position as kernels.h describes it. */
static void store_position(const attention *a, int position, const uint16_t *halves) {
    const int dk = a->kind.dk, dv = a->kind.dv, place = position % 16;
    int16_t *keys = (int16_t *)(a->cache + position / 16 * block_bytes(a)), *values = keys + (dk + 1) / 2 * 32;
    uint16_t *most = (uint16_t *)(values + 16 * a->kind.dv_padded);
    most[place] = greatest(halves, dk), most[16 + place] = greatest(halves + dk, dv);
    const int is_number = most[place] < 0x7c00 && most[16 + place] < 0x7c00;
    for (int d = 0; d < dk; d++) {
        keys[32 * (d / 2) + 2 * place + d % 2] = is_number ? whole_of(halves[d], most[place], mf_key_bits(dk)) : 0;
    }
    for (int d = 0; d < dv; d++) {
        int16_t *one = values + d / 16 * 256 + place / 2 * 32 + d % 16 * 2 + place % 2;
        *one = is_number ? whole_of(halves[dk + d], most[16 + place], 12) : 0;
    }
}

static void fill_cache(attention *a) {
    const int width = a->kind.dk + a->kind.dv_padded;
    a->cache = calloc(16, (size_t)block_bytes(a));
    a->halves = malloc(sizeof(uint16_t) * (size_t)(256 * width));
    for (int i = 0; i < 256 * width; i++) a->halves[i] = mf_half_of_float(uniform(-1, 1));
    for (int i = 0; i < 256 * width && !a->kind.is_whole; i++) ((float *)a->cache)[i] = uniform(-1, 1);
    for (int i = 0; i < 256 && a->kind.is_whole; i++) store_position(a, i, halves_at(a, i));
}

/* What a table stores is what store_position does, of every size of number and of none. */
static void compare_store(const mf_row_kernels *other, int dk, int dv) {
    static const float sizes[] = {1, 1e-3f, 6e-5f, 1e-7f, 0, 60000, 65519, 65521, 1e30f};
    attention a = {.kind = {dk, dv, (dv + 15) / 16 * 16, 1, 1, 0}};
    fill_cache(&a);
    uint8_t *cache = malloc((size_t)(16 * block_bytes(&a))), *expected = a.cache;
    memcpy(cache, a.cache, (size_t)(16 * block_bytes(&a)));
    for (int position = 0; position < 256; position++) {
        float *x = floats(dk + dv, -1, 1);
        uint16_t *halves = malloc(sizeof(uint16_t) * (size_t)(dk + dv));
        for (int i = 0; i < dk + dv; i++) x[i] *= sizes[position / (i < dk ? 1 : 9) % 9];
        if (position % 50 == 49) x[position % (dk + dv)] = position % 100 == 49 ? NAN : -INFINITY;
        for (int i = 0; i < dk + dv; i++) halves[i] = mf_half_of_float(x[i]);
        store_position(&a, position, halves);
        other->store_whole(dk, dv, x, x + dk, position % 16, cache + position / 16 * block_bytes(&a));
        free(x), free(halves);
    }
    for (int b = 0; b < 16; b++) {
        const int64_t numbers = block_bytes(&a) - 64, at = b * block_bytes(&a);
        check(!memcmp(expected + at, cache + at, (size_t)numbers), "stored keys or values", b);
        for (int i = 0; i < 32; i++) {
            const uint16_t want = ((uint16_t *)(expected + at + numbers))[i], got = ((uint16_t *)(cache + at + numbers))[i];
            check(want == got || (want > 0x7c00 && got > 0x7c00), "a stored magnitude", b);
        }
    }
    free(cache), free(a.cache), free(a.halves);
}

static void fill_queries(attention *a, int n_rows) {
    const int dk = a->kind.dk, all = (n_rows + MF_QUERY_ROWS - 1) / MF_QUERY_ROWS * MF_QUERY_ROWS;
    const float size = n_rows % 3 ? 1 : 40; /* large ones leave most powers below what a float holds */
    a->q = floats(dk * all, -size, size);
    a->q_pairs = calloc((size_t)(mf_pairs(dk) * all), sizeof(int32_t));
    a->q_rows = malloc(sizeof(int16_t) * (size_t)(n_rows * dk));
    a->q_scale = floats(n_rows, 0, 0);
    a->tolerance = a->kind.is_whole ? (size > 1 ? 0.02 : 1e-3) : (size > 1 ? 1e-4 : 1e-5);
    for (int r = 0; r < n_rows; r++) {
        float x[576];
        for (int d = 0; d < dk; d++) x[d] = a->q[mf_query_of_row(dk, r) + d * MF_QUERY_ROWS];
        a->q_scale[r] = mf_row_kernels_scalar.query_pairs(dk, x, mf_query_limit(dk), a->q_rows + r * dk,
                                                          a->q_pairs + mf_query_of_row(mf_pairs(dk), r));
    }
}

static attention new_attention(int dk, int dv, int n_rows, int is_whole, float softcap) {
    attention a = {.kind = {dk, dv, (dv + 15) / 16 * 16, is_whole, 1, softcap}};
    fill_cache(&a);
    fill_queries(&a, n_rows);
    a.scores = floats(MF_SCORE_ROWS * MF_SCORE_STRIDE, 0, 0);
    a.room = floats(mf_attend_room(dk, a.kind.dv_padded), 0, 0);
    a.peak = floats(n_rows, 0, 0), a.sum = floats(n_rows, 0, 0), a.values = floats(n_rows * a.kind.dv_padded, 0, 0);
    a.chunk = (mf_attend_chunk){.n_rows = n_rows, .q = a.q, .q_pairs = a.q_pairs, .q_rows = a.q_rows, .q_scale = a.q_scale,
                                .scores = a.scores, .room = a.room, .peak = a.peak, .sum = a.sum, .values = a.values};
    for (int b = 0; b < 16; b++) a.chunk.blocks[b] = a.cache + b * block_bytes(&a);
    for (int r = 0; r < n_rows; r++) {
        a.chunk.first[r] = (int)uniform(0, 40);
        a.chunk.last[r] = (int)uniform(60, 257);
        if (r % 7 == 5) a.chunk.last[r] = a.chunk.first[r]; /* sees nothing here */
    }
    return a;
}

static void free_attention(attention *a) {
    free(a->cache), free(a->halves), free(a->q), free(a->q_pairs), free(a->q_rows), free(a->q_scale), free(a->scores), free(a->room);
    free(a->peak), free(a->sum), free(a->values);
}

static double key_of(const attention *a, int position, int d) {
    const float *block = (const float *)(a->cache + position / 16 * block_bytes(a));
    return (double)(a->kind.is_whole ? mf_float_of_half(halves_at(a, position)[d]) : block[16 * d + position % 16]);
}

static double value_of(const attention *a, int position, int d) {
    const float *block = (const float *)(a->cache + position / 16 * block_bytes(a)) + 16 * a->kind.dk;
    return (double)(a->kind.is_whole ? mf_float_of_half(halves_at(a, position)[a->kind.dk + d])
                                     : block[d / 16 * 256 + position % 16 * 16 + d % 16]);
}

/* One row in double precision against what the kernel left. */
static void check_row(const attention *a, int r) {
    double score[256], peak = -INFINITY, sum = 0;
    for (int j = a->chunk.first[r]; j < a->chunk.last[r]; j++) {
        score[j] = 0;
        for (int d = 0; d < a->kind.dk; d++) {
            score[j] += (double)a->q[mf_query_of_row(a->kind.dk, r) + d * MF_QUERY_ROWS] * key_of(a, j, d);
        }
        if (score[j] > peak) peak = score[j];
    }
    for (int j = a->chunk.first[r]; j < a->chunk.last[r]; j++) sum += exp2(score[j] - peak);
    check(fabs(sum - (double)a->sum[r]) < a->tolerance * sum, "sum of powers", r);
    for (int d = 0; d < a->kind.dv; d++) {
        double value = 0;
        for (int j = a->chunk.first[r]; j < a->chunk.last[r]; j++) {
            value += exp2(score[j] - peak) * value_of(a, j, d);
        }
        check(fabs(value - (double)a->values[r * a->kind.dv_padded + d]) < fmax(1e-4, a->tolerance * sum),
              "attention", d);
    }
}

/* What the scalar kernels leave for every row, computed a few rows at a time: a row does not depend on the others. */
static void attend_in_parts(const attention *a) {
    for (int row = 0; row < a->chunk.n_rows; row += MF_QUERY_ROWS) {
        mf_attend_chunk part = a->chunk;
        part.n_rows = a->chunk.n_rows - row < MF_QUERY_ROWS ? a->chunk.n_rows - row : MF_QUERY_ROWS;
        part.q += mf_query_of_row(a->kind.dk, row);
        part.q_pairs += mf_query_of_row(mf_pairs(a->kind.dk), row);
        part.q_scale += row, part.q_rows += row * a->kind.dk;
        part.peak += row, part.sum += row, part.values += row * a->kind.dv_padded;
        for (int r = 0; r < part.n_rows; r++) {
            part.first[r] = a->chunk.first[row + r];
            part.last[r] = a->chunk.last[row + r];
        }
        (a->kind.is_whole ? mf_row_kernels_scalar.attend_whole : mf_row_kernels_scalar.attend_float)(&part);
    }
}

/* What is not written again differs from what was expected. */
static void forget(const attention *a, int n_rows) {
    memset(a->values, 0xff, sizeof(float) * (size_t)(n_rows * a->kind.dv_padded));
    memset(a->peak, 0xff, sizeof(float) * (size_t)n_rows);
    memset(a->sum, 0xff, sizeof(float) * (size_t)n_rows);
}

static void compare_attention(const mf_row_kernels *other, int dk, int dv, int n_rows) {
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        attention a = new_attention(dk, dv, n_rows, is_whole, n_rows % 5 ? 0 : 20);
        a.chunk.kind = &a.kind;
        const int64_t n = n_rows * a.kind.dv_padded;
        float *expected = floats(n, 0, 0), *peak = floats(n_rows, 0, 0), *sum = floats(n_rows, 0, 0);
        attend_in_parts(&a);
        memcpy(expected, a.values, sizeof(float) * (size_t)n);
        memcpy(peak, a.peak, sizeof(float) * (size_t)n_rows);
        memcpy(sum, a.sum, sizeof(float) * (size_t)n_rows);
        for (int r = 0; r < n_rows && a.kind.softcap == 0; r++) {
            if (a.chunk.first[r] < a.chunk.last[r]) check_row(&a, r);
        }
        forget(&a, n_rows);
        (is_whole ? other->attend_whole : other->attend_float)(&a.chunk);
        check(same(expected, a.values, n), is_whole ? "attention on whole numbers" : "attention on floats", n_rows);
        for (int r = 0; r < n_rows; r++) {
            if (a.chunk.first[r] >= a.chunk.last[r]) continue;
            check(same(peak + r, a.peak + r, 1) && same(sum + r, a.sum + r, 1), "the peak or sum of a row", r);
        }
        free(expected), free(peak), free(sum);
        free_attention(&a);
    }
}

/* Every number as large as can be: nothing may overflow. All scores of a row are equal, so all its weights are; they are
 * 2048 at least, and rounded alike. */
static void check_large(const mf_row_kernels *other, int dk, float scale) {
    enum { ROWS = 40, WIDTH = 64 };
    attention a = new_attention(dk, WIDTH, ROWS, 1, 0);
    float *expected = floats(ROWS * WIDTH, 0, 0);
    const int32_t limit = (int32_t)mf_query_limit(dk);
    a.chunk.kind = &a.kind;
    for (int i = 0; i < 256 * (dk + WIDTH); i++) a.halves[i] = 0x7bff;
    for (int i = 0; i < 256; i++) store_position(&a, i, halves_at(&a, i));
    for (int r = 0; r < ROWS; r++) {
        for (int d = 0; d < dk; d++) a.q_rows[r * dk + d] = (int16_t)limit;
        int32_t *pairs = a.q_pairs + mf_query_of_row(mf_pairs(dk), r);
        for (int d = 0; d < dk; d += 2) pairs[d / 2 * MF_QUERY_ROWS] = d + 1 < dk ? limit * 0x10001 : limit;
        a.q_scale[r] = scale;
    }
    attend_in_parts(&a);
    memcpy(expected, a.values, sizeof(float) * ROWS * WIDTH);
    forget(&a, ROWS);
    other->attend_whole(&a.chunk);
    check(same(expected, a.values, ROWS * WIDTH), "attention on large numbers", dk);
    for (int r = 0; r < ROWS; r++) {
        const double n = a.chunk.last[r] - a.chunk.first[r];
        for (int d = 0; d < WIDTH; d++) {
            check(fabs((double)a.values[WIDTH * r + d] - 65504 * n) <= 65504 * n * 2.5e-4, "a sum of large values", dk);
        }
    }
    free(expected);
    free_attention(&a);
}

/* A key or value that is no number, or infinite, spoils the rows that see it and no others. */
static void check_spoiled(const mf_row_kernels *other, int position, int feature, uint16_t bad) {
    attention a = new_attention(64, 64, 40, 1, 0);
    a.chunk.kind = &a.kind;
    float *before = floats(40 * 64, 0, 0);
    other->attend_whole(&a.chunk);
    memcpy(before, a.values, sizeof(float) * 40 * 64);
    halves_at(&a, position)[feature] = bad;
    store_position(&a, position, halves_at(&a, position));
    other->attend_whole(&a.chunk);
    for (int r = 0; r < 40; r++) {
        if (a.chunk.first[r] >= a.chunk.last[r]) continue;
        if (a.chunk.last[r] > position) check(isnan(a.sum[r]), "a sum that should be spoiled", r);
        else check(same(before + 64 * r, a.values + 64 * r, 64), "a row that saw nothing spoiled", r);
    }
    free(before);
    free_attention(&a);
}

static _Atomic int64_t total;
static void count(void *context, int64_t i) { total += i + *(int64_t *)context; }

static void check_pool(void) {
    for (int n_threads = 1; n_threads <= 9; n_threads += 4) {
        mf_pool *pool = mf_pool_new(n_threads);
        for (int64_t job = 0; job < 300; job++) {
            total = 0;
            mf_pool_for(pool, job % 40, count, &job);
            check(total == (job % 40) * (job % 40 - 1) / 2 + job % 40 * job, "pool", job);
        }
        mf_pool_free(pool);
    }
}

#if defined(SOFTWARE_TILES)
static int may_use_tiles(void) { return 1; }
#elif defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>

/* The tile registers are to be had on request: see matmul_amx.c. */
static int may_use_tiles(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }
#else
static int may_use_tiles(void) { return 0; }
#endif

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "amx") && !may_use_tiles()) {
        printf("no tiles\n");
        return 2;
    }
    const mf_row_kernels *other = mf_row_kernels_named(argc > 1 ? argv[1] : "scalar");
    compare_rows(other);
    compare_function(MF_SILU, silu, 4e-7, "silu");
    compare_function(MF_GELU, gelu, 4e-7, "gelu");
    compare_function(MF_GELU_TANH, gelu_tanh, 6e-7, "gelu_tanh");
    compare_function(MF_SIGMOID, sigmoid, 3e-7, "sigmoid");
    compare_softcap();
    for (int dk = 1; dk <= 67; dk += 3) compare_store(other, dk, 68 - dk);
    compare_store(other, 128, 128);
    compare_store(other, 576, 512);
    for (int n_rows = 1; n_rows <= MF_TILE_ROWS; n_rows += n_rows < 8 ? 1 : n_rows / 2) {
        compare_attention(other, 64, 64, n_rows);
        if (n_rows % 2) compare_attention(other, 128, 80, n_rows);
        compare_attention(other, 20, 24, n_rows);
        compare_attention(other, 33, 48, n_rows);
    }
    const int widths[] = {2, 33, 64, 128, 129, 256, 512, 513};
    for (int i = 0; i < 8; i++) {
        check_large(other, widths[i], 1);
        check_large(other, widths[i], 1e20f);
    }
    for (int n_rows = 3; n_rows <= 40; n_rows += 37) { /* by AMX in three and four steps, and not at all */
        compare_attention(other, 192, 64, n_rows);
        compare_attention(other, 256, 40, n_rows);
        compare_attention(other, 320, 64, n_rows);
        compare_attention(other, 576, 512, n_rows);
    }
    const uint16_t bad[] = {0x7e00, 0x7c00, 0xfc00};
    for (int i = 0; i < 3; i++) {
        check_spoiled(other, 243, 20, bad[i]);
        check_spoiled(other, 249, 64 + 18, bad[i]);
    }
    check_pool();
    printf("%d failures\n", failures);
    return failures != 0;
}
