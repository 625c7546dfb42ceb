/* Sums and dot products of gathered rows, for the kernels to build on. */
#ifndef GNNFLOW_ROWS_H
#define GNNFLOW_ROWS_H

#include <string.h>

#include "csr.h"

enum { AHEAD = 16, LINE = 16, LINE_BYTES = 64 }; /* edges whose rows are asked for in advance; floats of a cache line */

/* How rows are stored; sums are float32 whatever it is. Functions that take a kind are inlined where it is known. */
enum { FLOAT32, BFLOAT16, FLOAT16, KINDS };

INLINE int64_t bytes_of(int64_t numbers, int kind) { return numbers * (kind == FLOAT32 ? 4 : 2); }

/* The rows from a number on. */
INLINE const void *rows_at(const void *rows, int64_t number, int kind) {
    return (const char *)rows + bytes_of(number, kind);
}

INLINE float float_of(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* float16 to float32, exactly. In integers, because gcc (12) converts _Float16 one at a time; and without a subnormal
   float32 on the way, which a processor may be slow at or told to take for zero. */
INLINE float widened(uint16_t half) {
    uint32_t size = (uint32_t)(half & 0x7fff) << 13, exponent = size & 0x0f800000;
    float subnormal = float_of(size + (113u << 23)) - 6.103515625e-5f;
    uint32_t normal = size + (112u << 23) + (exponent == 0x0f800000 ? 112u << 23 : 0); /* or no number, or infinite */
    uint32_t bits;
    memcpy(&bits, &subnormal, sizeof bits);
    return float_of((exponent ? normal : bits) | (uint32_t)(half & 0x8000) << 16);
}

INLINE float load(const void *rows, int64_t number, int kind) {
    if (kind == FLOAT32) return ((const float *)rows)[number];
    uint16_t half = ((const uint16_t *)rows)[number];
    return kind == BFLOAT16 ? float_of((uint32_t)half << 16) : widened(half);
}

/* Two neighbouring bfloat16 are one word: taken apart by a shift and a mask, where widening each takes twice the work. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
enum { IN_PAIRS = 1 };
#else
enum { IN_PAIRS = 0 };
#endif

INLINE uint32_t pair_at(const void *rows, int64_t number) {
    uint32_t pair;
    memcpy(&pair, (const char *)rows + 4 * number, sizeof pair);
    return pair;
}

INLINE float first_of_pair(const void *rows, int64_t number) { return float_of(pair_at(rows, number) << 16); }
INLINE float second_of_pair(const void *rows, int64_t number) { return float_of(pair_at(rows, number) & 0xffff0000u); }

/* Weighted sums over in-edges, as a task. */
typedef struct {
    csr adjacency;
    const float *coefficient; /* [E, heads], NULL for ones */
    const void *value;        /* [S, value_heads, width], of the kind; one head serves all */
    float *out;               /* sums [T, heads, width] */
    int64_t heads, value_heads, width, chunks;
    const float *scale;       /* what a target's sum is multiplied with [T]; NULL for one */
    int64_t add;              /* whether sums are added to what `out` holds */
} sums;

/* Ask for numbers of a row. A loop over a block of columns asks for its own alone: all of a wide row at once would be more
   than a processor keeps track of, and it would wait. */
INLINE void prefetch(const void *from, int64_t numbers, int kind) {
    for (int64_t byte = 0; byte < bytes_of(numbers, kind); byte += LINE_BYTES) __builtin_prefetch((const char *)from + byte);
}

INLINE void prefetch_row(const void *rows, int64_t row, int64_t width, int kind) {
    prefetch(rows_at(rows, row * width, kind), width, kind);
}

/* One head of one target's sum, over a block of columns that stays in registers. weighted, moved, ahead, block and kind are
   known where this is compiled: coefficients there are, in another order than the edges, rows to be asked for in advance.
   The first `done` columns are another block's as well, which has added them. */
INLINE void sum_block(const sums *s, int64_t row, int64_t last_edge, int64_t head, int64_t column, int64_t done, int block,
                      int weighted, int moved, int ahead, int kind) {
    const csr *a = &s->adjacency;
    int64_t stride = s->value_heads * s->width, begin = a->offsets[row], end = a->offsets[row + 1];
    const void *value = rows_at(s->value, (s->value_heads > 1 ? head * s->width : 0) + column, kind);
    float sum[64] = {0};
    int pairs = IN_PAIRS && kind == BFLOAT16 ? block / 2 : 0; /* sum then holds the even columns, then the odd ones */
    for (int64_t i = begin; i < end; i++) {
        if (ahead && i + AHEAD < last_edge) prefetch_row(s->value, source_of(a, i + AHEAD), stride, kind);
        const void *from = rows_at(value, source_of(a, i) * stride, kind);
        float factor = weighted ? s->coefficient[(moved ? edge_of(a, i) : i) * s->heads + head] : 1.0f;
        for (int k = 0; k < pairs; k++) {
            float even = first_of_pair(from, k), odd = second_of_pair(from, k);
            sum[k] += weighted ? factor * even : even;
            sum[pairs + k] += weighted ? factor * odd : odd;
        }
        for (int k = 2 * pairs; k < block; k++) sum[k] += weighted ? factor * load(from, k, kind) : load(from, k, kind);
    }
    float *out = s->out + (row * s->heads + head) * s->width + column;
    if (s->scale)
        for (int k = 0; k < block; k++) sum[k] *= s->scale[row];
    if (!s->add) {
        for (int k = 0; k < pairs; k++) out[2 * k] = sum[k], out[2 * k + 1] = sum[pairs + k];
        for (int k = 2 * pairs; k < block; k++) out[k] = sum[k];
    } else if (done <= 0 && !pairs) {
        for (int k = 0; k < block; k++) out[k] += sum[k];
    } else
        for (int64_t k = done; k < block; k++) out[k] += pairs ? sum[k / 2 + (k & 1) * pairs] : sum[k];
}

/* Sixteen running sums, added up pairwise: a fixed order that every processor can take sixteen at a time. */
INLINE float dot(const void *left, const void *right, int64_t width, int kind) {
    float sum[LINE] = {0};
    int64_t k = 0;
    if (IN_PAIRS && kind == BFLOAT16) /* even numbers first: another order, and as fixed */
        for (; k + 2 * LINE <= width; k += 2 * LINE) {
            const void *a = rows_at(left, k, kind), *b = rows_at(right, k, kind);
            for (int lane = 0; lane < LINE; lane++) sum[lane] += first_of_pair(a, lane) * first_of_pair(b, lane);
            for (int lane = 0; lane < LINE; lane++) sum[lane] += second_of_pair(a, lane) * second_of_pair(b, lane);
        }
    for (; k + LINE <= width; k += LINE)
        for (int lane = 0; lane < LINE; lane++) sum[lane] += load(left, k + lane, kind) * load(right, k + lane, kind);
    for (int lane = 0; k + lane < width; lane++) sum[lane] += load(left, k + lane, kind) * load(right, k + lane, kind);
    for (int half = LINE / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) sum[lane] += sum[lane + half];
    return sum[0];
}

#endif
