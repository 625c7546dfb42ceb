/* What the forward and the backward pass of attention share: logits, and softmax over lines of sixteen numbers. */
#ifndef GNNFLOW_SOFTMAX_H
#define GNNFLOW_SOFTMAX_H

#include <math.h>

#include "exponential.h"
#include "rows.h"

/* Edges are taken in runs of ROOM / heads, so what is kept per edge stays in the first cache. Callers see to it that
   heads <= MOST_HEADS. A run is filled up to whole lines, of which each number belongs to a lane. */
enum { ROOM = 4096, MOST_HEADS = 256, MOST_LANES = LINE + MOST_HEADS };

/* The logit of an edge and head: given, or LeakyReLU(source half + target half). */
typedef struct {
    const float *given;          /* [E, heads], NULL where the halves are there */
    const float *source, *target; /* halves [S, heads] and [T, heads] */
    float slope;                 /* of the LeakyReLU below zero */
    int64_t heads;
} logits;

/* The numbers of a lane belong to one head: the least multiple of the heads that is no less than a line. */
INLINE int64_t lanes_of(int64_t heads) { return (LINE + heads - 1) / heads * heads; }

/* One comparison, so that sixteen are made at once. What is no number may be passed over here; the sum of exponentials then
   is none. */
INLINE float larger(float known, float next) { return next <= known ? known : next; }

/* Both halves of the logits of one edge, with code of its own for the usual numbers of heads. */
INLINE void add_halves(float *to, const float *left, const float *right, int64_t heads) {
    if (heads == 4) for (int h = 0; h < 4; h++) to[h] = left[h] + right[h];
    else if (heads == 8) for (int h = 0; h < 8; h++) to[h] = left[h] + right[h];
    else for (int64_t h = 0; h < heads; h++) to[h] = left[h] + right[h];
}

/* A copy, which for so few numbers a call of memcpy would outlast. */
INLINE void copy_heads(float *to, const float *from, int64_t heads) {
    if (heads == 4) memcpy(to, from, 4 * sizeof(float));
    else if (heads == 8) memcpy(to, from, 8 * sizeof(float));
    else for (int64_t h = 0; h < heads; h++) to[h] = from[h];
}

/* Fill up a run of `count` numbers to whole lines, and return its new length. */
INLINE int64_t filled(float *run, int64_t count, int64_t lanes, float with) {
    int64_t whole = (count + lanes - 1) / lanes * lanes;
    for (int64_t k = count; k < whole; k++) run[k] = with;
    return whole;
}

/* A step over each lane of whole lines; the usual number of lanes is known where this is compiled. */
#define FOR_LANES(count, lanes, STEP)                                                                               \
    do {                                                                                                            \
        if ((lanes) == LINE) for (int64_t k = 0; k < (count); k += LINE) for (int lane = 0; lane < LINE; lane++) { STEP; } \
        else for (int64_t k = 0; k < (count); k += (lanes)) for (int64_t lane = 0; lane < (lanes); lane++) { STEP; } \
    } while (0)

/* Join lanes to heads, in a fixed order. A line is halved, since heads that divide it are a power of two. */
#define JOIN_LANES(of, heads, lanes, JOIN)                                                       \
    do {                                                                                         \
        for (int64_t half = LINE / 2; (lanes) == LINE && half >= (heads); half /= 2)             \
            for (int64_t lane = 0; lane < half; lane++) {                                        \
                float a = (of)[lane], b = (of)[lane + half];                                     \
                (of)[lane] = JOIN;                                                               \
            }                                                                                    \
        for (int64_t lane = (heads); (lanes) != LINE && lane < (lanes); lane++) {                \
            float a = (of)[lane % (heads)], b = (of)[lane];                                      \
            (of)[lane % (heads)] = JOIN;                                                         \
        }                                                                                        \
    } while (0)

/* Sixteen floats as one value, so that a row stays in registers: what the compiler makes of plain loops does not. */
typedef float line __attribute__((vector_size(LINE_BYTES)));
enum { LINES = 4 }; /* of the largest block of columns */

/* A block of a row, zeros behind it. Of bfloat16 the even columns of the block come first, see `pair_at`. */
INLINE void load_lines(line *to, const void *from, int block, int kind) {
    float row[LINES * LINE] = {0};
    int pairs = IN_PAIRS && kind == BFLOAT16 ? block / 2 : 0;
    int in_place = kind == FLOAT32 && block % LINE == 0;
    for (int k = 0; k < pairs; k++) row[k] = first_of_pair(from, k), row[pairs + k] = second_of_pair(from, k);
    for (int k = 2 * pairs; k < block && !in_place; k++) row[k] = load(from, k, kind);
    for (int j = 0; j * LINE < block; j++) memcpy(to + j, (in_place ? (const float *)from : row) + j * LINE, sizeof *to);
}

/* The column of number k of a block as `load_lines` orders them. */
INLINE int column_of(int k, int block, int kind) {
    int pairs = IN_PAIRS && kind == BFLOAT16 ? block / 2 : 0;
    return k < pairs ? 2 * k : k < 2 * pairs ? 2 * (k - pairs) + 1 : k;
}

/* Add lines to a row from its column `done` of the block on: what lies before is another block's. */
INLINE void add_lines(float *to, const line *lines, int done, int block, int kind) {
    float row[LINES * LINE];
    memcpy(row, lines, sizeof row);
    for (int k = 0; k < block; k++)
        if (column_of(k, block, kind) >= done) to[column_of(k, block, kind)] += row[k];
}

/* A line folded to four numbers. */
typedef float quarter __attribute__((vector_size(16)));

INLINE quarter quarter_of(const line *numbers) {
    typedef float half __attribute__((vector_size(32)));
    half a, b;
    memcpy(&a, numbers, sizeof a), memcpy(&b, (const char *)numbers + sizeof a, sizeof b);
    a += b;
    quarter c, d;
    memcpy(&c, &a, sizeof c), memcpy(&d, (const char *)&a + sizeof c, sizeof d);
    return c + d;
}

/* Add the sum of each of four lines to a number of its own: halved four times each, a fixed order. */
INLINE void add_sums(float *to, int64_t stride, const line *lines) {
    quarter a = quarter_of(lines), b = quarter_of(lines + 1), c = quarter_of(lines + 2), d = quarter_of(lines + 3);
    a = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    c = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    a = __builtin_shufflevector(a, c, 0, 1, 4, 5) + __builtin_shufflevector(a, c, 2, 3, 6, 7);
    for (int k = 0; k < 4; k++) to[k * stride] += a[k];
}

#endif
