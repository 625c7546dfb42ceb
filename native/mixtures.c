/* The weighted mean of what a node gets from its relations, the weights a softmax of q . tanh(W z + b), and its gradients: some
   hundred rows of every relation at a time, so that what reads them a second time finds them in the cache. */
#include <stddef.h>

#include "exponential.h"
#include "pool.h"
#include "products.h"
#include "rows.h"

enum { PIECE_ROWS = 256, PIECE = 65536, LANES = 16 }; /* rows, and numbers of their hidden rows at most, of a piece */

typedef struct {
    const float *const *rows; /* of each relation [rows, width] */
    float *const *by_rows;    /* their gradients; NULL where none is asked for */
    const float *weight, *bias, *query; /* [hidden, width], [hidden], [hidden] */
    const float *grad;        /* of the result [rows, width] */
    float *tanhs;             /* tanh(W z + b) [relations, rows, hidden] */
    float *share;             /* [rows, relations] */
    float *slope;             /* the gradient of the scores [rows, relations] */
    float *out;               /* [rows, width] */
    float *sums;              /* per run: gradients of the weight, the bias and the query, one after the other */
    int64_t count, relations, width, hidden, run; /* rows; rows of a run, which is one thread's */
} mixture;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t piece_rows(const mixture *m) { return least(PIECE / m->hidden, PIECE_ROWS); }
static float *hidden_at(const mixture *m, int64_t relation, int64_t row) {
    return m->tanhs + (relation * m->count + row) * m->hidden;
}

INLINE float tanh_of(float x) {
    float e = exponential_less_one(x < 0 ? 2.0f * x : -2.0f * x), size = -e / (e + 2.0f);
    return x < 0 ? -size : size;
}

/* tanh of hidden rows, in place, and each row's score, every relations-th number of `score`. */
FOR_EVERY_PROCESSOR static void score_rows(const mixture *m, float *hidden, int64_t rows, float *score) {
    for (int64_t row = 0; row < rows; row++, hidden += m->hidden, score += m->relations) {
        int64_t k = 0;
        for (; k + LANES <= m->hidden; k += LANES)
            for (int lane = 0; lane < LANES; lane++) hidden[k + lane] = tanh_of(hidden[k + lane] + m->bias[k + lane]);
        for (; k < m->hidden; k++) hidden[k] = tanh_of(hidden[k] + m->bias[k]);
        *score = dot(hidden, m->query, m->hidden, FLOAT32);
    }
}

/* Scores of a row become shares, and the row their mean. */
FOR_EVERY_PROCESSOR static void mix_rows(const mixture *m, int64_t row, int64_t rows) {
    for (int64_t to = row + rows; row < to; row++) {
        float *share = m->share + row * m->relations, *out = m->out + row * m->width, top = share[0], total = 0.0f;
        for (int64_t each = 1; each < m->relations; each++) top = share[each] > top ? share[each] : top;
        for (int64_t each = 0; each < m->relations; each++) total += share[each] = exponential(share[each] - top);
        for (int64_t each = 0; each < m->relations; each++) {
            const float *from = m->rows[each] + row * m->width;
            float part = share[each] /= total;
            if (each)
                for (int64_t k = 0; k < m->width; k++) out[k] += part * from[k];
            else
                for (int64_t k = 0; k < m->width; k++) out[k] = part * from[k];
        }
    }
}

static void mix_run(void *task, int64_t run) {
    const mixture *m = task;
    int64_t to = least((run + 1) * m->run, m->count), step = piece_rows(m);
    for (int64_t row = run * m->run; row < to; row += step) {
        int64_t rows = least(to - row, step);
        for (int64_t each = 0; each < m->relations; each++) {
            float *hidden = hidden_at(m, each, row);
            multiply(m->rows[each] + row * m->width, 0, m->weight, 1, rows, m->hidden, m->width, hidden, 0);
            score_rows(m, hidden, rows, m->share + row * m->relations + each);
        }
        mix_rows(m, row, rows);
    }
}

