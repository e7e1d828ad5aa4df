/* Operations that need one row at a time. */
#include <string.h>

#include "angles.h"
#include "program.h"

static inline const float *floats(const mf_program *p, int32_t value, int64_t row) {
    return (const float *)mf_row(p, value, row);
}

static inline const float *vector_of(const mf_program *p, int32_t index) {
    return index < 0 ? NULL : p->vectors[index];
}

static int32_t features_of(const mf_program *p, int32_t value) { return p->values[value].features; }

static void embed(mf_program *p, const mf_operation *op, int64_t row) {
    float *out = (float *)mf_row(p, op->out, row);
    const mf_weight *table = &p->matrices[op->weight];
    const mf_batch *batch = p->batch;
    if (op->p[0] == 0 && batch->rows) {
        memcpy(out, batch->rows + row * table->k, sizeof(float) * (size_t)table->k);
        return;
    }
    int32_t index = op->p[0] == 0 ? batch->ids[row] : op->p[0] == 1 ? batch->rope_pos[row] : 0;
    p->kernels->gather(table, index, out);
}

static void rope_table(mf_program *p, const mf_operation *op, int64_t row) {
    float *out = (float *)mf_row(p, op->out, row);
    const float *frequencies = p->vectors[op->weight];
    int32_t n = op->p[0];
    for (int32_t i = 0; i < n; i++) {
        double frequency = (double)frequencies[2 * i] + (double)frequencies[2 * i + 1], sine, cosine;
        mf_sine_cosine((double)p->batch->rope_pos[row] * frequency, &sine, &cosine);
        out[i] = (float)(cosine * (double)op->f[0]);
        out[n + i] = (float)(sine * (double)op->f[0]);
    }
}

static void norm(mf_program *p, const mf_operation *op, int64_t row) {
    const float *x = floats(p, op->a, row), *weight = vector_of(p, op->weight), *bias = vector_of(p, op->bias);
    float *y = (float *)mf_row(p, op->out, row);
    int64_t n = features_of(p, op->out) / op->p[1];
    void (*kernel)(int64_t, const float *, const float *, const float *, float, float *) =
        op->p[0] ? p->rows->norm_layer : p->rows->norm_rms;
    for (int64_t group = 0; group < op->p[1]; group++) {
        int64_t shift = op->p[2] ? group * n : 0;
        kernel(n, x + group * n, weight ? weight + shift : NULL, bias ? bias + shift : NULL, op->f[0], y + group * n);
    }
}

static void rope(mf_program *p, const mf_operation *op, int64_t row) {
    const float *x = floats(p, op->a, row), *table = floats(p, op->b, row);
    float *y = (float *)mf_row(p, op->out, row);
    const int64_t size = op->p[1], n = op->p[2], offset = op->p[4];
    for (int32_t head = 0; head < op->p[0]; head++, x += size, y += size) {
        if (x != y && offset) memcpy(y, x, sizeof(float) * (size_t)offset);
        if (op->p[3]) {
            p->rows->rope_neighbours(n, table, table + n, x + offset, y + offset);
        } else {
            p->rows->rope_halves(n, table, table + n, x + offset, y + offset);
        }
        int64_t end = offset + 2 * n;
        if (x != y && end < size) memcpy(y + end, x + end, sizeof(float) * (size_t)(size - end));
    }
}

static void store_float(const mf_cache_group *spec, float *block, int32_t position, const float *key,
                        const float *value) {
    for (int32_t d = 0; d < spec->dk; d++) block[d * MF_BLOCK_POSITIONS + position] = key[d];
    block += spec->dk * MF_BLOCK_POSITIONS;
    for (int32_t d = 0; d < spec->dv; d += 16) {
        size_t n = spec->dv - d < 16 ? (size_t)(spec->dv - d) : 16;
        memcpy(block + d * MF_BLOCK_POSITIONS + position * 16, value + d, n * sizeof(float));
    }
}

static void cache_write(mf_program *p, const mf_operation *op, int64_t row) {
    const int32_t group = p->slots[2 * op->p[0]], slot = p->slots[2 * op->p[0] + 1];
    const mf_cache_store *store = &p->cache->group[group];
    const mf_cache_group *spec = &store->spec;
    const int32_t position = p->batch->cache_pos[row], sequence = p->row_sequence[row];
    const int32_t *table = p->batch->block_tables[sequence * p->limits.n_groups + group];
    const int32_t block = table[position / MF_BLOCK_POSITIONS], place = position % MF_BLOCK_POSITIONS;
    const float *key = floats(p, op->a, row);
    const float *value = op->b < 0 ? key : floats(p, op->b, row);
    for (int32_t head = 0; head < spec->n_kv; head++) {
        uint8_t *part = mf_cache_part(store, slot, block, head);
        const float *head_key = key + head * spec->dk, *head_value = value + head * spec->dv;
        if (spec->is_whole) {
            p->rows->store_whole(spec->dk, spec->dv, head_key, head_value, place, part);
        } else {
            store_float(spec, (float *)part, place, head_key, head_value);
        }
    }
}

