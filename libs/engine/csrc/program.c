/* Making and unmaking programs: arena, weights, instructions, scratch. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "attention.h"
#include "program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE_ROWS = 512, TILE_COLUMNS = 32 }; /* of the head's logits */

mf_program *mf_program_new(int n_threads, const char *isa) {
    const mf_kernels *kernels = isa ? mf_kernels_named(isa) : mf_kernels_best();
    mf_program *p = NULL;
    if (!kernels || posix_memalign((void **)&p, 128, sizeof *p)) return NULL;
    memset((void *)p, 0, sizeof *p);
    p->kernels = kernels;
    p->rows = mf_row_kernels_named(kernels->name);
    p->n_threads = n_threads < 1 ? 1 : n_threads;
    p->pool = mf_pool_new(p->n_threads);
    if (!p->pool) {
        free(p);
        return NULL;
    }
    return p;
}

void mf_program_free(mf_program *p) {
    if (!p) return;
    mf_pool_free(p->pool);
    mf_pages_free(p->weights, p->weight_bytes);
    mf_pages_free(p->buffers, p->buffer_bytes);
    mf_pages_free(p->scratch_pages, p->scratch_bytes);
    for (int32_t i = 0; i < p->n_classes; i++) {
        free(p->classes[i].tiles);
        free((void *)p->classes[i].pending);
    }
    mf_head_free(p);
    free(p->matrices);
    free(p->vectors);
    free(p->operations);
    free(p->values);
    free(p->instructions);
    free(p->cuts);
    free(p->classes);
    free(p->scratch);
    free(p->tiles);
    free(p->shares);
    free(p->groups);
    free(p->slots);
    free(p->partials);
    free(p->row_sequence);
    free(p);
}

const char *mf_program_isa(const mf_program *program) { return program->kernels->name; }

int mf_program_reserve(mf_program *p, int64_t weight_bytes, int32_t n_matrices, int32_t n_vectors) {
    p->weight_bytes = weight_bytes;
    p->weights = mf_pages_new(weight_bytes);
    mf_pages_prefer_large(p->weights, weight_bytes);
    p->matrices = calloc((size_t)n_matrices + 1, sizeof *p->matrices);
    p->vectors = calloc((size_t)n_vectors + 1, sizeof *p->vectors);
    p->n_matrices = n_matrices;
    p->n_vectors = n_vectors;
    return p->weights && p->matrices && p->vectors ? MF_OK : MF_NO_MEMORY;
}

int mf_program_map(mf_program *p, int file, int64_t offset) {
    void *at = mmap(p->weights, (size_t)p->weight_bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, (off_t)offset);
    return at == MAP_FAILED ? MF_NO_MEMORY : MF_OK;
}

int mf_program_save(const mf_program *p, int file) {
    for (int64_t done = 0; done < p->weight_bytes;) {
        ssize_t n = write(file, p->weights + done, (size_t)(p->weight_bytes - done));
        if (n < 0 && errno != EINTR) return errno;
        if (n > 0) done += n;
    }
    return 0;
}

static int is_inside(const mf_program *p, int64_t offset, int64_t n_bytes) {
    return offset >= 0 && offset % MF_ALIGNMENT == 0 && n_bytes >= 0 && n_bytes <= p->weight_bytes - offset;
}

int mf_program_matrix(mf_program *p, int32_t index, int type, int64_t rows, int64_t k, int64_t offset) {
    int64_t n_bytes = mf_weight_bytes(type, rows, k);
    if (index < 0 || index >= p->n_matrices || n_bytes <= 0 || !is_inside(p, offset, n_bytes)) return MF_BAD_PROGRAM;
    return mf_weight_init(&p->matrices[index], type, rows, k, p->weights + offset) ? MF_BAD_PROGRAM : MF_OK;
}

enum { REPACK_BYTES = 1 << 18 };

typedef struct {
    const mf_program *program;
    const mf_weight *weight;
    const uint8_t *source;
    int64_t panels_per_piece, n_panels, row_bytes;
    int is_mapped;
} repack_work;

/* Only whole pages between the ends: a neighbouring tensor's bytes would merely be read again. */
static void drop_pages(const uint8_t *begin, const uint8_t *end) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)begin + page - 1) / page * page, last = (uintptr_t)end / page * page;
    if (first < last) madvise((void *)first, last - first, MADV_DONTNEED);
}

