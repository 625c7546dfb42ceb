/* Softmax over the in-edges of each target and the mean that it weighs, in one pass (GAT, Velickovic et al. 2018,
   equations 2-4; fused as in FusedMM, Rahman et al. 2021). Nothing is kept per edge: the backward pass computes the
   weights again from logits, maximum and denominator. */
#include <stddef.h>

#include "pool.h"
#include "softmax.h"

typedef struct {
    csr adjacency;
    logits logits;
    const float *factor; /* what each edge counts for [E], NULL for one */
    const float *kept;   /* dropout: zero, or what a kept weight is multiplied with [E, heads]; NULL without */
    const void *value;   /* [S, value_heads, width], of the kind; one head serves all */
    int64_t value_heads, width, chunks;
    float *maximum;      /* [T, heads], -inf without in-edges */
    float *denominator;  /* sum of factor x exp(logit - maximum) [T, heads] */
    float *share;        /* what each edge has in the mean, after dropout [E, heads]; NULL where nobody asks */
    float *out;          /* the means [T, heads, width], zero where the denominator is */
    int64_t add;         /* whether all three are there already, of other edges, and become those of both */
} attention;

/* The logits of a run of edges of one target, and whole lines behind them that no edge owns. */
INLINE int64_t fill_run(const attention *s, int64_t row, int64_t begin, int64_t edges, int64_t last_edge, int64_t lanes,
                        float *run) {
    const logits *l = &s->logits;
    int64_t heads = l->heads, count = edges * heads;
    float slope = l->slope;
    if (l->given) memcpy(run, l->given + begin * heads, count * sizeof *run);
    else
        for (int64_t i = 0; i < edges; i++) {
            int64_t at = begin + i;
            if (at + AHEAD < last_edge) __builtin_prefetch(l->source + source_of(&s->adjacency, at + AHEAD) * heads);
            add_halves(run + i * heads, l->source + source_of(&s->adjacency, at) * heads, l->target + row * heads, heads);
        }
    count = filled(run, count, lanes, -INFINITY);
    if (!l->given)
        FOR_LANES(count, lanes, run[k + lane] *= run[k + lane] > 0 ? 1 : slope);
    return count;
}

/* Add one head of a run to a block of columns. The first `done` are another block's, and left as they are. */
INLINE void add_run(const attention *s, int64_t begin, int64_t edges, int64_t last_edge, const float *weight, int64_t head,
                    int64_t column, int done, float *out, int block, int kind) {
    int64_t heads = s->logits.heads, stride = s->value_heads * s->width;
    const csr *a = &s->adjacency;
    const void *value = rows_at(s->value, (s->value_heads > 1 ? head * s->width : 0) + column, kind);
    line sum[LINES] = {0}, from[LINES];
    for (int64_t i = 0; i < edges; i++) {
        int64_t at = begin + i;
        if (at + AHEAD < last_edge) prefetch(rows_at(value, source_of(a, at + AHEAD) * stride, kind), block, kind);
        load_lines(from, rows_at(value, source_of(a, at) * stride, kind), block, kind);
        for (int j = 0; j * LINE < block; j++) sum[j] += weight[i * heads + head] * from[j];
    }
    add_lines(out + column, sum, done, block, kind);
}

/* Add a run to all heads of a target's row. */
INLINE void add_heads(const attention *s, int64_t begin, int64_t edges, int64_t last_edge, const float *weight, float *out,
                      int kind) {
    for (int64_t head = 0; head < s->logits.heads; head++) {
        int64_t done = 0;
#define BLOCK(column, block)                                                                                       \
    add_run(s, begin, edges, last_edge, weight, head, column, done - (column), out + head * s->width, block, kind), \
        done = (column) + block
        FOR_BLOCKS(s->width, BLOCK);
#undef BLOCK
    }
}

