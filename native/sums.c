/* Weighted sums over in-edges, and the products their gradients are made of (AGL, Zhang et al. 2020, section 3.3.3). Each
   target's sum is one thread's, in the order of its edges: the bits do not depend on the number of threads. */
#include "pool.h"
#include "rows.h"

INLINE void sum_rows(const sums *s, int64_t chunk, int weighted, int moved) {
    int64_t from = first_row(&s->adjacency, chunk, s->chunks), to = first_row(&s->adjacency, chunk + 1, s->chunks);
    int64_t last_edge = s->adjacency.offsets[to];
    for (int64_t row = from; row < to; row++)
        for (int64_t head = 0; head < s->heads; head++) {
#define BLOCK(column, block) sum_block(s, row, last_edge, head, column, block, weighted, moved, !head && !(column))
            FOR_BLOCKS(s->width, BLOCK);
#undef BLOCK
        }
}

FOR_EVERY_PROCESSOR static void plain_chunk(void *task, int64_t chunk) { sum_rows(task, chunk, 0, 0); }
FOR_EVERY_PROCESSOR static void weighted_chunk(void *task, int64_t chunk) { sum_rows(task, chunk, 1, 0); }
FOR_EVERY_PROCESSOR static void moved_chunk(void *task, int64_t chunk) { sum_rows(task, chunk, 1, 1); }

void gnnflow_sums(int64_t rows, const int64_t *offsets, const int64_t *sources, const int64_t *edges,
                  const float *coefficient, int64_t heads, const float *value, int64_t value_heads, int64_t width,
                  float *out, int threads) {
    sums s = {{offsets, sources, edges, rows}, coefficient, value, out, heads, value_heads, width, 0};
    if (!rows || !width) return;
    s.chunks = chunks_for((offsets[rows] - offsets[0] + rows) * heads * width, rows, threads);
    run_chunks(!coefficient ? plain_chunk : edges ? moved_chunk : weighted_chunk, &s, s.chunks, threads);
}

typedef struct {
    csr adjacency;
    const float *left, *right; /* rows of targets [T, heads, width] and of sources [S, right_heads, width] */
    float *out;                /* products [E, heads] */
    int64_t heads, right_heads, width, chunks;
} products;

FOR_EVERY_PROCESSOR static void product_chunk(void *task, int64_t chunk) {
    const products *p = task;
    const csr *a = &p->adjacency;
    int64_t from = first_row(a, chunk, p->chunks), to = first_row(a, chunk + 1, p->chunks), last_edge = a->offsets[to];
    int64_t stride = p->right_heads * p->width;
    for (int64_t row = from; row < to; row++)
        for (int64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) {
            if (i + AHEAD < last_edge) prefetch_row(p->right + a->sources[i + AHEAD] * stride, stride);
            for (int64_t head = 0; head < p->heads; head++) {
                const float *left = p->left + (row * p->heads + head) * p->width;
                const float *right = p->right + a->sources[i] * stride + (p->right_heads > 1 ? head * p->width : 0);
                p->out[i * p->heads + head] = dot(left, right, p->width);
            }
        }
}

void gnnflow_products(int64_t rows, const int64_t *offsets, const int64_t *sources, const float *left, int64_t heads,
                      const float *right, int64_t right_heads, int64_t width, float *out, int threads) {
    products p = {{offsets, sources, 0, rows}, left, right, out, heads, right_heads, width, 0};
    if (!rows) return;
    p.chunks = chunks_for((offsets[rows] - offsets[0] + rows) * heads * width, rows, threads);
    run_chunks(product_chunk, &p, p.chunks, threads);
}