static void repack_piece(void *context, int64_t piece) {
    const repack_work *work = context;
    int64_t first = piece * work->panels_per_piece, last = first + work->panels_per_piece;
    if (last > work->n_panels) last = work->n_panels;
    work->program->kernels->repack(work->weight, work->source, NULL, first, last);
    if (!work->is_mapped) return;
    int64_t end_row = last * MF_PANEL_ROWS < work->weight->rows ? last * MF_PANEL_ROWS : work->weight->rows;
    drop_pages(work->source + first * MF_PANEL_ROWS * work->row_bytes, work->source + end_row * work->row_bytes);
}

int mf_program_load_matrix(mf_program *p, int32_t index, const void *source, int is_mapped) {
    if (index < 0 || index >= p->n_matrices || !p->matrices[index].panels) return MF_BAD_PROGRAM;
    const mf_weight *weight = &p->matrices[index];
    repack_work work = {p, weight, source, 1 + REPACK_BYTES / weight->panel_bytes, mf_panel_count(weight->rows),
                        mf_source_row_bytes(weight->type, weight->k), is_mapped};
    mf_pool_for(p->pool, (work.n_panels + work.panels_per_piece - 1) / work.panels_per_piece, repack_piece, &work);
    return MF_OK;
}

int mf_program_vector(mf_program *p, int32_t index, int type, int64_t n, const void *source, int64_t offset) {
    if (index < 0 || index >= p->n_vectors || !is_inside(p, offset, n * 4)) return MF_BAD_PROGRAM;
    float *target = (float *)(p->weights + offset);
    p->vectors[index] = target;
    if (!source) return MF_OK;
    if (type == MF_F32) {
        memcpy(target, source, sizeof(float) * (size_t)n);
        return MF_OK;
    }
    int64_t n_bytes = mf_weight_bytes(type, 1, n);
    void *panel = NULL;
    mf_weight weight;
    if (n_bytes <= 0) return MF_BAD_PROGRAM;
    if (posix_memalign(&panel, MF_ALIGNMENT, (size_t)n_bytes)) return MF_NO_MEMORY;
    int status = mf_weight_init(&weight, type, 1, n, panel) ? MF_BAD_PROGRAM : MF_OK;
    if (!status) {
        p->kernels->repack(&weight, source, NULL, 0, 1);
        p->kernels->gather(&weight, 0, target);
    }
    free(panel);
    return status;
}

static int32_t class_of(int32_t kind) {
    switch (kind) {
        case MF_OP_MATMUL: return MF_CLASS_MATMUL;
        case MF_OP_EXPERT_MATMUL: return MF_CLASS_EXPERTS;
        case MF_OP_ATTEND: return MF_CLASS_ATTEND;
        case MF_OP_HEAD: return MF_CLASS_HEAD;
        default: return MF_CLASS_ROWS;
    }
}

/* Operations without `starts` join the instruction before them; a head brings its own end. */
static int build_instructions(mf_program *p) {
    p->instructions = calloc(2 * (size_t)p->n_operations + 1, sizeof *p->instructions);
    p->cuts = calloc((size_t)p->n_operations + 1, sizeof *p->cuts);
    if (!p->instructions || !p->cuts) return MF_NO_MEMORY;
    for (int32_t i = 0; i < p->n_operations; i++) {
        const mf_operation *op = &p->operations[i];
        int32_t class = class_of(op->kind);
        mf_instruction *last = p->n_instructions ? &p->instructions[p->n_instructions - 1] : NULL;
        if (last && !op->starts) {
            if (last->class != class || p->operations[last->first].rows != op->rows) return MF_BAD_PROGRAM;
            last->count++;
            continue;
        }
        p->instructions[p->n_instructions++] = (mf_instruction){.class = class, .first = i, .count = 1};
        if (class == MF_CLASS_HEAD) {
            p->instructions[p->n_instructions++] = (mf_instruction){.class = MF_CLASS_HEAD_END, .first = i, .count = 1};
        }
    }
    return MF_OK;
}

static int build_classes(mf_program *p) {
    p->classes = calloc((size_t)p->n_operations + 1, sizeof *p->classes);
    if (!p->classes) return MF_NO_MEMORY;
    for (int32_t i = 0; i < p->n_operations; i++) {
        mf_operation *op = &p->operations[i];
        if (op->kind != MF_OP_ATTEND) continue;
        int32_t group = p->slots[2 * op->p[0]], c = 0;
        for (; c < p->n_classes; c++) {
            const mf_attend_class *class = &p->classes[c];
            if (class->group == group && class->n_q == op->p[1] && class->causal == op->p[2]) break;
        }
        if (c == p->n_classes) {
            p->classes[p->n_classes++] = (mf_attend_class){.group = group, .n_q = op->p[1], .causal = op->p[2]};
        }
        op->p[3] = c;
    }
    return MF_OK;
}

