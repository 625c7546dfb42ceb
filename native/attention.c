/* Softmax over the in-edges of each target and the sum it weighs, in one pass (GAT, Velickovic et al. 2018, equations 2-4;
   fused as in FusedMM, Rahman et al. 2021). One number is kept per edge and head, the weight; never a row. */
#include <math.h>
#include <stddef.h>

#include "exponential.h"
#include "pool.h"
#include "rows.h"

typedef struct {
    sums sums;           /* its coefficient is `used` */
    const float *logit;  /* [E, heads] */
    const float *factor; /* what each edge counts for [E], NULL for one */
    const float *kept;   /* dropout: zero, or what a kept weight is multiplied with [E, heads]; NULL without */
    float *maximum;      /* [T, heads], -inf without in-edges */
    float *denominator;  /* [T, heads] */
    float *weight;       /* factor x exp(logit - maximum) [E, heads] */
    float *used;         /* weight x kept [E, heads]; weight itself without dropout */
} attention;

INLINE float larger(float known, float next) { return next > known || next != next ? next : known; }

/* Maximum, weights and denominator of one target where sixteen is a multiple of the heads: its logits are one run in
   which every sixteen numbers belong to the same heads. Lanes are joined in a fixed order. */
INLINE void softmax_lanes(const attention *s, int64_t begin, int64_t end, float *maximum, float *denominator) {
    int64_t heads = s->sums.heads, count = (end - begin) * heads, k = 0;
    const float *logit = s->logit + begin * heads;
    float *weight = s->weight + begin * heads;
    float top[LINE], sum[LINE] = {0};
    for (int lane = 0; lane < LINE; lane++) top[lane] = -INFINITY;
    for (; k + LINE <= count; k += LINE)
        for (int lane = 0; lane < LINE; lane++) top[lane] = larger(top[lane], logit[k + lane]);
    for (int lane = 0; k + lane < count; lane++) top[lane] = larger(top[lane], logit[k + lane]);
    for (int64_t half = LINE / 2; half >= heads; half /= 2)
        for (int lane = 0; lane < half; lane++) top[lane] = larger(top[lane], top[lane + half]);
    for (int64_t lane = heads; lane < LINE; lane++) top[lane] = top[lane - heads];
    for (k = 0; k + LINE <= count; k += LINE)
        for (int lane = 0; lane < LINE; lane++) {
            float found = exponential(logit[k + lane] - top[lane]);
            weight[k + lane] = found;
            sum[lane] += found;
        }
    for (int lane = 0; k + lane < count; lane++) {
        float found = exponential(logit[k + lane] - top[lane]);
        weight[k + lane] = found;
        sum[lane] += found;
    }
    for (int64_t half = LINE / 2; half >= heads; half /= 2)
        for (int lane = 0; lane < half; lane++) sum[lane] += sum[lane + half];
    for (int64_t head = 0; head < heads; head++) maximum[head] = top[head], denominator[head] = sum[head];
}

INLINE void softmax_plain(const attention *s, int64_t begin, int64_t end, float *maximum, float *denominator) {
    int64_t heads = s->sums.heads;
    for (int64_t head = 0; head < heads; head++) maximum[head] = -INFINITY, denominator[head] = 0;
    for (int64_t i = begin; i < end; i++)
        for (int64_t head = 0; head < heads; head++) maximum[head] = larger(maximum[head], s->logit[i * heads + head]);
    for (int64_t i = begin; i < end; i++)
        for (int64_t head = 0; head < heads; head++) {
            float found = exponential(s->logit[i * heads + head] - maximum[head]) * (s->factor ? s->factor[i] : 1.0f);
            s->weight[i * heads + head] = found;
            denominator[head] += found;
        }
}

INLINE void attend(const attention *s, int64_t chunk, int kind) {
    const csr *a = &s->sums.adjacency;
    int64_t from = first_row(a, chunk, s->sums.chunks), to = first_row(a, chunk + 1, s->sums.chunks);
    int64_t heads = s->sums.heads, last_edge = a->offsets[to];
    int in_lanes = !s->factor && heads <= LINE && LINE % heads == 0;
    for (int64_t row = from; row < to; row++) {
        int64_t begin = a->offsets[row], end = a->offsets[row + 1];
        float *maximum = s->maximum + row * heads, *denominator = s->denominator + row * heads;
        if (in_lanes) softmax_lanes(s, begin, end, maximum, denominator);
        else softmax_plain(s, begin, end, maximum, denominator);
        if (s->kept)
            for (int64_t k = begin * heads; k < end * heads; k++) s->used[k] = s->weight[k] * s->kept[k];
        for (int64_t head = 0; head < heads; head++) {
#define BLOCK(column, block) sum_block(&s->sums, row, last_edge, head, column, block, 1, 0, !head && !(column), kind)
            FOR_BLOCKS(s->sums.width, BLOCK);
#undef BLOCK
        }
    }
}

