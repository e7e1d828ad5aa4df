/* Mixtures of experts: the choice, and the order that puts each expert's pairs side by side. */
#include <math.h>
#include <string.h>

#include "program.h"

enum { MOST_EXPERTS = 1024, MOST_GROUPS = 64 };
#define LEAST_WEIGHT_SUM 0x1p-14f /* the smallest normal half: what the numpy backend divides by at least */

enum { ROUTE_SOFTMAX = 0, ROUTE_SIGMOID = 1, ROUTE_SOFTMAX_OF_CHOSEN = 2 };

mf_order mf_order_of(const mf_program *p, int32_t value, int32_t n_experts) {
    int32_t *base = (int32_t *)mf_row(p, value, 0);
    int64_t rows = p->limits.max_tokens > p->limits.max_logits ? p->limits.max_tokens : p->limits.max_logits;
    int64_t most = rows * p->limits.n_used;
    int32_t *pair = base + n_experts + 1;
    return (mf_order){base, pair, pair + most, pair + 2 * most};
}

void mf_sort_pairs(mf_program *p, const mf_operation *op) {
    const int32_t n_experts = op->p[4], n_used = op->p[1], n_tokens = p->n_rows[op->p[0]];
    mf_order order = mf_order_of(p, op->out, n_experts);
    memset(order.first, 0, sizeof(int32_t) * (size_t)(n_experts + 1));
    for (int32_t t = 0; t < n_tokens; t++) {
        const int32_t *ids = (const int32_t *)mf_row(p, op->a, t);
        for (int32_t i = 0; i < n_used; i++) order.first[ids[i] + 1]++;
    }
    for (int32_t e = 0; e < n_experts; e++) order.first[e + 1] += order.first[e];
    for (int32_t t = 0; t < n_tokens; t++) {
        const int32_t *ids = (const int32_t *)mf_row(p, op->a, t);
        for (int32_t i = 0; i < n_used; i++) {
            int32_t place = order.first[ids[i]]++; /* moves each start to its end, which is put right below */
            order.pair[place] = t * n_used + i;
            order.expert[place] = ids[i];
            order.place[t * n_used + i] = place;
        }
    }
    memmove(order.first + 1, order.first, sizeof(int32_t) * (size_t)n_experts);
    order.first[0] = 0;
}

/* Best first: larger score, then lower id. */
static void choose(int32_t n, int32_t k, const float *score, int32_t *ids) {
    for (int32_t found = 0, i = 0; i < n; i++) {
        if (found == k && !(score[i] > score[ids[k - 1]])) continue;
        int32_t at = found < k ? found++ : k - 1;
        for (; at > 0 && score[i] > score[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = i;
    }
}

/* Only the best groups stay; a group's score is the sum of its two best. */
static void keep_groups(const mf_operation *op, float *score) {
    const int32_t n_groups = op->p[3], n_kept = op->p[6], size = op->p[4] / n_groups;
    float total[MOST_GROUPS];
    int32_t best[MOST_GROUPS], is_kept[MOST_GROUPS] = {0};
    for (int32_t g = 0; g < n_groups; g++) {
        int32_t top[2];
        int32_t n = size < 2 ? size : 2;
        choose(size, n, score + g * size, top);
        total[g] = score[g * size + top[0]] + (n > 1 ? score[g * size + top[1]] : 0);
    }
    choose(n_groups, n_kept, total, best);
    for (int32_t i = 0; i < n_kept; i++) is_kept[best[i]] = 1;
    for (int32_t g = 0; g < n_groups; g++) {
        for (int32_t i = 0; i < size && !is_kept[g]; i++) score[g * size + i] = -INFINITY;
    }
}

void mf_route(const mf_program *p, const mf_operation *op, const float *logits, int32_t *ids) {
    const int32_t kind = op->p[0], n_experts = op->p[4], n_used = op->p[1];
    float *weights = (float *)(ids + n_used), gate[MOST_EXPERTS], score[MOST_EXPERTS];
    if (kind == ROUTE_SOFTMAX) p->rows->softmax(n_experts, logits, gate);
    if (kind == ROUTE_SIGMOID) p->rows->activate(MF_SIGMOID, n_experts, logits, gate);
    if (kind == ROUTE_SOFTMAX_OF_CHOSEN) memcpy(gate, logits, sizeof(float) * (size_t)n_experts);
    memcpy(score, gate, sizeof(float) * (size_t)n_experts);
    if (op->weight >= 0) p->rows->add(n_experts, gate, p->vectors[op->weight], score);
    if (op->p[3] > 1) keep_groups(op, score);
    choose(n_experts, n_used, score, ids);
    for (int32_t i = 0; i < n_used; i++) weights[i] = gate[ids[i]];
    if (kind == ROUTE_SOFTMAX_OF_CHOSEN) {
        float chosen[MOST_EXPERTS];
        memcpy(chosen, weights, sizeof(float) * (size_t)n_used);
        p->rows->softmax(n_used, chosen, weights);
    }
    if (op->p[5]) {
        float sum = 0;
        for (int32_t i = 0; i < n_used; i++) sum += weights[i];
        if (!(sum > LEAST_WEIGHT_SUM)) sum = LEAST_WEIGHT_SUM;
        for (int32_t i = 0; i < n_used; i++) weights[i] /= sum;
    }
    for (int32_t i = 0; i < n_used; i++) weights[i] *= op->f[0];
}
