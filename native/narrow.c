/* Gathers rows of features that are stored in fewer bytes than float32, and widens them on the way. */
#include "csr.h"
#include "pool.h"
#include "rows.h"

enum { RUN = 256, INT8 = KINDS, INT4 }; /* rows that one thread takes at a time; kinds as in gnnflow/graph/narrow.py */

typedef struct {
    int64_t rows, width, row_bytes, kind;
    const uint8_t *stored;    /* [N, row_bytes] */
    const int64_t *index;     /* the stored row of each row; NULL: in order */
    const float *low, *step;  /* [width], of codes */
    float *out;               /* [rows, width] */
} widening;

/* A row as arrays that share no memory. Halves may lie at any address. */
INLINE void widen_halves(int64_t width, const uint8_t *restrict from, float *restrict out, int kind) {
    for (int64_t k = 0; k < width; k++) {
        uint16_t half;
        memcpy(&half, from + 2 * k, sizeof half);
        out[k] = kind == BFLOAT16 ? float_of((uint32_t)half << 16) : widened(half);
    }
}

INLINE void widen_bytes(int64_t width, const uint8_t *restrict from, const float *restrict low, const float *restrict step,
                        float *restrict out) {
    for (int64_t k = 0; k < width; k++) out[k] = (float)from[k] * step[k] + low[k];
}

INLINE void widen_nibbles(int64_t width, const uint8_t *restrict from, const float *restrict low,
                          const float *restrict step, float *restrict out) {
    int64_t pairs = width / 2;
    for (int64_t k = 0; k < pairs; k++) {
        out[2 * k] = (float)(from[k] & 15) * step[2 * k] + low[2 * k];
        out[2 * k + 1] = (float)(from[k] >> 4) * step[2 * k + 1] + low[2 * k + 1];
    }
    if (width & 1) out[width - 1] = (float)(from[pairs] & 15) * step[width - 1] + low[width - 1];
}

FOR_EVERY_PROCESSOR static void widen_run(void *task, int64_t run) {
    const widening *w = task;
    int64_t last = (run + 1) * RUN < w->rows ? (run + 1) * RUN : w->rows;
    for (int64_t row = run * RUN; row < last; row++) {
        if (w->index && row + AHEAD < last)
            for (int64_t byte = 0; byte < w->row_bytes; byte += LINE_BYTES)
                __builtin_prefetch(w->stored + w->index[row + AHEAD] * w->row_bytes + byte);
        const uint8_t *from = w->stored + (w->index ? w->index[row] : row) * w->row_bytes;
        float *out = w->out + row * w->width;
        if (w->kind == INT8) widen_bytes(w->width, from, w->low, w->step, out);
        else if (w->kind == INT4) widen_nibbles(w->width, from, w->low, w->step, out);
        else if (w->kind == BFLOAT16) widen_halves(w->width, from, out, BFLOAT16);
        else widen_halves(w->width, from, out, FLOAT16);
    }
}

/* kind: of rows.h, or INT8 or INT4. */
void gnnflow_widen(int64_t rows, int64_t width, const uint8_t *stored, int64_t row_bytes, int64_t kind,
                   const int64_t *index, const float *low, const float *step, float *out, int threads) {
    widening w = {rows, width, row_bytes, kind, stored, index, low, step, out};
    run_chunks(widen_run, &w, (rows + RUN - 1) / RUN, threads);
}