/* What a run of edges counts for: factor x exp(logit - top). */
INLINE int64_t weigh_run(const attention *s, int64_t row, int64_t begin, int64_t edges, int64_t last_edge, int64_t lanes,
                         const float *top, int is_filled, float *run) {
    int64_t heads = s->logits.heads, count = (edges * heads + lanes - 1) / lanes * lanes;
    if (!is_filled) fill_run(s, row, begin, edges, last_edge, lanes, run);
    FOR_LANES(count, lanes, run[k + lane] = exponential(run[k + lane] - top[lane]));
    if (s->factor)
        for (int64_t k = 0; k < edges * heads; k++) run[k] *= s->factor[begin + k / heads];
    return count;
}

INLINE void attend_row(const attention *s, int64_t row, int64_t last_edge, int kind) {
    int64_t heads = s->logits.heads, lanes = lanes_of(heads), longest = ROOM / heads, width = s->width;
    int64_t begin = s->adjacency.offsets[row], end = s->adjacency.offsets[row + 1];
    float run[ROOM + MOST_LANES], top[MOST_LANES], sum[MOST_LANES] = {0}, *out = s->out + row * heads * width;
    for (int64_t lane = 0; lane < lanes; lane++) top[lane] = -INFINITY;
    for (int64_t k = 0; k < heads * width; k++) out[k] = 0;
    for (int64_t i = begin; i < end; i += longest) {
        int64_t count = fill_run(s, row, i, end - i < longest ? end - i : longest, last_edge, lanes, run);
        FOR_LANES(count, lanes, top[lane] = larger(top[lane], run[k + lane]));
    }
    JOIN_LANES(top, heads, lanes, larger(a, b));
    for (int64_t lane = heads; lane < lanes; lane++) top[lane] = top[lane - heads];
    for (int64_t i = begin; i < end; i += longest) {
        int64_t edges = end - i < longest ? end - i : longest;
        /* a short row's only run is there still */
        int64_t count = weigh_run(s, row, i, edges, last_edge, lanes, top, end - begin <= longest, run);
        FOR_LANES(count, lanes, sum[lane] += run[k + lane]);
        if (s->kept)
            for (int64_t k = 0; k < edges * heads; k++) run[k] *= s->kept[i * heads + k];
        if (s->share) memcpy(s->share + i * heads, run, edges * heads * sizeof *run);
        add_heads(s, i, edges, last_edge, run, out, kind);
    }
    JOIN_LANES(sum, heads, lanes, a + b);
    for (int64_t head = 0; head < heads; head++) {
        float inverse = sum[head] == 0 ? 0 : 1 / sum[head];
        s->maximum[row * heads + head] = top[head];
        s->denominator[row * heads + head] = sum[head];
        for (int64_t k = 0; k < width; k++) out[head * width + k] *= inverse;
        if (s->share)
            for (int64_t i = begin; i < end; i++) s->share[i * heads + head] *= inverse;
    }
}

/* The same for a target that has a state of other edges. Maximum and denominator come first, so that its row is changed
   once: the mean that is there and each edge get their shares of the new denominator. */