static void quantize(mf_program *p, const mf_operation *op, int64_t row) {
    int64_t source = row;
    if (op->b >= 0 && op->p[3]) source = mf_order_of(p, op->b, op->p[4]).pair[row] / op->p[3];
    p->kernels->quantize(op->p[2], op->p[1], floats(p, op->a, source) + op->p[0], mf_row(p, op->out, row));
}

static void per_expert(mf_program *p, const mf_operation *op, int64_t row) {
    const float *x = floats(p, op->a, row);
    float *y = (float *)mf_row(p, op->out, row);
    int64_t n = features_of(p, op->out);
    int32_t expert = op->b >= 0 ? mf_order_of(p, op->b, op->p[4]).expert[row] : 0;
    if (op->kind == MF_OP_ADD_VECTOR) {
        p->rows->add(n, x, p->vectors[op->weight] + expert * n, y);
    } else {
        p->rows->scale(n, x, p->vectors[op->weight][expert], y);
    }
}

static void combine(mf_program *p, const mf_operation *op, int64_t row) {
    const int32_t n_used = op->p[0];
    const float *weights = floats(p, op->b, row) + n_used;
    const int32_t *place = mf_order_of(p, op->weight, op->p[4]).place + row * n_used;
    float *y = (float *)mf_row(p, op->out, row);
    int64_t n = features_of(p, op->out);
    p->rows->scale(n, floats(p, op->a, place[0]), weights[0], y);
    for (int32_t i = 1; i < n_used; i++) p->rows->add_scaled(n, floats(p, op->a, place[i]), weights[i], y);
}

static void pool_rows(mf_program *p, const mf_operation *op, int64_t row) {
    const mf_sequence *sequence = &p->batch->sequences[row];
    float *y = (float *)mf_row(p, op->out, row);
    int64_t n = features_of(p, op->out);
    int64_t chosen = sequence->first_row + (op->p[0] == 2 ? sequence->n_rows - 1 : 0);
    memcpy(y, floats(p, op->a, chosen), sizeof(float) * (size_t)n);
    if (op->p[0]) return;
    for (int32_t i = 1; i < sequence->n_rows; i++) p->rows->add(n, floats(p, op->a, chosen + i), y, y);
    p->rows->scale(n, y, 1.0f / (float)sequence->n_rows, y);
}

static void copy(mf_program *p, const mf_operation *op, int64_t row) {
    memcpy((float *)mf_row(p, op->out, row) + op->p[1], floats(p, op->a, row) + op->p[0],
           sizeof(float) * (size_t)op->p[2]);
}

static void elementwise(mf_program *p, const mf_operation *op, int64_t row) {
    const float *a = floats(p, op->a, row), *b = op->b < 0 ? NULL : floats(p, op->b, row);
    float *y = (float *)mf_row(p, op->out, row);
    int64_t n = features_of(p, op->out);
    switch (op->kind) {
        case MF_OP_ACTIVATE: p->rows->activate(op->p[0], n, a, y); break;
        case MF_OP_GLU: p->rows->glu(op->p[0], op->f[0], n, a, b, y); break;
        case MF_OP_ADD: p->rows->add(n, a, b, y); break;
        case MF_OP_MUL: p->rows->mul(n, a, b, y); break;
        case MF_OP_SCALE: p->rows->scale(n, a, op->f[0], y); break;
        case MF_OP_SOFTCAP: p->rows->softcap(n, a, op->f[0], y); break;
        default: p->rows->norm_l2(n, a, y); break;
    }
}

void mf_row_operation(mf_program *p, const mf_operation *op, int64_t row) {
    switch (op->kind) {
        case MF_OP_EMBED: embed(p, op, row); break;
        case MF_OP_ROPE_TABLE: rope_table(p, op, row); break;
        case MF_OP_NORM: norm(p, op, row); break;
        case MF_OP_ROPE: rope(p, op, row); break;
        case MF_OP_CACHE_WRITE: cache_write(p, op, row); break;
        case MF_OP_COPY: copy(p, op, row); break;
        case MF_OP_QUANTIZE: quantize(p, op, row); break;
        case MF_OP_ADD_VECTOR:
        case MF_OP_SCALE_EXPERT: per_expert(p, op, row); break;
        case MF_OP_ROUTE: mf_route(p, op, floats(p, op->a, row), (int32_t *)mf_row(p, op->out, row)); break;
        case MF_OP_COMBINE: combine(p, op, row); break;
        case MF_OP_SELECT:
            memcpy(mf_row(p, op->out, row), mf_row(p, op->a, p->batch->logit_rows[row]),
                   sizeof(float) * (size_t)features_of(p, op->out));
            break;
        case MF_OP_POOL: pool_rows(p, op, row); break;
        case MF_OP_SORT_PAIRS: mf_sort_pairs(p, op); break;
        default: elementwise(p, op, row); break;
    }
}
