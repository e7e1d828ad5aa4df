/* One step: instructions in order, each cut into chunks that any thread may take.
 *
 * There is no barrier. Each thread has a share of the chunks, one after the other in memory, and a ticket that names
 * the instruction and the share's next chunk; a thread that has finished its share takes from those of others. Whoever
 * finishes an instruction's last chunk publishes the next one. A thread that the system has put aside holds nothing up
 * unless it holds a chunk, and instructions of one chunk are run on the spot by the thread that got there. */
#include <stdlib.h>
#include <string.h>

#include "program.h"

enum { ROW_CHUNKS_PER_THREAD = 8, MOST_ROWS_OF_CHUNK = 16 };

static void row_chunk(mf_program *p, const mf_instruction *instruction, int32_t chunk) {
    const int32_t n_rows = p->n_rows[p->operations[instruction->first].rows];
    int32_t first = chunk * instruction->rows_per_chunk, end = first + instruction->rows_per_chunk;
    if (end > n_rows) end = n_rows;
    for (int32_t row = first; row < end; row++) {
        for (int32_t i = 0; i < instruction->count; i++) {
            mf_row_operation(p, &p->operations[instruction->first + i], row);
        }
    }
}

/* By the calling thread, as often as it looks for work: the others may take all chunks of an instruction. */
static void check_cancel(mf_program *p) {
    if (!p->cancel) return;
    int64_t now = mf_nanoseconds();
    if (now < p->next_check) return;
    p->next_check = now + p->cancel_interval;
    if (p->cancel(p->cancel_context)) atomic_store(&p->is_cancelled, 1);
}

static void run_piece(mf_program *p, const mf_instruction *instruction, int32_t chunk, int thread) {
    if (atomic_load_explicit(&p->is_cancelled, memory_order_relaxed)) return;
    const mf_operation *op = &p->operations[instruction->first];
    switch (instruction->class) {
        case MF_CLASS_ROWS: row_chunk(p, instruction, chunk); break;
        case MF_CLASS_MATMUL: mf_matmul_chunk(p, instruction, chunk); break;
        case MF_CLASS_EXPERTS: mf_expert_chunk(p, instruction, chunk); break;
        case MF_CLASS_ATTEND:
            if (thread == 0) check_cancel(p); /* its share of a long attention is the longest it is away */
            mf_attend_task(p, op, chunk, thread);
            break;
        case MF_CLASS_HEAD: mf_head_chunk(p, op, chunk, thread); break;
        default: mf_head_end(p, op); break;
    }
}

static void publish(mf_program *p, int64_t instruction) {
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    for (int thread = 0; thread < p->n_threads; thread++) {
        const uint64_t chunk = instruction < p->n_instructions ? (uint64_t)mf_share_begin(p, instruction, thread) : 0;
        atomic_store(&p->shares[thread].ticket, (uint64_t)instruction << 32 | chunk);
    }
    mf_pool_wake(p->pool);
}

/* Publish the first instruction from `next` on that is worth sharing; run the others here. Publishing counts as one
 * more chunk: else the tickets of the next instruction could be written before the last of these. */
static void advance(mf_program *p, int64_t next, int thread) {
    for (;; next++) {
        for (; next < p->n_instructions; next++) {
            const mf_instruction *instruction = &p->instructions[next];
            if (instruction->n_chunks > 1) break;
            mf_ask_ahead(p, next, thread);
            if (instruction->n_chunks == 1) run_piece(p, instruction, 0, thread);
        }
        publish(p, next);
        if (next == p->n_instructions) return;
        if (atomic_fetch_add(&p->done, 1) != p->instructions[next].n_chunks) return;
    }
}

static int has_chunk(const mf_program *p, uint64_t ticket, int owner) {
    const int64_t instruction = (int64_t)(ticket >> 32);
    return instruction < p->n_instructions && (int32_t)(uint32_t)ticket < mf_share_begin(p, instruction, owner + 1);
}

