/* Weighted sums over in-edges, and the products their gradients are made of (AGL, Zhang et al. 2020, section 3.3.3). Each
   target's sum is one thread's, in the order of its edges: the bits do not depend on the number of threads. */
#include "pool.h"
#include "rows.h"

INLINE void sum_rows(const sums *s, int64_t chunk, int weighted, int moved, int kind) {
    int64_t from = first_row(&s->adjacency, chunk, s->chunks), to = first_row(&s->adjacency, chunk + 1, s->chunks);
    int64_t last_edge = s->adjacency.offsets[to];
    const int64_t *offsets = s->adjacency.offsets;
    for (int64_t row = from; row < to; row++) {
        int64_t next = row + AHEAD, numbers = s->heads * s->width; /* sums that are added to are read too */
        if (s->add && next < to && offsets[next] != offsets[next + 1]) prefetch(s->out + next * numbers, numbers, FLOAT32);
        for (int64_t head = 0; head < s->heads && !(s->add && offsets[row] == offsets[row + 1]); head++) {
            int64_t done = 0;
#define BLOCK(column, block)                                                                                            \
    sum_block(s, row, last_edge, head, column, done > (column) ? done - (column) : 0, block, weighted, moved,           \
              !head && !(column), kind), done = (column) + block
            FOR_BLOCKS(s->width, BLOCK);
#undef BLOCK
        }
    }
}

#define CHUNKS(name, kind)                                                                                            \
    FOR_EVERY_PROCESSOR static void plain_##name(void *task, int64_t chunk) { sum_rows(task, chunk, 0, 0, kind); }    \
    FOR_EVERY_PROCESSOR static void weighted_##name(void *task, int64_t chunk) { sum_rows(task, chunk, 1, 0, kind); } \
    FOR_EVERY_PROCESSOR static void moved_##name(void *task, int64_t chunk) { sum_rows(task, chunk, 1, 1, kind); }
CHUNKS(float32, FLOAT32)
CHUNKS(bfloat16, BFLOAT16)
CHUNKS(float16, FLOAT16)
#undef CHUNKS

static const chunk_fn sum_chunks[3][KINDS] = {
    {plain_float32, plain_bfloat16, plain_float16},
    {weighted_float32, weighted_bfloat16, weighted_float16},
    {moved_float32, moved_bfloat16, moved_float16},
};

void gnnflow_sums(int64_t rows, const int64_t *offsets, const void *sources, const void *edges, int64_t narrow,
                  const float *coefficient, int64_t heads, const void *value, int64_t kind, int64_t value_heads,
                  int64_t width, const float *scale, float *out, int64_t add, int threads) {
    sums s = {{offsets, sources, edges, rows, narrow}, coefficient, value, out, heads, value_heads, width, 0, scale, add};
    if (!rows || !width) return;
    s.chunks = chunks_for((offsets[rows] - offsets[0] + rows) * heads * width, rows, threads);
    run_chunks(sum_chunks[!coefficient ? 0 : edges ? 2 : 1][kind], &s, s.chunks, threads);
}

/* The same where the edges of a target come in pieces: each piece is summed alone, then added to the pieces before it. */
typedef struct {
    sums of;
    const int64_t *pieces, *begins; /* which pieces a target has [T + 1], where the edges of a piece begin [pieces + 1] */
} joined_sums;

INLINE void join_block(const joined_sums *j, int64_t row, int64_t last_edge, int64_t head, int64_t column, int block,
                       int weighted, int moved, int ahead, int kind) {
    const sums *s = &j->of;
    const csr *a = &s->adjacency;
    int64_t stride = s->value_heads * s->width, first = j->pieces[row];
    const void *value = rows_at(s->value, (s->value_heads > 1 ? head * s->width : 0) + column, kind);
    float whole[64] = {0};
    for (int64_t piece = first; piece < j->pieces[row + 1]; piece++) {
        float sum[64] = {0};
        for (int64_t i = j->begins[piece]; i < j->begins[piece + 1]; i++) {
            if (ahead && i + AHEAD < last_edge) prefetch_row(s->value, source_of(a, i + AHEAD), stride, kind);
            const void *from = rows_at(value, source_of(a, i) * stride, kind);
            float factor = weighted ? s->coefficient[(moved ? edge_of(a, i) : i) * s->heads + head] : 1.0f;
            for (int k = 0; k < block; k++) sum[k] += weighted ? factor * load(from, k, kind) : load(from, k, kind);
        }
        if (s->scale)
            for (int k = 0; k < block; k++) sum[k] *= s->scale[row];
        for (int k = 0; k < block; k++) whole[k] = piece == first ? sum[k] : whole[k] + sum[k];
    }
    memcpy(s->out + (row * s->heads + head) * s->width + column, whole, block * sizeof *whole);
}

