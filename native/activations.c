/* ELU of a row's numbers and its gradient, each in one pass (Clevert, Unterthiner and Hochreiter 2016). */
#include <stddef.h>

#include "exponential.h"
#include "pool.h"

enum { RUN = 16384, LANES = 16 }; /* numbers that one thread takes at a time, and that are computed at once */

typedef struct {
    const float *from, *grad; /* what ELU is taken of, or its results and the gradient of these */
    float *out;
    int64_t count;
} elu;

INLINE float elu_of(float x) {
    float below = exponential_less_one(x < 0 ? x : 0.0f);
    return (x <= 0) ? below : x; /* also where x is no number */
}

#define PASS(NAME, OF)                                                                                     \
    FOR_EVERY_PROCESSOR static void NAME(void *task, int64_t run) {                                        \
        const elu *c = task;                                                                               \
        int64_t k = run * RUN, to = k + RUN < c->count ? k + RUN : c->count;                               \
        for (; k + LANES <= to; k += LANES)                                                                \
            for (int lane = 0; lane < LANES; lane++) c->out[k + lane] = OF(c, k + lane);                   \
        for (; k < to; k++) c->out[k] = OF(c, k);                                                          \
    }

INLINE float result(const elu *c, int64_t k) { return elu_of(c->from[k]); }
INLINE float gradient(const elu *c, int64_t k) { return c->grad[k] * (c->from[k] > 0 ? 1.0f : c->from[k] + 1.0f); }
PASS(elu_run, result)
PASS(elu_gradient_run, gradient)
#undef PASS

void gnnflow_elu(int64_t count, const float *rows, float *out, int threads) {
    elu c = {rows, NULL, out, count};
    run_chunks(elu_run, &c, (count + RUN - 1) / RUN, threads);
}

/* From the results and their gradient. */
void gnnflow_elu_gradient(int64_t count, const float *result, const float *grad, float *out, int threads) {
    elu c = {result, grad, out, count};
    run_chunks(elu_gradient_run, &c, (count + RUN - 1) / RUN, threads);
}