/* Runs the next chunk of a thread's share; whether there was one. */
static int run_next(mf_program *p, int owner, int thread, int64_t *instruction) {
    _Atomic uint64_t *ticket = &p->shares[owner].ticket;
    if (!has_chunk(p, atomic_load_explicit(ticket, memory_order_acquire), owner)) return 0;
    const uint64_t taken = atomic_fetch_add(ticket, 1);
    if (!has_chunk(p, taken, owner)) return 0;
    *instruction = (int64_t)(taken >> 32);
    run_piece(p, &p->instructions[*instruction], (int32_t)(uint32_t)taken, thread);
    return 1;
}

static void take_part(void *context, int thread) {
    mf_program *p = context;
    for (;;) {
        if (thread == 0) check_cancel(p);
        const uint64_t seen = atomic_load_explicit(&p->shares[thread].ticket, memory_order_acquire);
        if (seen >> 32 >= (uint64_t)p->n_instructions) return;
        int64_t instruction = 0;
        int32_t n = 0;
        while (run_next(p, thread, thread, &instruction)) n++;
        for (int other = 1; !n && other < p->n_threads; other++)
            n = run_next(p, (thread + other) % p->n_threads, thread, &instruction);
        if (n) {
            if (atomic_fetch_add(&p->done, n) + n == p->instructions[instruction].n_chunks + 1)
                advance(p, instruction + 1, thread);
            continue;
        }
        while (mf_ask_ahead(p, (int64_t)(seen >> 32), thread)) {
            if (atomic_load_explicit(&p->shares[thread].ticket, memory_order_acquire) != seen) break;
        }
        mf_pool_wait(p->pool, &p->shares[thread].ticket, seen);
    }
}

static void plan_rows(mf_program *p, mf_instruction *instruction) {
    int32_t n = p->n_rows[p->operations[instruction->first].rows];
    int32_t per_chunk = n / (ROW_CHUNKS_PER_THREAD * p->n_threads);
    if (per_chunk < 1) per_chunk = 1;
    if (per_chunk > MOST_ROWS_OF_CHUNK) per_chunk = MOST_ROWS_OF_CHUNK;
    instruction->rows_per_chunk = per_chunk;
    instruction->n_chunks = (n + per_chunk - 1) / per_chunk;
}

static int plan_instruction(mf_program *p, mf_instruction *instruction) {
    const mf_operation *op = &p->operations[instruction->first];
    switch (instruction->class) {
        case MF_CLASS_ROWS: plan_rows(p, instruction); return MF_OK;
        case MF_CLASS_MATMUL: mf_cut_matmul(p, instruction); return MF_OK;
        case MF_CLASS_EXPERTS:
            instruction->n_chunks = p->n_rows[op->rows] ? 4 * op->p[4] * instruction->count : 0;
            return MF_OK;
        case MF_CLASS_ATTEND: instruction->n_chunks = p->classes[op->p[3]].n_tasks; return MF_OK;
        case MF_CLASS_HEAD: return mf_plan_head(p, instruction);
        default: instruction->n_chunks = p->batch->n_logits ? 1 : 0; return MF_OK;
    }
}

static int plan_step(mf_program *p) {
    int64_t floats = 0;
    for (int32_t i = 0; i < p->n_classes; i++) {
        if (mf_plan_attention(p, &p->classes[i])) return MF_NO_MEMORY;
        if (p->classes[i].partial_floats > floats) floats = p->classes[i].partial_floats;
    }
    if (floats > p->partial_capacity) {
        free(p->partials);
        p->partials = malloc(sizeof(float) * (size_t)floats);
        p->partial_capacity = p->partials ? floats : 0;
        if (!p->partials) return MF_NO_MEMORY;
    }
    for (int32_t i = 0; i < p->n_instructions; i++) {
        if (plan_instruction(p, &p->instructions[i])) return MF_NO_MEMORY;
    }
    mf_plan_ahead(p);
    return MF_OK;
}

