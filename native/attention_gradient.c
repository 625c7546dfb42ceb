/* The gradient of `attention.c`, in one pass over the edges by source: a target's gradient row, once in the cache, serves
   the product that is the gradient of the edge's weight and the weighted sum that is the gradient of the value. */
#include <stddef.h>

#include "pool.h"
#include "softmax.h"

/* What is known of a target: maximum, 1 / denominator, what all its logits get, its half of them. Edges taken at once. */
enum { ABOUT = 4, AT_ONCE = 4 };

typedef struct {
    csr by_target, by_source; /* edges of by_source: the number of each in by_target */
    logits logits;
    const float *factor, *kept;         /* as in the forward pass */
    const float *maximum, *denominator; /* [T, heads]; denominator: NULL for one */
    const float *mean;                  /* [T, heads, width]; NULL where grad_target has its part */
    const void *value, *grad;           /* grad of the means [T, heads, width], of the same kind */
    const float *grad_weight;           /* what else the gradient of an edge's share is made of [E, heads], or NULL */
    const float *grad_target;           /* what else is added to that of each of a target's logits [T, heads], or NULL */
    int64_t value_heads, width, chunks;
    float *about;                       /* of each target [T, ABOUT, heads], in one place */
    float *by_logit;                    /* gradient of the logits, or of the halves' sum [E, heads] */
    float *by_source_half, *by_target_half; /* [S, heads] and [T, heads]; NULL where logits are given */
    float *by_value;                    /* [S, heads, width] */
    int64_t add;                        /* whether the last three are added to */
} gradient;

/* The softmax's own part: each logit of a target gets minus its share of grad . mean. */
INLINE void describe_targets(const gradient *s, int64_t chunk, int kind) {
    int64_t from = first_row(&s->by_target, chunk, s->chunks), to = first_row(&s->by_target, chunk + 1, s->chunks);
    int64_t heads = s->logits.heads, width = s->width;
    for (int64_t row = from; row < to; row++)
        for (int64_t head = 0; head < heads; head++) {
            int64_t at = row * heads + head, k = 0;
            const void *grad = rows_at(s->grad, at * width, kind);
            const float *mean = s->mean ? s->mean + at * width : NULL;
            float sum[LINE] = {0}, total = 0, *about = s->about + row * ABOUT * heads + head;
            for (; mean && k + LINE <= width; k += LINE)
                for (int lane = 0; lane < LINE; lane++) sum[lane] += load(grad, k + lane, kind) * mean[k + lane];
            for (int lane = 0; mean && k + lane < width; lane++) sum[lane] += load(grad, k + lane, kind) * mean[k + lane];
            for (int lane = 0; lane < LINE; lane++) total += sum[lane];
            about[0] = s->maximum[at];
            about[heads] = !s->denominator ? 1 : s->denominator[at] == 0 ? 0 : 1 / s->denominator[at];
            if (s->logits.target) about[3 * heads] = s->logits.target[at];
            about[2 * heads] = (s->grad_target ? s->grad_target[at] : 0) - total;
        }
}

/* What is kept of a run of edges, each [edges, heads]. */
typedef struct {
    float weight[ROOM + MOST_LANES], below[ROOM + MOST_LANES]; /* share; maximum, then what all logits get */
    float inverse[ROOM + MOST_LANES], steep[ROOM + MOST_LANES], product[ROOM + AT_ONCE * MOST_HEADS];
} run;

/* Copy what a run of edges is computed from: logits or the sums of their halves, and of their targets the maximum and one
   over the denominator. What lies AHEAD x 2 edges on is asked for. */
INLINE void gather_run(const gradient *s, int64_t row, int64_t begin, int64_t edges, int64_t last_edge, int64_t heads,
                       run *r) {
    const logits *l = &s->logits;
    const csr *a = &s->by_source;
    for (int64_t i = 0; i < edges; i++) {
        int64_t edge = begin + i, soon = edge + 2 * AHEAD;
        if (soon < last_edge) {
            __builtin_prefetch(s->about + source_of(a, soon) * ABOUT * heads);
            __builtin_prefetch(s->by_logit + edge_of(a, soon) * heads, 1);
            if (l->given) __builtin_prefetch(l->given + edge_of(a, soon) * heads);
        }
        const float *about = s->about + source_of(a, edge) * ABOUT * heads;
        const float *left = l->given ? l->given + edge_of(a, edge) * heads : l->source + row * heads;
        for (int64_t h = 0; h < heads; h++) {
            r->weight[i * heads + h] = l->given ? left[h] : left[h] + about[(ABOUT - 1) * heads + h];
            r->below[i * heads + h] = about[h];
            r->inverse[i * heads + h] = about[heads + h];
        }
    }
}

