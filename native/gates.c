/* Sums over in-edges of gate x row, where the gate of an edge and column is sigmoid(own half + other half): one pass, in
   which nothing is kept per edge (the propagation that NGra fuses, Ma et al. 2018). */
#include <math.h>
#include <stddef.h>

#include "exponential.h"
#include "pool.h"
#include "rows.h"

typedef struct {
    csr adjacency;
    const float *weight;     /* what each edge counts for [E], NULL for one */
    const float *own, *other; /* halves of the gates, of targets [T, width] and of sources [S, width] */
    const float *rows;       /* [S, width] */
    float *out;              /* the sum of weight x gate x row [T, width] */
    float *slope;            /* the sum of weight x gate x (1 - gate) x row [T, width]; NULL where nobody asks */
    const float *factor;     /* what slopes are multiplied with [T, width]; NULL for one */
    int64_t add;             /* whether both are added to what is there */
    int64_t width, chunks;
} gates;

/* Of -|x|, so that nothing overflows; without branches, so that sixteen are computed at once. */
INLINE float sigmoid(float x) {
    float e = exponential(x < 0 ? x : -x);
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}

/* A line of columns of one target. Of the last columns, which may be fewer, the rest of the line is computed of zeros. */
INLINE void gate_line(const gates *g, int64_t row, int64_t column, int whole, int sloped) {
    const csr *a = &g->adjacency;
    int64_t count = whole ? LINE : g->width - column;
    float own[LINE] = {0}, half[LINE] = {0}, from[LINE] = {0}, sum[LINE] = {0}, slope[LINE] = {0};
    memcpy(own, g->own + row * g->width + column, count * sizeof *own);
    for (int64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) {
        int64_t at = source_of(a, i) * g->width + column;
        float weight = g->weight ? g->weight[a->edges ? edge_of(a, i) : i] : 1.0f;
        memcpy(half, g->other + at, count * sizeof *half);
        memcpy(from, g->rows + at, count * sizeof *from);
        for (int k = 0; k < LINE; k++) {
            float gate = sigmoid(own[k] + half[k]), part = weight * from[k] * gate;
            sum[k] += part;
            if (sloped) slope[k] += part * (1.0f - gate);
        }
    }
    int64_t at = row * g->width + column;
    if (sloped && g->factor)
        for (int64_t k = 0; k < count; k++) slope[k] *= g->factor[at + k];
    if (g->add) {
        for (int64_t k = 0; k < count; k++) sum[k] += g->out[at + k];
        if (sloped)
            for (int64_t k = 0; k < count; k++) slope[k] += g->slope[at + k];
    }
    memcpy(g->out + at, sum, count * sizeof *sum);
    if (sloped) memcpy(g->slope + at, slope, count * sizeof *slope);
}

INLINE void gate_rows(const gates *g, int64_t chunk, int sloped) {
    const csr *a = &g->adjacency;
    int64_t from = first_row(a, chunk, g->chunks), to = first_row(a, chunk + 1, g->chunks), whole = g->width / LINE * LINE;
    for (int64_t row = from; row < to; row++) {
        /* the rows of the targets behind it: those of its own edges are read once per line of columns, from a cache */
        for (int64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++)
            if (i + AHEAD < a->offsets[to]) {
                prefetch_row(g->other, source_of(a, i + AHEAD), g->width, FLOAT32);
                prefetch_row(g->rows, source_of(a, i + AHEAD), g->width, FLOAT32);
            }
        if (g->add && a->offsets[row] == a->offsets[row + 1]) continue;
        for (int64_t column = 0; column < whole; column += LINE) gate_line(g, row, column, 1, sloped);
        if (whole < g->width) gate_line(g, row, whole, 0, sloped);
    }
}

FOR_EVERY_PROCESSOR static void gates_alone(void *task, int64_t chunk) { gate_rows(task, chunk, 0); }
FOR_EVERY_PROCESSOR static void gates_sloped(void *task, int64_t chunk) { gate_rows(task, chunk, 1); }

void gnnflow_gates(int64_t rows, const int64_t *offsets, const void *sources, const void *edges, int64_t narrow,
                   const float *weight, const float *own, const float *other, const float *from, int64_t width,
                   float *out, float *slope, const float *factor, int64_t add, int threads) {
    gates g = {{offsets, sources, edges, rows, narrow}, weight, own, other, from, out, slope, factor, add, width, 0};
    if (!rows) return;
    g.chunks = chunks_for((offsets[rows] - offsets[0] + rows) * width * LINE, rows, threads);
    run_chunks(slope ? gates_sloped : gates_alone, &g, g.chunks, threads);
}