INLINE void join_rows(const joined_sums *j, int64_t chunk, int weighted, int moved, int kind) {
    const sums *s = &j->of;
    int64_t from = first_row(&s->adjacency, chunk, s->chunks), to = first_row(&s->adjacency, chunk + 1, s->chunks);
    int64_t last_edge = s->adjacency.offsets[to];
    for (int64_t row = from; row < to; row++)
        for (int64_t head = 0; head < s->heads; head++) {
#define BLOCK(column, block) join_block(j, row, last_edge, head, column, block, weighted, moved, !head && !(column), kind)
            FOR_BLOCKS(s->width, BLOCK);
#undef BLOCK
        }
}

#define CHUNKS(name, kind)                                                                                            \
    FOR_EVERY_PROCESSOR static void joined_plain_##name(void *task, int64_t chunk) { join_rows(task, chunk, 0, 0, kind); }    \
    FOR_EVERY_PROCESSOR static void joined_weighted_##name(void *task, int64_t chunk) { join_rows(task, chunk, 1, 0, kind); } \
    FOR_EVERY_PROCESSOR static void joined_moved_##name(void *task, int64_t chunk) { join_rows(task, chunk, 1, 1, kind); }
CHUNKS(float32, FLOAT32)
CHUNKS(bfloat16, BFLOAT16)
CHUNKS(float16, FLOAT16)
#undef CHUNKS

static const chunk_fn joined_chunks[3][KINDS] = {
    {joined_plain_float32, joined_plain_bfloat16, joined_plain_float16},
    {joined_weighted_float32, joined_weighted_bfloat16, joined_weighted_float16},
    {joined_moved_float32, joined_moved_bfloat16, joined_moved_float16},
};

void gnnflow_joined_sums(int64_t rows, const int64_t *offsets, const int64_t *pieces, const int64_t *begins,
                         const void *sources, const void *edges, int64_t narrow, const float *coefficient, int64_t heads,
                         const void *value, int64_t kind, int64_t value_heads, int64_t width, const float *scale, float *out,
                         int threads) {
    sums s = {{offsets, sources, edges, rows, narrow}, coefficient, value, out, heads, value_heads, width, 0, scale, 0};
    joined_sums j = {s, pieces, begins};
    if (!rows || !width) return;
    j.of.chunks = chunks_for((offsets[rows] - offsets[0] + rows) * heads * width, rows, threads);
    run_chunks(joined_chunks[!coefficient ? 0 : edges ? 2 : 1][kind], &j, j.of.chunks, threads);
}

typedef struct {
    csr adjacency;
    const void *left, *right; /* rows of targets [T, heads, width] and of sources [S, right_heads, width], of a kind */
    float *out;               /* products [E, heads] */
    int64_t heads, right_heads, width, chunks;
} products;

INLINE void multiply_rows(const products *p, int64_t chunk, int kind) {
    const csr *a = &p->adjacency;
    int64_t from = first_row(a, chunk, p->chunks), to = first_row(a, chunk + 1, p->chunks), last_edge = a->offsets[to];
    int64_t stride = p->right_heads * p->width;
    for (int64_t row = from; row < to; row++)
        for (int64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) {
            if (i + AHEAD < last_edge) prefetch_row(p->right, source_of(a, i + AHEAD), stride, kind);
            for (int64_t head = 0; head < p->heads; head++) {
                const void *left = rows_at(p->left, (row * p->heads + head) * p->width, kind);
                int64_t right = source_of(a, i) * stride + (p->right_heads > 1 ? head * p->width : 0);
                p->out[i * p->heads + head] = dot(left, rows_at(p->right, right, kind), p->width, kind);
            }
        }
}

FOR_EVERY_PROCESSOR static void product_float32(void *task, int64_t chunk) { multiply_rows(task, chunk, FLOAT32); }
FOR_EVERY_PROCESSOR static void product_bfloat16(void *task, int64_t chunk) { multiply_rows(task, chunk, BFLOAT16); }
FOR_EVERY_PROCESSOR static void product_float16(void *task, int64_t chunk) { multiply_rows(task, chunk, FLOAT16); }

static const chunk_fn product_chunks[KINDS] = {product_float32, product_bfloat16, product_float16};

void gnnflow_products(int64_t rows, const int64_t *offsets, const void *sources, int64_t narrow, const void *left,
                      int64_t heads, const void *right, int64_t kind, int64_t right_heads, int64_t width, float *out,
                      int threads) {
    products p = {{offsets, sources, 0, rows, narrow}, left, right, out, heads, right_heads, width, 0};
    if (!rows) return;
    p.chunks = chunks_for((offsets[rows] - offsets[0] + rows) * heads * width, rows, threads);
    run_chunks(product_chunks[kind], &p, p.chunks, threads);
}
