/* Binary cross entropy of logits with its gradient, in one pass. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "exponential.h"
#include "pool.h"

enum { RUN = 4096, LANES = 16 }; /* numbers added up by one thread, lanes of them; the sums of runs are added in their order */

typedef struct {
    const float *logit, *label;
    float *gradient;  /* of the mean */
    double *sum;      /* per run */
    float share;      /* one over the count */
    int64_t count;
} cross_entropy;

/* log(1 + e) for 0 <= e <= 1, to 1e-7: Cephes' polynomial for log around 1 (Moshier). */
INLINE float logarithm_of_one_plus(float e) {
    float m = 1.0f + e;
    int above = m > 1.41421356f;
    float x = above ? (e - 1.0f) * 0.5f : e; /* m or m / 2, less one, without rounding twice */
    float z = x * x;
    float p = 7.0376836292e-2f;
    p = p * x - 1.1514610310e-1f;
    p = p * x + 1.1676998740e-1f;
    p = p * x - 1.2420140846e-1f;
    p = p * x + 1.4249322787e-1f;
    p = p * x - 1.6668057665e-1f;
    p = p * x + 2.0000714765e-1f;
    p = p * x - 2.4999993993e-1f;
    p = p * x + 3.3333331174e-1f;
    float log = x + (p * x * z - 0.5f * z);
    return above ? log + 0.69314718f : log;
}

INLINE float one_loss(const cross_entropy *c, int64_t i) {
    float x = c->logit[i], y = c->label[i], size = x < 0 ? -x : x;
    float e = exponential(-size);
    float chance = (x < 0 ? e : 1.0f) / (1.0f + e);
    c->gradient[i] = (chance - y) * c->share;
    return (x > 0 ? x : 0.0f) - x * y + logarithm_of_one_plus(e) + (x != x ? x : 0.0f);
}

FOR_EVERY_PROCESSOR static void cross_entropy_run(void *task, int64_t run) {
    const cross_entropy *c = task;
    int64_t i = run * RUN, to = i + RUN < c->count ? i + RUN : c->count;
    float sum[LANES] = {0};
    for (; i + LANES <= to; i += LANES) /* as many as one knows, so that they are computed at once */
        for (int lane = 0; lane < LANES; lane++) sum[lane] += one_loss(c, i + lane);
    for (int lane = 0; i + lane < to; lane++) sum[lane] += one_loss(c, i + lane);
    double all = 0;
    for (int lane = 0; lane < LANES; lane++) all += sum[lane];
    c->sum[run] = all;
}

/* sum [runs of 4096]: of the losses; gradient [count]: of their mean. */
void gnnflow_cross_entropy(int64_t count, const float *logit, const float *label, float *gradient, double *sum,
                           int threads) {
    cross_entropy c = {logit, label, gradient, sum, count ? 1.0f / (float)count : 0.0f, count};
    run_chunks(cross_entropy_run, &c, (count + RUN - 1) / RUN, threads);
}
