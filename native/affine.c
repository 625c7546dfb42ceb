/* relu(x W + y V + b), at unit length where asked for, and its gradients, some hundred rows at a time: what one step of these
   rows leaves in the cache the next one reads there. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "pool.h"
#include "products.h"
#include "rows.h"

/* Rows, and numbers at most, of a piece; its rows where products leave them where they are, in the first cache. */
enum { PIECE_ROWS = 512, PIECE = 65536, PIECE_IN_PLACE = 128 };
static const float SHORTEST = 1e-12f;     /* a row that is shorter is divided by this */

typedef struct {
    const float *rows;   /* [rows, width] */
    const float *weight; /* [out_width, width] */
    float *by_column;    /* the same transposed, where products read it so */
    float *gradient;     /* of the rows; NULL where none is asked for */
    int64_t width;       /* 0: there is no such map */
} map;

typedef struct {
    map maps[2];
    const float *bias; /* [out_width], NULL for none */
    const float *grad; /* of the result [rows, out_width] */
    float *out;        /* the result */
    float *inverse;    /* what a row is multiplied with for unit length [rows]; NULL where it keeps its own */
    float *sums;       /* per run: gradients of both weights, then of the bias */
    int64_t rows, out_width, relu, run; /* rows of a run: one thread's */
} affine;

static int64_t piece_rows(const affine *f) {
    int64_t rows = PIECE / f->out_width, most = PIECE_IN_PLACE;
    for (int each = 0; each < 2 && f->maps[each].width; each++)
        if (!reads_in_place(f->out_width, f->maps[each].width) || !reads_in_place(f->maps[each].width, f->out_width))
            most = PIECE_ROWS;
    return rows < most ? rows : most;
}

FOR_EVERY_PROCESSOR static void finish_rows(const affine *f, int64_t first, int64_t rows) {
    float *out = f->out + first * f->out_width;
    for (int64_t row = first; row < first + rows; row++, out += f->out_width) {
        if (f->bias)
            for (int64_t k = 0; k < f->out_width; k++) out[k] += f->bias[k];
        if (f->relu)
            for (int64_t k = 0; k < f->out_width; k++) out[k] = out[k] < 0.0f ? 0.0f : out[k];
        if (!f->inverse) continue;
        float length = sqrtf(dot(out, out, f->out_width, FLOAT32));
        float inverse = f->inverse[row] = 1.0f / (length < SHORTEST ? SHORTEST : length);
        for (int64_t k = 0; k < f->out_width; k++) out[k] *= inverse;
    }
}

static void compute_run(void *task, int64_t run) {
    const affine *f = task;
    int64_t to = (run + 1) * f->run < f->rows ? (run + 1) * f->run : f->rows, step = piece_rows(f);
    for (int64_t row = run * f->run; row < to; row += step) {
        int64_t rows = to - row < step ? to - row : step;
        float *out = f->out + row * f->out_width;
        for (int each = 0; each < 2 && f->maps[each].width; each++) {
            const map *m = &f->maps[each];
            const float *weight = m->by_column ? m->by_column : m->weight;
            multiply(m->rows + row * m->width, 0, weight, !m->by_column, rows, f->out_width, m->width, out, each);
        }
        finish_rows(f, row, rows);
    }
}

/* The gradient of a row before it was brought to unit length: what lies along the row changed its length alone. */
INLINE void before_unit(const float *grad, const float *out, float inverse, int64_t width, float *before) {
    float along = inverse < 1.0f / SHORTEST ? dot(grad, out, width, FLOAT32) : 0.0f;
    for (int64_t k = 0; k < width; k++) before[k] = (grad[k] - out[k] * along) * inverse;
}

/* The gradient of the maps' sum into `before`, where it is not that of the result, and its sum over the rows, added to that
   of the bias. */