FOR_EVERY_PROCESSOR static void attention_float32(void *task, int64_t chunk) { attend(task, chunk, FLOAT32); }
FOR_EVERY_PROCESSOR static void attention_bfloat16(void *task, int64_t chunk) { attend(task, chunk, BFLOAT16); }
FOR_EVERY_PROCESSOR static void attention_float16(void *task, int64_t chunk) { attend(task, chunk, FLOAT16); }

static const chunk_fn attention_chunks[KINDS] = {attention_float32, attention_bfloat16, attention_float16};

void gnnflow_attention(int64_t rows, const int64_t *offsets, const int64_t *sources, const float *logit,
                       const float *factor, const float *kept, int64_t heads, const void *value, int64_t kind,
                       int64_t value_heads, int64_t width, float *maximum, float *denominator, float *weight, float *used,
                       float *out, int threads) {
    attention s = {{{offsets, sources, NULL, rows}, used, value, out, heads, value_heads, width, 0},
                   logit, factor, kept, maximum, denominator, weight, used};
    if (!rows) return;
    s.sums.chunks = chunks_for((offsets[rows] - offsets[0] + rows) * heads * (width + LINE), rows, threads);
    run_chunks(attention_chunks[kind], &s, s.sums.chunks, threads);
}

typedef struct {
    csr adjacency;
    const void *value;             /* as above */
    const float *weight, *kept;    /* as above */
    const void *grad;              /* of the sums [T, heads, width], of the same kind */
    const float *grad_denominator; /* [T, heads] */
    float *out;                    /* gradient of the logits [E, heads] */
    int64_t heads, value_heads, width, chunks;
} logit_gradient;

INLINE void logit_gradients(const logit_gradient *s, int64_t chunk, int kind) {
    const csr *a = &s->adjacency;
    int64_t from = first_row(a, chunk, s->chunks), to = first_row(a, chunk + 1, s->chunks), last_edge = a->offsets[to];
    int64_t stride = s->value_heads * s->width, heads = s->heads;
    for (int64_t row = from; row < to; row++)
        for (int64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) {
            if (i + AHEAD < last_edge) prefetch_row(s->value, a->sources[i + AHEAD], stride, kind);
            for (int64_t head = 0; head < heads; head++) {
                int64_t value = a->sources[i] * stride + (s->value_heads > 1 ? head * s->width : 0);
                const void *grad = rows_at(s->grad, (row * heads + head) * s->width, kind);
                float product = dot(grad, rows_at(s->value, value, kind), s->width, kind);
                if (s->kept) product *= s->kept[i * heads + head];
                s->out[i * heads + head] = s->weight[i * heads + head] * (product + s->grad_denominator[row * heads + head]);
            }
        }
}

FOR_EVERY_PROCESSOR static void gradient_float32(void *task, int64_t chunk) { logit_gradients(task, chunk, FLOAT32); }
FOR_EVERY_PROCESSOR static void gradient_bfloat16(void *task, int64_t chunk) { logit_gradients(task, chunk, BFLOAT16); }
FOR_EVERY_PROCESSOR static void gradient_float16(void *task, int64_t chunk) { logit_gradients(task, chunk, FLOAT16); }

static const chunk_fn gradient_chunks[KINDS] = {gradient_float32, gradient_bfloat16, gradient_float16};

void gnnflow_logit_gradient(int64_t rows, const int64_t *offsets, const int64_t *sources, const void *value,
                            const float *weight, const float *kept, const void *grad, const float *grad_denominator,
                            int64_t heads, int64_t kind, int64_t value_heads, int64_t width, float *out, int threads) {
    logit_gradient s = {{offsets, sources, NULL, rows}, value, weight, kept, grad, grad_denominator,
                        out, heads, value_heads, width, 0};
    if (!rows) return;
    s.chunks = chunks_for((offsets[rows] - offsets[0] + rows) * heads * width, rows, threads);
    run_chunks(gradient_chunks[kind], &s, s.chunks, threads);
}