/* Shares of a run of edges from one source, before dropout. */
INLINE void fill_run(const gradient *s, int64_t row, int64_t begin, int64_t edges, int64_t last_edge, run *r) {
    const logits *l = &s->logits;
    int64_t heads = l->heads, count = edges * heads;
    const csr *a = &s->by_source;
    if (heads == 4) gather_run(s, row, begin, edges, last_edge, 4, r);
    else if (heads == 8) gather_run(s, row, begin, edges, last_edge, 8, r);
    else gather_run(s, row, begin, edges, last_edge, heads, r);
    filled(r->below, count, LINE, 0), filled(r->inverse, count, LINE, 0);
    int64_t whole = filled(r->weight, count, LINE, -INFINITY);
    float flat = l->given ? 1 : l->slope;
    for (int64_t k = 0; k < whole; k += LINE)
        for (int lane = k; lane < k + LINE; lane++) {
            float slope = r->weight[lane] > 0 ? 1 : flat;
            r->steep[lane] = slope;
            r->weight[lane] = exponential(slope * r->weight[lane] - r->below[lane]) * r->inverse[lane];
        }
    if (s->factor)
        for (int64_t k = 0; k < count; k++) r->weight[k] *= s->factor[edge_of(a, begin + k / heads)];
    for (int64_t i = 0; i < edges; i++)
        copy_heads(r->below + i * heads, s->about + (source_of(a, begin + i) * ABOUT + 2) * heads, heads);
    memset(r->product, 0, (count + AT_ONCE * heads) * sizeof *r->product);
    for (int64_t i = 0; s->grad_weight && i < edges; i++)
        copy_heads(r->product + i * heads, s->grad_weight + edge_of(a, begin + i) * heads, heads);
}

/* One head of a run over a block of columns: products with the value, and the sum of the targets' gradients. */
INLINE void add_run(const gradient *s, int64_t row, int64_t begin, int64_t edges, int64_t last_edge, run *r, int64_t head,
                    int64_t column, int done, int block, int kind) {
    int64_t heads = s->logits.heads, stride = heads * s->width;
    const csr *a = &s->by_source;
    const void *grad = rows_at(s->grad, head * s->width + column, kind);
    int64_t at = row * s->value_heads * s->width + (s->value_heads > 1 ? head * s->width : 0) + column;
    line value[LINES], sum[LINES] = {0}, from[LINES];
    load_lines(value, rows_at(s->value, at, kind), block, kind);
    for (int k = 0; k < block && done > 0; k++)
        if (column_of(k, block, kind) < done) value[k / LINE][k % LINE] = 0;
    for (int64_t i = 0; i < edges; i += AT_ONCE) {
        line product[AT_ONCE];
        for (int64_t e = 0; e < AT_ONCE; e++) product[e] = (line){0};
        for (int64_t e = 0; e < AT_ONCE && i + e < edges; e++) {
            int64_t at = begin + i + e;
            if (at + AHEAD < last_edge) prefetch(rows_at(grad, source_of(a, at + AHEAD) * stride, kind), block, kind);
            load_lines(from, rows_at(grad, source_of(a, at) * stride, kind), block, kind);
            float weight = r->weight[(i + e) * heads + head];
            if (s->kept) weight *= s->kept[edge_of(a, at) * heads + head];
            product[e] = from[0] * value[0];
            for (int j = 1; j * LINE < block; j++) product[e] += from[j] * value[j];
            for (int j = 0; j * LINE < block; j++) sum[j] += weight * from[j];
        }
        add_sums(r->product + i * heads + head, heads, product);
    }
    add_lines(s->by_value + row * stride + head * s->width + column, sum, done, block, kind);
}

/* From products to the gradients of the run's logits, and their sum. */
INLINE void finish_run(const gradient *s, int64_t row, int64_t begin, int64_t edges, run *r) {
    int64_t heads = s->logits.heads, count = edges * heads;
    const csr *a = &s->by_source;
    if (s->kept)
        for (int64_t k = 0; k < count; k++) r->product[k] *= s->kept[edge_of(a, begin + k / heads) * heads + k % heads];
    for (int64_t k = 0; k < count; k++) r->product[k] = r->weight[k] * (r->product[k] + r->below[k]) * r->steep[k];
    for (int64_t i = 0; i < edges; i++) {
        copy_heads(s->by_logit + edge_of(a, begin + i) * heads, r->product + i * heads, heads);
        float *half = s->by_source_half + row * heads;
        if (s->by_source_half) add_halves(half, half, r->product + i * heads, heads);
    }
}