INLINE void join_row(const attention *s, int64_t row, int64_t last_edge, int kind) {
    int64_t heads = s->logits.heads, lanes = lanes_of(heads), longest = ROOM / heads, width = s->width;
    int64_t begin = s->adjacency.offsets[row], end = s->adjacency.offsets[row + 1], is_short = end - begin <= longest;
    float run[ROOM + MOST_LANES], top[MOST_LANES], sum[MOST_LANES] = {0}, *out = s->out + row * heads * width;
    float *maximum = s->maximum + row * heads, *denominator = s->denominator + row * heads;
    for (int64_t lane = 0; lane < lanes; lane++) top[lane] = maximum[lane % heads];
    for (int64_t i = begin; i < end; i += longest) {
        int64_t count = fill_run(s, row, i, end - i < longest ? end - i : longest, last_edge, lanes, run);
        FOR_LANES(count, lanes, top[lane] = larger(top[lane], run[k + lane]));
    }
    JOIN_LANES(top, heads, lanes, larger(a, b));
    for (int64_t lane = heads; lane < lanes; lane++) top[lane] = top[lane - heads];
    for (int64_t i = begin; i < end; i += longest) {
        int64_t count = weigh_run(s, row, i, end - i < longest ? end - i : longest, last_edge, lanes, top, is_short, run);
        FOR_LANES(count, lanes, sum[lane] += run[k + lane]);
    }
    JOIN_LANES(sum, heads, lanes, a + b);
    for (int64_t head = 0; head < heads; head++) {
        float before = denominator[head] * exponential(maximum[head] - top[head]);
        maximum[head] = top[head], denominator[head] = before + sum[head];
        sum[head] = denominator[head] == 0 ? 0 : 1 / denominator[head];
        for (int64_t k = 0; k < width; k++) out[head * width + k] *= before * sum[head];
    }
    for (int64_t lane = heads; lane < lanes; lane++) sum[lane] = sum[lane - heads];
    for (int64_t i = begin; i < end; i += longest) {
        int64_t edges = end - i < longest ? end - i : longest, count = (edges * heads + lanes - 1) / lanes * lanes;
        if (!is_short) weigh_run(s, row, i, edges, last_edge, lanes, top, 0, run);
        FOR_LANES(count, lanes, run[k + lane] *= sum[lane]);
        if (s->kept)
            for (int64_t k = 0; k < edges * heads; k++) run[k] *= s->kept[i * heads + k];
        add_heads(s, i, edges, last_edge, run, out, kind);
    }
}

INLINE void attend(const attention *s, int64_t chunk, int kind) {
    const csr *a = &s->adjacency;
    int64_t from = first_row(a, chunk, s->chunks), to = first_row(a, chunk + 1, s->chunks);
    for (int64_t row = from; row < to; row++)
        if (!s->add) attend_row(s, row, a->offsets[to], kind);
        else if (a->offsets[row] < a->offsets[row + 1]) {
            /* the row that is there is read first of all: of the next target it is asked for now */
            if (row + 1 < to) prefetch_row(s->out, row + 1, s->logits.heads * s->width, FLOAT32);
            join_row(s, row, a->offsets[to], kind);
        }
}

FOR_EVERY_PROCESSOR static void attention_float32(void *task, int64_t chunk) { attend(task, chunk, FLOAT32); }
FOR_EVERY_PROCESSOR static void attention_bfloat16(void *task, int64_t chunk) { attend(task, chunk, BFLOAT16); }
FOR_EVERY_PROCESSOR static void attention_float16(void *task, int64_t chunk) { attend(task, chunk, FLOAT16); }

/* The mean over one piece of a target's edges, whose maximum and sum of exponentials are known. */
INLINE void attend_piece(const attention *s, int64_t row, int64_t begin, int64_t end, int64_t last_edge, int64_t piece,
                         float *out, int kind) {
    int64_t heads = s->logits.heads, lanes = lanes_of(heads), longest = ROOM / heads, width = s->width;
    const float *maximum = s->maximum + piece * heads, *denominator = s->denominator + piece * heads;
    float run[ROOM + MOST_LANES], top[MOST_LANES];
    for (int64_t lane = 0; lane < lanes; lane++) top[lane] = maximum[lane % heads];
    for (int64_t k = 0; k < heads * width; k++) out[k] = 0;
    for (int64_t i = begin; i < end; i += longest) {
        int64_t edges = end - i < longest ? end - i : longest;
        weigh_run(s, row, i, edges, last_edge, lanes, top, 0, run);
        add_heads(s, i, edges, last_edge, run, out, kind);
    }
    for (int64_t head = 0; head < heads; head++) {
        float inverse = denominator[head] == 0 ? 0 : 1 / denominator[head];
        for (int64_t k = 0; k < width; k++) out[head * width + k] *= inverse;
    }
}