static int64_t whole_lines(int64_t floats) { return (floats + 31) / 32 * 32; }

static int build_scratch(mf_program *p) {
    int64_t dk = 1, dv = 16;
    for (int32_t g = 0; g < p->limits.n_groups; g++) {
        if (p->groups[g].dk > dk) dk = p->groups[g].dk;
        if (p->groups[g].dv + 15 > dv) dv = (p->groups[g].dv + 15) / 16 * 16;
    }
    const int64_t rows = MF_TILE_ROWS, values = whole_lines(rows * dv);
    const int64_t sizes[] = {MF_SCORE_ROWS * MF_SCORE_STRIDE, whole_lines(rows * (dk + 1)), values, values,
                             whole_lines(mf_attend_room(dk, dv)), PIECE_ROWS * TILE_COLUMNS};
    int64_t each = 0;
    for (int i = 0; i < 6; i++) each += sizes[i];
    p->scratch_bytes = each * p->n_threads * (int64_t)sizeof(float);
    p->scratch_pages = mf_pages_new(p->scratch_bytes);
    p->scratch = calloc((size_t)p->n_threads, sizeof *p->scratch);
    p->tiles = calloc((size_t)p->n_threads, sizeof *p->tiles);
    if (!p->scratch_pages || !p->scratch || !p->tiles) return MF_NO_MEMORY;
    if (posix_memalign((void **)&p->shares, 128, sizeof *p->shares * (size_t)p->n_threads)) return MF_NO_MEMORY;
    memset((void *)p->shares, 0, sizeof *p->shares * (size_t)p->n_threads);
    float *at = (float *)p->scratch_pages;
    for (int32_t t = 0; t < p->n_threads; t++) {
        float **parts[] = {&p->scratch[t].scores, &p->scratch[t].q,    &p->scratch[t].chunk_values,
                           &p->scratch[t].values, &p->scratch[t].room, &p->scratch[t].logits};
        for (int i = 0; i < 6; i++) {
            *parts[i] = at;
            at += sizes[i];
        }
    }
    return MF_OK;
}

static int copy_limits(mf_program *p, const mf_limits *limits) {
    p->limits = *limits;
    p->groups = calloc((size_t)limits->n_groups + 1, sizeof *p->groups);
    p->slots = calloc(2 * (size_t)limits->n_slots + 1, sizeof *p->slots);
    p->row_sequence = calloc((size_t)limits->max_tokens + 1, sizeof *p->row_sequence);
    if (!p->groups || !p->slots || !p->row_sequence) return MF_NO_MEMORY;
    memcpy(p->groups, limits->groups, sizeof *p->groups * (size_t)limits->n_groups);
    for (int32_t i = 0; i < limits->n_slots; i++) {
        p->slots[2 * i] = limits->slot_group[i];
        p->slots[2 * i + 1] = limits->slot_index[i];
    }
    p->limits.groups = NULL;
    p->limits.slot_group = p->limits.slot_index = NULL;
    return MF_OK;
}

int mf_program_finish(mf_program *p, const mf_operation *operations, int32_t n_operations, const mf_value *values,
                      int32_t n_values, int64_t buffer_bytes, const mf_limits *limits) {
    p->operations = calloc((size_t)n_operations + 1, sizeof *p->operations);
    p->values = calloc((size_t)n_values + 1, sizeof *p->values);
    p->buffers = mf_pages_new(buffer_bytes);
    if (!p->operations || !p->values || !p->buffers || copy_limits(p, limits)) return MF_NO_MEMORY;
    memcpy(p->operations, operations, sizeof *operations * (size_t)n_operations);
    memcpy(p->values, values, sizeof *values * (size_t)n_values);
    p->n_operations = n_operations;
    p->n_values = n_values;
    p->buffer_bytes = buffer_bytes;
    int status = build_instructions(p);
    if (!status) status = build_classes(p);
    if (!status) status = build_scratch(p);
    mf_large_pages_begin(&p->large_pages, p->weights, p->weight_bytes);
    return status;
}

int64_t mf_program_value(const mf_program *p, int32_t value, int32_t order, float *target) {
    const mf_value *v = &p->values[value];
    const int64_t n_rows = p->n_rows[v->rows];
    for (int64_t row = 0; row < n_rows; row++) {
        int64_t place = row;
        if (order >= 0) place = mf_order_of(p, order, p->values[order].features).place[row];
        memcpy(target + row * v->features, mf_row(p, value, place), sizeof(float) * (size_t)v->features);
    }
    return n_rows;
}
