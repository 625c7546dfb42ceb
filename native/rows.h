/* Sums and dot products of gathered rows, for the kernels to build on. */
#ifndef GNNFLOW_ROWS_H
#define GNNFLOW_ROWS_H

#include <string.h>

#include "csr.h"

enum { AHEAD = 16, LINE = 16 }; /* edges whose rows are asked for in advance; floats in a line of the cache */

/* Weighted sums over in-edges, as a task. */
typedef struct {
    csr adjacency;
    const float *coefficient; /* [E, heads], NULL for ones */
    const float *value;       /* [S, value_heads, width]; one head serves all */
    float *out;               /* sums [T, heads, width] */
    int64_t heads, value_heads, width, chunks;
} sums;

INLINE void prefetch_row(const float *row, int64_t floats) {
    for (int64_t k = 0; k < floats; k += LINE) __builtin_prefetch(row + k);
}

/* One head of one target's sum, over a block of columns that stays in registers. weighted, moved, ahead and block are known
   where this is compiled: coefficients there are, in another order than the edges, rows to be asked for in advance. */
INLINE void sum_block(const sums *s, int64_t row, int64_t last_edge, int64_t head, int64_t column, int block, int weighted,
                      int moved, int ahead) {
    const int64_t *sources = s->adjacency.sources, *edges = s->adjacency.edges;
    int64_t stride = s->value_heads * s->width, begin = s->adjacency.offsets[row], end = s->adjacency.offsets[row + 1];
    const float *value = s->value + (s->value_heads > 1 ? head * s->width : 0) + column;
    float sum[64] = {0};
    for (int64_t i = begin; i < end; i++) {
        if (ahead && i + AHEAD < last_edge) prefetch_row(s->value + sources[i + AHEAD] * stride, stride);
        const float *from = value + sources[i] * stride;
        if (weighted) {
            float factor = s->coefficient[(moved ? edges[i] : i) * s->heads + head];
            for (int k = 0; k < block; k++) sum[k] += factor * from[k];
        } else {
            for (int k = 0; k < block; k++) sum[k] += from[k];
        }
    }
    memcpy(s->out + (row * s->heads + head) * s->width + column, sum, sizeof(float) * (size_t)block);
}

/* Sixteen running sums, added up pairwise: a fixed order that every processor can take sixteen at a time. */
INLINE float dot(const float *left, const float *right, int64_t width) {
    float sum[LINE] = {0};
    int64_t k = 0;
    for (; k + LINE <= width; k += LINE)
        for (int lane = 0; lane < LINE; lane++) sum[lane] += left[k + lane] * right[k + lane];
    for (int lane = 0; k + lane < width; lane++) sum[lane] += left[k + lane] * right[k + lane];
    for (int half = LINE / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) sum[lane] += sum[lane + half];
    return sum[0];
}

#endif