/* The means of targets whose edges come in pieces: a piece's mean is joined to those before it by two shares. */
typedef struct {
    attention of;                   /* maximum and denominator are of pieces */
    const int64_t *pieces, *begins; /* which pieces a target has [T + 1], where the edges of a piece begin [pieces + 1] */
    const float *before, *share;    /* the shares of what was joined before a piece, and of the piece [pieces, heads] */
    float *room;                    /* a row for each chunk [chunks, heads, width] */
} joined_attention;

INLINE void attend_joined(const joined_attention *j, int64_t chunk, int kind) {
    const attention *s = &j->of;
    const csr *a = &s->adjacency;
    int64_t heads = s->logits.heads, width = s->width;
    int64_t from = first_row(a, chunk, s->chunks), to = first_row(a, chunk + 1, s->chunks);
    float *part = j->room + chunk * heads * width;
    for (int64_t row = from; row < to; row++) {
        float *out = s->out + row * heads * width;
        for (int64_t piece = j->pieces[row]; piece < j->pieces[row + 1]; piece++) {
            int is_first = piece == j->pieces[row];
            attend_piece(s, row, j->begins[piece], j->begins[piece + 1], a->offsets[to], piece, is_first ? out : part, kind);
            for (int64_t head = 0; head < heads && !is_first; head++) {
                float left = j->before[piece * heads + head], right = j->share[piece * heads + head];
                for (int64_t k = head * width; k < (head + 1) * width; k++) out[k] = out[k] * left + part[k] * right;
            }
        }
    }
}

FOR_EVERY_PROCESSOR static void joined_float32(void *task, int64_t chunk) { attend_joined(task, chunk, FLOAT32); }
FOR_EVERY_PROCESSOR static void joined_bfloat16(void *task, int64_t chunk) { attend_joined(task, chunk, BFLOAT16); }
FOR_EVERY_PROCESSOR static void joined_float16(void *task, int64_t chunk) { attend_joined(task, chunk, FLOAT16); }

static const chunk_fn joined_chunks[KINDS] = {joined_float32, joined_bfloat16, joined_float16};

/* room [16 x threads, heads, width]. */
void gnnflow_joined_attention(int64_t rows, const int64_t *offsets, const int64_t *pieces, const int64_t *begins,
                              const void *sources, int64_t narrow, const float *source_half, const float *target_half,
                              float slope, int64_t heads, const float *factor, const void *value, int64_t kind,
                              int64_t value_heads, int64_t width, float *maximum, float *denominator, const float *before,
                              const float *share, float *room, float *out, int threads) {
    attention s = {{offsets, sources, NULL, rows, narrow}, {NULL, source_half, target_half, slope, heads}, factor, NULL, value,
                   value_heads, width, 0, maximum, denominator, NULL, out, 0};
    joined_attention j = {s, pieces, begins, before, share, room};
    if (!rows) return;
    j.of.chunks = chunks_for((offsets[rows] - offsets[0] + rows) * heads * (width + LINE), rows, threads);
    run_chunks(joined_chunks[kind], &j, j.of.chunks, threads);
}

static const chunk_fn attention_chunks[KINDS] = {attention_float32, attention_bfloat16, attention_float16};

void gnnflow_attention(int64_t rows, const int64_t *offsets, const void *sources, int64_t narrow, const float *logit,
                       const float *source_half, const float *target_half, float slope, int64_t heads,
                       const float *factor, const float *kept, const void *value, int64_t kind, int64_t value_heads,
                       int64_t width, float *maximum, float *denominator, float *share, float *out, int64_t add,
                       int threads) {
    attention s = {{offsets, sources, NULL, rows, narrow}, {logit, source_half, target_half, slope, heads}, factor, kept, value,
                   value_heads, width, 0, maximum, denominator, share, out, add};
    if (!rows) return;
    s.chunks = chunks_for((offsets[rows] - offsets[0] + rows) * heads * (width + LINE), rows, threads);
    run_chunks(attention_chunks[kind], &s, s.chunks, threads);
}