FOR_EVERY_PROCESSOR static void begin_rows(const affine *f, int64_t row, int64_t rows, float *before, float *bias) {
    int64_t width = f->out_width;
    for (int64_t i = row; i < row + rows; i++, before += width) {
        const float *grad = f->grad + i * width, *out = f->relu || f->inverse ? f->out + i * width : NULL;
        if (f->inverse) before_unit(grad, out, f->inverse[i], width, before);
        if (f->inverse) grad = before;
        if (f->relu) {
            for (int64_t k = 0; k < width; k++) before[k] = out[k] <= 0.0f ? 0.0f : grad[k];
            grad = before;
        }
        for (int64_t k = 0; k < width; k++) bias[k] += grad[k];
    }
}

static void gradient_run(void *task, int64_t run) {
    const affine *f = task;
    float before[PIECE];
    int64_t to = (run + 1) * f->run < f->rows ? (run + 1) * f->run : f->rows, step = piece_rows(f), width = f->out_width;
    float *sums = f->sums + run * width * (f->maps[0].width + f->maps[1].width + 1);
    float *bias = sums + width * (f->maps[0].width + f->maps[1].width);
    for (int64_t k = 0; k < width; k++) bias[k] = 0.0f;
    for (int64_t row = run * f->run; row < to; row += step) {
        int64_t rows = to - row < step ? to - row : step;
        const float *grad = f->relu || f->inverse ? before : f->grad + row * width;
        begin_rows(f, row, rows, before, bias);
        float *weight = sums;
        for (int each = 0; each < 2 && f->maps[each].width; each++) {
            const map *m = &f->maps[each];
            multiply(grad, 1, m->rows + row * m->width, 0, width, m->width, rows, weight, row > run * f->run);
            if (m->gradient) multiply(grad, 0, m->weight, 0, rows, m->width, width, m->gradient + row * m->width, 0);
            weight += width * m->width;
        }
    }
}

static float *transposed(const float *weight, int64_t out_width, int64_t width) {
    float *made = width && reads_in_place(width, out_width) ? malloc((size_t)(out_width * width) * sizeof *made) : NULL;
    for (int64_t k = 0; made && k < out_width; k++)
        for (int64_t i = 0; i < width; i++) made[i * out_width + k] = weight[k * width + i];
    return made;
}

/* out [rows, out_width]: relu, where asked for, of x [rows, width] times weight [out_width, width] transposed, and so of y,
   plus bias. y may be missing, with a width of 0. inverse [rows], where it is not NULL: rows are brought to unit length, and what each was
   multiplied with. run: how many rows one thread takes at a time. */
void gnnflow_affine(int64_t rows, const float *x, int64_t x_width, const float *x_weight, const float *y, int64_t y_width,
                    const float *y_weight, const float *bias, int64_t out_width, int64_t relu, float *inverse, float *out,
                    int64_t run, int threads) {
    float *x_moved = transposed(x_weight, out_width, x_width), *y_moved = transposed(y_weight, out_width, y_width);
    affine f = {{{x, x_weight, x_moved, 0, x_width}, {y, y_weight, y_moved, 0, y_width}}, bias, 0, out, inverse, 0, rows, out_width, relu, run};
    run_chunks(compute_run, &f, (rows + run - 1) / run, threads);
    free(x_moved), free(y_moved);
}

/* Gradients, given that of the result: of x and y where these are asked for, and per run of rows those of both weights
   [out_width, width] and of the bias, one after the other: sums [runs, out_width x (x_width + y_width + 1)]. out: read where
   there is a relu or an inverse. */
void gnnflow_affine_gradient(int64_t rows, const float *x, int64_t x_width, const float *x_weight, float *x_gradient,
                             const float *y, int64_t y_width, const float *y_weight, float *y_gradient, int64_t out_width,
                             int64_t relu, const float *inverse, const float *out, const float *grad, float *sums,
                             int64_t run, int threads) {
    affine f = {{{x, x_weight, 0, x_gradient, x_width}, {y, y_weight, 0, y_gradient, y_width}},
                0, grad, (float *)out, (float *)inverse, sums, rows, out_width, relu, run};
    run_chunks(gradient_run, &f, (rows + run - 1) / run, threads);
}
