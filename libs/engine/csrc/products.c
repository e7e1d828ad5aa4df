/* How matrix products are cut into chunks, and what a chunk does. */
#include "program.h"

enum {
    CHUNKS_PER_THREAD = 8,    /* enough to even out threads that are interrupted */
    LEAST_CHUNK_BYTES = 8192, /* of weights: below, handing out costs more than the work */
    MANY_COLUMNS_PANELS = 16,
    GROUP_PANELS = 4 /* the kernels take so many at a time, or half as many */
};

static int32_t ceil_div(int64_t a, int64_t b) { return (int32_t)((a + b - 1) / b); }

/* The nearest multiple of GROUP_PANELS above 0. */
static int32_t whole_groups(int64_t panels) {
    const int32_t groups = (int32_t)((panels + GROUP_PANELS / 2) / GROUP_PANELS);
    return GROUP_PANELS * (groups ? groups : 1);
}

/* Products of one instruction are cut together: they share the activations. */
void mf_cut_matmul(mf_program *p, mf_instruction *instruction) {
    const int32_t n_columns = p->n_rows[p->operations[instruction->first].rows];
    int64_t panels = 0;
    for (int32_t i = 0; i < instruction->count; i++) {
        panels += mf_panel_count(p->matrices[p->operations[instruction->first + i].weight].rows);
    }
    int64_t per_chunk = ceil_div(panels, (int64_t)CHUNKS_PER_THREAD * p->n_threads);
    int32_t n_chunks = 0;
    for (int32_t i = 0; i < instruction->count; i++) {
        const mf_weight *weight = &p->matrices[p->operations[instruction->first + i].weight];
        mf_cut *cut = &p->cuts[instruction->first + i];
        int64_t least = ceil_div(LEAST_CHUNK_BYTES, weight->panel_bytes);
        cut->first_chunk = n_chunks;
        cut->columns_per_chunk = n_columns <= p->kernels->tile_columns ? n_columns : p->kernels->tile_columns;
        cut->panels_per_chunk = whole_groups(per_chunk > least ? per_chunk : least);
        if (n_columns > 8 && cut->panels_per_chunk > MANY_COLUMNS_PANELS) cut->panels_per_chunk = MANY_COLUMNS_PANELS;
        cut->panel_chunks = ceil_div(mf_panel_count(weight->rows), cut->panels_per_chunk);
        n_chunks += cut->panel_chunks * (n_columns ? ceil_div(n_columns, cut->columns_per_chunk) : 0);
    }
    instruction->n_chunks = n_chunks;
}

static int32_t operation_of(const mf_program *p, const mf_instruction *instruction, int32_t chunk) {
    int32_t index = instruction->first;
    while (index + 1 < instruction->first + instruction->count && p->cuts[index + 1].first_chunk <= chunk) index++;
    return index;
}

void mf_matmul_weights(const mf_program *p, const mf_instruction *instruction, int32_t chunk, const uint8_t **begin,
                       const uint8_t **end) {
    const int32_t index = operation_of(p, instruction, chunk);
    const mf_weight *weight = &p->matrices[p->operations[index].weight];
    const mf_cut *cut = &p->cuts[index];
    *begin = weight->panels + (int64_t)(chunk - cut->first_chunk) * cut->panels_per_chunk * weight->panel_bytes;
    *end = weight->panels + mf_panel_count(weight->rows) * weight->panel_bytes;
}

void mf_matmul_chunk(mf_program *p, const mf_instruction *instruction, int32_t chunk) {
    const int32_t index = operation_of(p, instruction, chunk);
    const mf_operation *op = &p->operations[index];
    const mf_cut *cut = &p->cuts[index];
    const mf_weight *weight = &p->matrices[op->weight];
    const int64_t n_columns = p->n_rows[op->rows], n_panels = mf_panel_count(weight->rows);
    chunk -= cut->first_chunk;
    int64_t panel = (int64_t)(chunk % cut->panel_chunks) * cut->panels_per_chunk;
    int64_t column = (int64_t)(chunk / cut->panel_chunks) * cut->columns_per_chunk;
    int64_t end_panel = panel + cut->panels_per_chunk < n_panels ? panel + cut->panels_per_chunk : n_panels;
    int64_t end_column = column + cut->columns_per_chunk < n_columns ? column + cut->columns_per_chunk : n_columns;
    mf_output out = {(float *)mf_row(p, op->out, 0) + op->p[0],
                     p->values[op->out].row_bytes / (int64_t)sizeof(float),
                     op->bias >= 0 ? p->vectors[op->bias] : 0, op->p[1]};
    p->kernels->matmul(weight, mf_row(p, op->a, 0), panel, end_panel, column, end_column, &out);
}

enum { EXPERT_PARTS = 4 };

/* Chunks are (expert, quarter of its rows), experts without pairs included: their number is data of the step. */
void mf_expert_chunk(mf_program *p, const mf_instruction *instruction, int32_t chunk) {
    const int32_t per_operation = instruction->n_chunks / instruction->count;
    const mf_operation *op = &p->operations[instruction->first + chunk / per_operation];
    const int32_t expert = chunk % per_operation / EXPERT_PARTS, part = chunk % EXPERT_PARTS;
    const mf_order order = mf_order_of(p, op->b, op->p[4]);
    const int64_t first = order.first[expert], end = order.first[expert + 1];
    if (first == end) return;
    const mf_weight *weight = &p->matrices[op->weight + expert];
    const int64_t panels = mf_panel_count(weight->rows);
    mf_output out = {(float *)mf_row(p, op->out, 0), p->values[op->out].row_bytes / (int64_t)sizeof(float), 0, 0};
    p->kernels->matmul(weight, mf_row(p, op->a, 0), panels * part / EXPERT_PARTS, panels * (part + 1) / EXPERT_PARTS,
                       first, end, &out);
}
