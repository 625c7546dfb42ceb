/* relu(x W + y V + b) and its gradients, some hundred rows at a time: what one step of these rows leaves in the cache the next
   one reads there. The products of such a piece are a BLAS's, which the caller lends, one thread each. */
#include <stddef.h>

#include "csr.h"
#include "pool.h"

enum { PIECE_ROWS = 512, PIECE = 65536 }; /* rows, and numbers at most, of a piece */

/* As sgemm_ of Fortran: C = alpha op(A) op(B) + beta C, columns side by side. */
typedef void (*product_fn)(const char *of_a, const char *of_b, const int *m, const int *n, const int *k, const float *alpha,
                           const float *a, const int *lda, const float *b, const int *ldb, const float *beta, float *c,
                           const int *ldc);

static product_fn product;

void gnnflow_use_products(void *sgemm) { product = (product_fn)sgemm; }

typedef struct {
    const float *rows;   /* [rows, width] */
    const float *weight; /* [out_width, width] */
    float *gradient;     /* of the rows; NULL where none is asked for */
    int64_t width;       /* 0: there is no such map */
} map;

typedef struct {
    map maps[2];
    const float *bias; /* [out_width], NULL for none */
    const float *grad; /* of the result [rows, out_width] */
    float *out;        /* the result */
    float *sums;       /* per run: gradients of both weights, then of the bias */
    int64_t rows, out_width, relu, run; /* rows of a run: one thread's */
} affine;

/* c [m, n] (+)= a [m, k] b [k, n], of rows side by side; a and b as stored or transposed. */
static void multiply(const float *a, int a_moved, const float *b, int b_moved, int64_t m, int64_t n, int64_t k, float *c,
                     int add) {
    int rows = (int)m, columns = (int)n, inner = (int)k, lda = (int)(a_moved ? m : k), ldb = (int)(b_moved ? k : n);
    float one = 1.0f, kept = add ? 1.0f : 0.0f;
    /* Rows side by side are the columns of the transposed matrix, and c transposed is b transposed times a transposed. */
    product(b_moved ? "T" : "N", a_moved ? "T" : "N", &columns, &rows, &inner, &one, b, &ldb, a, &lda, &kept, c, &columns);
}

static int64_t piece_rows(const affine *f) {
    int64_t rows = PIECE / f->out_width;
    return rows < PIECE_ROWS ? rows : PIECE_ROWS;
}

FOR_EVERY_PROCESSOR static void finish_rows(const affine *f, float *out, int64_t rows) {
    for (int64_t row = 0; row < rows; row++, out += f->out_width) {
        if (f->bias)
            for (int64_t k = 0; k < f->out_width; k++) out[k] += f->bias[k];
        if (f->relu)
            for (int64_t k = 0; k < f->out_width; k++) out[k] = out[k] < 0.0f ? 0.0f : out[k];
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
            multiply(m->rows + row * m->width, 0, m->weight, 1, rows, f->out_width, m->width, out, each);
        }
        finish_rows(f, out, rows);
    }
}

/* The gradient before relu into `before`, where there is one, and its sum over the rows, added to that of the bias. */
FOR_EVERY_PROCESSOR static void begin_rows(const affine *f, int64_t row, int64_t rows, float *before, float *bias) {
    int64_t width = f->out_width;
    const float *grad = f->grad + row * width, *out = f->relu ? f->out + row * width : NULL;
    for (int64_t i = 0; i < rows; i++, grad += width) {
        if (out) {
            for (int64_t k = 0; k < width; k++) before[k] = out[k] <= 0.0f ? 0.0f : grad[k];
            for (int64_t k = 0; k < width; k++) bias[k] += before[k];
            out += width, before += width;
        } else
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
        const float *grad = f->relu ? before : f->grad + row * width;
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

/* out [rows, out_width]: relu, where asked for, of x [rows, width] times weight [out_width, width] transposed, and so of y,
   plus bias. y may be missing, with a width of 0. run: how many rows one thread takes at a time. */
void gnnflow_affine(int64_t rows, const float *x, int64_t x_width, const float *x_weight, const float *y, int64_t y_width,
                    const float *y_weight, const float *bias, int64_t out_width, int64_t relu, float *out, int64_t run,
                    int threads) {
    affine f = {{{x, x_weight, 0, x_width}, {y, y_weight, 0, y_width}}, bias, 0, out, 0, rows, out_width, relu, run};
    run_chunks(compute_run, &f, (rows + run - 1) / run, threads);
}

/* Gradients, given that of the result: of x and y where these are asked for, and per run of rows those of both weights
   and of the bias, one after the other: sums [runs, out_width x (x_width + y_width + 1)]. out: read where there is a relu. */
void gnnflow_affine_gradient(int64_t rows, const float *x, int64_t x_width, const float *x_weight, float *x_gradient,
                             const float *y, int64_t y_width, const float *y_weight, float *y_gradient, int64_t out_width,
                             int64_t relu, const float *out, const float *grad, float *sums, int64_t run, int threads) {
    affine f = {{{x, x_weight, x_gradient, x_width}, {y, y_weight, y_gradient, y_width}},
                0, grad, (float *)out, sums, rows, out_width, relu, run};
    run_chunks(gradient_run, &f, (rows + run - 1) / run, threads);
}