/* The gradients of a row's scores, and what its shares alone give its relations' rows. */
FOR_EVERY_PROCESSOR static void begin_rows(const mixture *m, int64_t row, int64_t rows) {
    for (int64_t to = row + rows; row < to; row++) {
        const float *grad = m->grad + row * m->width, *share = m->share + row * m->relations;
        float *slope = m->slope + row * m->relations, mean = 0.0f;
        for (int64_t each = 0; each < m->relations; each++) {
            slope[each] = dot(grad, m->rows[each] + row * m->width, m->width, FLOAT32);
            mean += share[each] * slope[each];
        }
        for (int64_t each = 0; each < m->relations; each++) {
            float *by_rows = m->by_rows[each];
            slope[each] = share[each] * (slope[each] - mean);
            for (int64_t k = 0; by_rows && k < m->width; k++) by_rows[row * m->width + k] = share[each] * grad[k];
        }
    }
}

/* The gradient of W z + b, and its sum over the rows, added to that of the bias, and so of the query. */
FOR_EVERY_PROCESSOR static void through_tanh(const mixture *m, const float *hidden, const float *slope, int64_t rows,
                                             float *before, float *bias, float *query) {
    for (int64_t row = 0; row < rows; row++, hidden += m->hidden, before += m->hidden, slope += m->relations)
        for (int64_t k = 0; k < m->hidden; k++) {
            before[k] = *slope * m->query[k] * (1.0f - hidden[k] * hidden[k]);
            query[k] += *slope * hidden[k];
            bias[k] += before[k];
        }
}

static void gradient_run(void *task, int64_t run) {
    const mixture *m = task;
    float before[PIECE];
    int64_t to = least((run + 1) * m->run, m->count), step = piece_rows(m), width = m->width, weights = m->hidden * width;
    float *sums = m->sums + run * (weights + 2 * m->hidden), *bias = sums + weights, *query = bias + m->hidden;
    for (int64_t k = 0; k < 2 * m->hidden; k++) bias[k] = 0.0f;
    for (int64_t row = run * m->run, first = 1; row < to; row += step) {
        int64_t rows = least(to - row, step);
        begin_rows(m, row, rows);
        for (int64_t each = 0; each < m->relations; each++, first = 0) {
            through_tanh(m, hidden_at(m, each, row), m->slope + row * m->relations + each, rows, before, bias, query);
            multiply(before, 1, m->rows[each] + row * width, 0, m->hidden, width, rows, sums, !first);
            float *by_rows = m->by_rows[each];
            if (by_rows) multiply(before, 0, m->weight, 0, rows, width, m->hidden, by_rows + row * width, 1);
        }
    }
}

/* out [count, width]: the mean of `relations` rows by shares [count, relations]. tanhs [relations, count, hidden]: what the
   gradients read again. hidden is 65,536 at most, relations is 1 at least. run: how many rows one thread takes at a time. */
void gnnflow_mixture(int64_t count, const float *const *rows, int64_t relations, int64_t width, const float *weight,
                     const float *bias, const float *query, int64_t hidden, float *tanhs, float *share, float *out,
                     int64_t run, int threads) {
    mixture m = {rows, 0, weight, bias, query, 0, tanhs, share, 0, out, 0, count, relations, width, hidden, run};
    run_chunks(mix_run, &m, (count + run - 1) / run, threads);
}

/* Gradients, given that of the result: of the rows [count, width], where these are asked for, and per run those of weight, bias
   and query, one after the other: sums [runs, hidden x (width + 2)]. slope [count, relations]: room. */
void gnnflow_mixture_gradient(int64_t count, const float *const *rows, float *const *by_rows, int64_t relations,
                              int64_t width, const float *weight, const float *query, int64_t hidden, const float *tanhs,
                              const float *share, const float *grad, float *slope, float *sums, int64_t run, int threads) {
    mixture m = {rows, by_rows, weight, 0, query, grad, (float *)tanhs, (float *)share, slope, 0, sums, count, relations,
                 width, hidden, run};
    run_chunks(gradient_run, &m, (count + run - 1) / run, threads);
}