INLINE void differentiate(const gradient *s, int64_t chunk, int kind) {
    const csr *a = &s->by_source;
    int64_t from = first_row(a, chunk, s->chunks), to = first_row(a, chunk + 1, s->chunks), last_edge = a->offsets[to];
    int64_t heads = s->logits.heads, longest = ROOM / heads, width = s->width;
    run r;
    for (int64_t row = from; row < to; row++) {
        for (int64_t k = 0; !s->add && k < heads * width; k++) s->by_value[row * heads * width + k] = 0;
        if (row + 1 < to) prefetch_row(s->value, row + 1, s->value_heads * width, kind);
        if (s->add && row + 1 < to) prefetch_row(s->by_value, row + 1, heads * width, FLOAT32);
        for (int64_t head = 0; !s->add && s->by_source_half && head < heads; head++) s->by_source_half[row * heads + head] = 0;
        for (int64_t i = a->offsets[row]; i < a->offsets[row + 1]; i += longest) {
            int64_t rest = a->offsets[row + 1] - i, edges = rest < longest ? rest : longest;
            fill_run(s, row, i, edges, last_edge, &r);
            for (int64_t head = 0; head < heads; head++) {
                int64_t done = 0;
#define BLOCK(column, block)                                                                                   \
    add_run(s, row, i, edges, last_edge, &r, head, column, done - (column), block, kind), \
        done = (column) + block
                FOR_BLOCKS(width, BLOCK);
#undef BLOCK
            }
            finish_run(s, row, i, edges, &r);
        }
    }
}

INLINE void add_by_target(const gradient *s, int64_t chunk) {
    const csr *a = &s->by_target;
    int64_t from = first_row(a, chunk, s->chunks), to = first_row(a, chunk + 1, s->chunks), heads = s->logits.heads;
    for (int64_t row = from; row < to; row++) {
        float *out = s->by_target_half + row * heads;
        for (int64_t head = 0; !s->add && head < heads; head++) out[head] = 0;
        for (int64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) add_halves(out, out, s->by_logit + i * heads, heads);
    }
}

#define CHUNKS(name, kind)                                                                                              \
    FOR_EVERY_PROCESSOR static void describe_##name(void *task, int64_t chunk) { describe_targets(task, chunk, kind); } \
    FOR_EVERY_PROCESSOR static void differentiate_##name(void *task, int64_t chunk) { differentiate(task, chunk, kind); }
CHUNKS(float32, FLOAT32)
CHUNKS(bfloat16, BFLOAT16)
CHUNKS(float16, FLOAT16)
#undef CHUNKS
FOR_EVERY_PROCESSOR static void halves_of_targets(void *task, int64_t chunk) { add_by_target(task, chunk); }

static const chunk_fn describes[KINDS] = {describe_float32, describe_bfloat16, describe_float16};
static const chunk_fn differentiates[KINDS] = {differentiate_float32, differentiate_bfloat16, differentiate_float16};

void gnnflow_attention_gradient(int64_t rows, const int64_t *offsets, int64_t num_sources, const int64_t *out_offsets,
                                const void *targets, const void *numbers, int64_t narrow, const float *logit,
                                const float *source_half, const float *target_half, float slope, int64_t heads,
                                const float *factor, const float *kept, const float *maximum, const float *denominator,
                                const float *mean, const void *value, const void *grad, int64_t kind,
                                int64_t value_heads, int64_t width, const float *grad_weight, const float *grad_target,
                                float *about, float *by_logit, float *by_source_half, float *by_target_half,
                                float *by_value, int64_t add, int threads) {
    gradient s = {{offsets, NULL, NULL, rows, 0}, {out_offsets, targets, numbers, num_sources, narrow},
                  {logit, source_half, target_half, slope, heads}, factor, kept, maximum, denominator, mean, value, grad,
                  grad_weight, grad_target, value_heads, width, 0, about, by_logit, by_source_half, by_target_half, by_value,
                  add};
    int64_t edges = offsets[rows] - offsets[0];
    s.chunks = chunks_for(rows * heads * width, rows, threads);
    run_chunks(describes[kind], &s, rows ? s.chunks : 0, threads);
    s.chunks = chunks_for((edges + num_sources) * heads * width * 2, num_sources, threads);
    run_chunks(differentiates[kind], &s, num_sources ? s.chunks : 0, threads);
    if (!by_target_half) return;
    s.chunks = chunks_for((edges + rows) * heads, rows, threads);
    run_chunks(halves_of_targets, &s, rows ? s.chunks : 0, threads);
}
