/* Asking for weights, and for keys and values, before their turn: the memory would be idle while threads wait for one
 * another or do what one row needs between two products. Each thread asks for the beginning of its own share of the next
 * product or attention. */
#include <stddef.h>

#include "program.h"

enum {
    AHEAD_BYTES = 128 << 10, /* a part of any second-level cache */
    LINE = 64,
    LINES_AT_ONCE = 16 /* about as many as a core has under way */
};

int32_t mf_share_begin(const mf_program *p, int64_t instruction, int thread) {
    return (int32_t)((int64_t)p->instructions[instruction].n_chunks * thread / p->n_threads);
}

/* Products of one row are bound by memory; with more rows their chunks are in other places. */
void mf_plan_ahead(mf_program *p) {
    int32_t product = 0;
    for (int32_t i = p->n_instructions - 1; i >= 0; i--) {
        mf_instruction *instruction = &p->instructions[i];
        const mf_operation *op = &p->operations[instruction->first];
        instruction->product = product;
        if (instruction->class == MF_CLASS_ATTEND) {
            if (p->classes[op->p[3]].is_split) product = i;
        } else if (instruction->class == MF_CLASS_MATMUL || instruction->class == MF_CLASS_HEAD) {
            product = p->n_rows[op->rows] == 1 ? i : 0;
        }
    }
    for (int thread = 0; thread < p->n_threads; thread++) p->shares[thread].product = 0;
}

static void aim(mf_program *p, int32_t product, int thread) {
    mf_share *share = &p->shares[thread];
    const mf_instruction *instruction = &p->instructions[product];
    const int32_t begin = mf_share_begin(p, product, thread);
    share->product = product;
    share->ahead = share->ahead_end = NULL;
    if (begin == mf_share_begin(p, product, thread + 1)) return;
    if (instruction->class == MF_CLASS_ATTEND)
        mf_attend_memory(p, instruction, begin, &share->ahead, &share->ahead_end);
    else if (instruction->class == MF_CLASS_HEAD)
        mf_head_weights(p, instruction, begin, &share->ahead, &share->ahead_end);
    else
        mf_matmul_weights(p, instruction, begin, &share->ahead, &share->ahead_end);
    if (share->ahead_end - share->ahead > AHEAD_BYTES) share->ahead_end = share->ahead + AHEAD_BYTES;
}

int mf_ask_ahead(mf_program *p, int64_t instruction, int thread) {
    mf_share *share = &p->shares[thread];
    const int32_t product = p->instructions[instruction].product;
    if (!product) return 0;
    if (share->product != product) aim(p, product, thread);
    for (int i = 0; i < LINES_AT_ONCE && share->ahead < share->ahead_end; i++, share->ahead += LINE)
        __builtin_prefetch(share->ahead, 0, 2);
    return share->ahead < share->ahead_end;
}