static int is_sequence_sound(const mf_program *p, const mf_batch *batch, const mf_cache *cache, int32_t index) {
    const mf_sequence *s = &batch->sequences[index];
    if (s->n_rows < 1 || s->first_row < 0 || s->length_before < 0) return 0;
    if (s->first_row > batch->n_tokens - s->n_rows || s->length_before > INT32_MAX - s->n_rows) return 0;
    const int64_t blocks = ((int64_t)s->length_before + s->n_rows + MF_BLOCK_POSITIONS - 1) / MF_BLOCK_POSITIONS;
    for (int32_t g = 0; g < p->limits.n_groups; g++) {
        const int64_t at = (int64_t)index * p->limits.n_groups + g;
        const int32_t window = p->groups[g].window;
        if (batch->table_lengths[at] < blocks) return 0;
        int64_t first = window && s->length_before > window ? (s->length_before - window + 1) / MF_BLOCK_POSITIONS : 0;
        for (int64_t b = first; b < blocks; b++) {
            int32_t block = batch->block_tables[at][b];
            if (block < 0 || block >= cache->group[g].n_blocks) return 0;
        }
    }
    for (int32_t i = 0; i < s->n_rows; i++) {
        int32_t position = batch->cache_pos[s->first_row + i];
        if (position < s->length_before || position >= s->length_before + s->n_rows) return 0;
        p->row_sequence[s->first_row + i] = index;
    }
    return 1;
}

/* Everything that comes from outside is an index here: one loop now instead of trust in the kernels. */
static int is_batch_sound(const mf_program *p, const mf_batch *batch, const mf_cache *cache) {
    if (batch->n_tokens < 1 || batch->n_tokens > p->limits.max_tokens) return 0;
    if (batch->n_logits < 0 || batch->n_logits > p->limits.max_logits) return 0;
    if (batch->n_sequences < 1 || batch->n_sequences > batch->n_tokens) return 0;
    if (cache->n_groups != p->limits.n_groups) return 0;
    for (int32_t i = 0; i < batch->n_tokens; i++) p->row_sequence[i] = -1;
    for (int32_t i = 0; i < batch->n_sequences; i++) {
        if (!is_sequence_sound(p, batch, cache, i)) return 0;
    }
    for (int32_t i = 0; i < batch->n_tokens; i++) {
        if (p->row_sequence[i] < 0) return 0;
    }
    for (int32_t i = 0; i < batch->n_logits; i++) {
        if (batch->logit_rows[i] < 0 || batch->logit_rows[i] >= batch->n_tokens) return 0;
    }
    for (int32_t i = 0; i < p->n_operations; i++) {
        const mf_operation *op = &p->operations[i];
        if (op->kind != MF_OP_EMBED || op->p[0] == 2 || (op->p[0] == 0 && batch->rows)) continue;
        const int32_t *index = op->p[0] ? batch->rope_pos : batch->ids;
        for (int32_t t = 0; t < batch->n_tokens; t++) {
            if (index[t] < 0 || index[t] >= p->matrices[op->weight].rows) return 0;
        }
    }
    return 1;
}

int mf_program_run(mf_program *p, const mf_batch *batch, mf_cache *cache, const mf_query *query,
                   int (*cancel)(void *), void *cancel_context, int64_t cancel_interval) {
    if (!is_batch_sound(p, batch, cache)) return MF_BAD_BATCH;
    p->n_steps++;
    p->batch = batch;
    p->cache = cache;
    p->query = query;
    p->n_rows[MF_TOKENS] = batch->n_tokens;
    p->n_rows[MF_LOGITS] = batch->n_logits;
    p->n_rows[MF_SEQUENCES] = batch->n_sequences;
    p->n_rows[MF_PAIRS] = batch->n_tokens * p->limits.n_used;
    p->n_rows[MF_LOGIT_PAIRS] = batch->n_logits * p->limits.n_used;
    p->n_rows[MF_ONCE] = 1;
    p->cancel = cancel;
    p->cancel_context = cancel_context;
    p->cancel_interval = cancel_interval;
    p->next_check = 0;
    atomic_store(&p->is_cancelled, 0);
    int status = plan_step(p);
    if (status) return status;
    check_cancel(p);
    int64_t start = mf_nanoseconds();
    advance(p, 0, 0);
    mf_pool_run(p->pool, take_part, p);
    mf_large_pages_step(&p->large_pages, mf_nanoseconds() - start);
    return atomic_load(&p->is_cancelled) ? MF_CANCELLED : MF_OK;
}
