/* Dropout of a row's numbers and its gradient, each in one pass, from sixteen random bits per number. */
#include <stddef.h>

#include "csr.h"
#include "pool.h"

enum { RUN = 16384 }; /* numbers that one thread takes at a time */

typedef struct {
    const float *from;
    const int16_t *level; /* random; NULL where `kept` says what is kept */
    uint8_t *kept;        /* NULL where nobody asks later */
    float *out;
    int64_t count;
    int16_t least; /* level of a number that is kept */
    float scale;   /* of numbers that are kept; others are multiplied by zero, which is no number where they are none */
} dropping;

/* A run of numbers as arrays that share no memory, which the compiler is told, so that many are computed at once. */
INLINE void drop(int64_t count, const float *restrict from, const int16_t *restrict level, uint8_t *restrict kept,
                 float *restrict out, int16_t least, float scale) {
    if (kept && level)
        for (int64_t i = 0; i < count; i++) kept[i] = level[i] >= least;
    if (level)
        for (int64_t i = 0; i < count; i++) out[i] = from[i] * (level[i] >= least ? scale : 0.0f);
    else
        for (int64_t i = 0; i < count; i++) out[i] = from[i] * (kept[i] ? scale : 0.0f);
}

FOR_EVERY_PROCESSOR static void drop_run(void *task, int64_t run) {
    const dropping *d = task;
    int64_t i = run * RUN, count = i + RUN < d->count ? RUN : d->count - i;
    drop(count, d->from + i, d->level ? d->level + i : NULL, d->kept ? d->kept + i : NULL, d->out + i, d->least, d->scale);
}

/* level [count]: random; kept [count]: filled, unless it is NULL. */
void gnnflow_dropout(int64_t count, const float *rows, const int16_t *level, int64_t least, float scale, uint8_t *kept,
                     float *out, int threads) {
    dropping d = {rows, level, kept, out, count, (int16_t)least, scale};
    run_chunks(drop_run, &d, (count + RUN - 1) / RUN, threads);
}

/* The gradient, which is dropped as the rows were. */
void gnnflow_dropout_gradient(int64_t count, const float *grad, uint8_t *kept, float scale, float *out, int threads) {
    dropping d = {grad, NULL, kept, out, count, 0, scale};
    run_chunks(drop_run, &d, (count + RUN - 1) / RUN, threads);
}
