/* The largest message of each target and channel, and which edge it came along: all that the gradient needs to know. */
#include <math.h>
#include <stddef.h>

#include "pool.h"
#include "rows.h"

typedef struct {
    sums sums;   /* its out is the maxima [T, heads, width], -inf without in-edges */
    int32_t *at; /* the place of that edge among its target's [T, heads, width], -1 without; of equal ones the first */
} maxima;

/* One head of one target, over a block of columns that stays in registers; see sum_block. */
INLINE void max_block(const maxima *m, int64_t row, int64_t last_edge, int64_t head, int64_t column, int block,
                      int weighted, int ahead, int kind) {
    const sums *s = &m->sums;
    const csr *a = &s->adjacency;
    int64_t stride = s->value_heads * s->width, begin = s->adjacency.offsets[row], end = s->adjacency.offsets[row + 1];
    const void *value = rows_at(s->value, (s->value_heads > 1 ? head * s->width : 0) + column, kind);
    float best[64];
    int32_t at[64];
    for (int k = 0; k < block; k++) best[k] = -INFINITY, at[k] = -1;
    for (int64_t i = begin; i < end; i++) {
        if (ahead && i + AHEAD < last_edge) prefetch_row(s->value, source_of(a, i + AHEAD), stride, kind);
        const void *from = rows_at(value, source_of(a, i) * stride, kind);
        float factor = weighted ? s->coefficient[i * s->heads + head] : 1.0f;
        int32_t place = (int32_t)(i - begin);
        for (int k = 0; k < block; k++) {
            float next = weighted ? factor * load(from, k, kind) : load(from, k, kind);
            /* What is not a number wins over all numbers, and the first edge over an infinity that is none. */
            int wins = next > best[k] || (next != next && best[k] == best[k]) || at[k] < 0;
            best[k] = wins ? next : best[k];
            at[k] = wins ? place : at[k];
        }
    }
    int64_t out = (row * s->heads + head) * s->width + column;
    memcpy(s->out + out, best, sizeof(float) * (size_t)block);
    memcpy(m->at + out, at, sizeof(int32_t) * (size_t)block);
}

INLINE void max_rows(const maxima *m, int64_t chunk, int weighted, int kind) {
    const sums *s = &m->sums;
    int64_t from = first_row(&s->adjacency, chunk, s->chunks), to = first_row(&s->adjacency, chunk + 1, s->chunks);
    int64_t last_edge = s->adjacency.offsets[to];
    for (int64_t row = from; row < to; row++)
        for (int64_t head = 0; head < s->heads; head++) {
#define BLOCK(column, block) max_block(m, row, last_edge, head, column, block, weighted, !head && !(column), kind)
            FOR_BLOCKS(s->width, BLOCK);
#undef BLOCK
        }
}

#define CHUNKS(name, kind)                                                                                        \
    FOR_EVERY_PROCESSOR static void plain_##name(void *task, int64_t chunk) { max_rows(task, chunk, 0, kind); }   \
    FOR_EVERY_PROCESSOR static void weighted_##name(void *task, int64_t chunk) { max_rows(task, chunk, 1, kind); }
CHUNKS(float32, FLOAT32)
CHUNKS(bfloat16, BFLOAT16)
CHUNKS(float16, FLOAT16)
#undef CHUNKS

static const chunk_fn maxima_chunks[2][KINDS] = {
    {plain_float32, plain_bfloat16, plain_float16},
    {weighted_float32, weighted_bfloat16, weighted_float16},
};

void gnnflow_maxima(int64_t rows, const int64_t *offsets, const void *sources, int64_t narrow,
                    const float *coefficient, int64_t heads,
                    const void *value, int64_t kind, int64_t value_heads, int64_t width, float *out, int32_t *at,
                    int threads) {
    maxima m = {{{offsets, sources, NULL, rows, narrow}, coefficient, value, out, heads, value_heads, width, 0}, at};
    if (!rows || !width) return;
    m.sums.chunks = chunks_for((offsets[rows] - offsets[0] + rows) * heads * width, rows, threads);
    run_chunks(maxima_chunks[coefficient != NULL][kind], &m, m.sums.chunks, threads);
}

typedef struct {
    csr reversed;            /* the out-edges of each source: to targets, with the number of each edge in `edges` */
    const int64_t *offsets;  /* where each target's in-edges begin */
    const float *coefficient; /* [E, heads], NULL for ones */
    const int32_t *at;       /* [T, heads, width] */
    const float *grad;       /* of the maxima [T, heads, width] */
    float *out;              /* of the values [S, value_heads, width] */
    int64_t heads, value_heads, width, chunks;
} maxima_gradient;

/* A source's row collects the gradient of each maximum that came from it, over its out-edges in their order. */
FOR_EVERY_PROCESSOR static void gradient_chunk(void *task, int64_t chunk) {
    const maxima_gradient *m = task;
    const csr *a = &m->reversed;
    int64_t from = first_row(a, chunk, m->chunks), to = first_row(a, chunk + 1, m->chunks);
    for (int64_t row = from; row < to; row++) {
        memset(m->out + row * m->value_heads * m->width, 0, sizeof(float) * (size_t)(m->value_heads * m->width));
        for (int64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) {
            int64_t target = source_of(a, i), edge = edge_of(a, i);
            int32_t place = (int32_t)(edge - m->offsets[target]);
            for (int64_t head = 0; head < m->heads; head++) {
                float factor = m->coefficient ? m->coefficient[edge * m->heads + head] : 1.0f;
                float *out = m->out + (row * m->value_heads + (m->value_heads > 1 ? head : 0)) * m->width;
                int64_t at = (target * m->heads + head) * m->width;
                for (int64_t k = 0; k < m->width; k++)
                    out[k] += m->at[at + k] == place ? factor * m->grad[at + k] : 0.0f;
            }
        }
    }
}

void gnnflow_maxima_gradient(int64_t rows, const int64_t *offsets, const void *targets, const void *edges,
                             int64_t narrow, const int64_t *target_offsets, const float *coefficient, int64_t heads,
                             const int32_t *at,
                             const float *grad, int64_t value_heads, int64_t width, float *out, int threads) {
    maxima_gradient m = {{offsets, targets, edges, rows, narrow}, target_offsets, coefficient, at, grad,
                         out, heads, value_heads, width, 0};
    if (!rows || !width) return;
    m.chunks = chunks_for((offsets[rows] - offsets[0] + rows) * heads * width, rows, threads);
    run_chunks(gradient_chunk, &m, m.chunks, threads);
}
