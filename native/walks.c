/* Random walks along in-edges, and the nodes they visit most. All walks of some roots are taken a step at a time: what
   they read next is fetched into the cache while the others move. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "csr.h"
#include "pool.h"

enum { WALKERS_AT_ONCE = 512, ROOTS_OF_CHUNK = 8192, FEW = 64 }; /* roots: what one thread takes at a time */

typedef struct {
    int32_t node;
    int32_t place; /* of the node among those met */
} slot;

/* The finaliser of splitmix64, as gnnflow/graph/hashing.py has it. */
static inline uint64_t mixed(uint64_t z) {
    z += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

/* The last of the edges first .. first + degree - 1 whose part begins at or before a point. */
static inline int64_t last_begun(const uint32_t *begins, int64_t first, uint64_t degree, uint32_t point) {
    while (degree > 1) {
        uint64_t half = degree / 2;
        if (begins[first + (int64_t)half] <= point) first += (int64_t)half;
        degree -= half;
    }
    return first;
}

/* What all walks know, and what they fill in. */
typedef struct {
    int64_t count, first;
    const uint64_t *keys;
    uint64_t word;
    const int64_t *offsets;
    const int32_t *sources;
    const uint32_t *begins;
    const uint8_t *types;
    int64_t walks, length, top_k, together; /* roots whose walks are taken together */
    int32_t *leaves, *visits, *kept;
    atomic_int failed;
} walked;

/* Memory of one chunk of roots, in one piece. */
typedef struct {
    int64_t *edge, *places;
    uint64_t *words; /* what draws are hashed from, of the roots whose walks are taken together */
    int32_t *path, *now, *nodes, *times;
    slot *table;
    int64_t slots;
    int shift; /* of a 32-bit hash, to a number of a slot */
} scratch;

static int allocate(scratch *s, const walked *w) {
    int64_t steps = w->walks * w->length, walkers = w->together * w->walks;
    for (s->slots = 16, s->shift = 28; s->slots < 2 * steps; s->slots *= 2) s->shift--;
    size_t wide = (size_t)(walkers + steps + 2 + w->together) * sizeof *s->edge, slots = (size_t)s->slots * sizeof *s->table;
    s->edge = malloc(wide + slots + (size_t)(w->together * steps + walkers + 2 * steps) * sizeof *s->path);
    if (!s->edge) return 0;
    s->places = s->edge + walkers;
    s->words = (uint64_t *)(s->places + steps + 2);
    s->table = (slot *)(s->words + w->together);
    s->path = (int32_t *)(s->table + s->slots);
    s->now = s->path + w->together * steps;
    s->nodes = s->now + walkers;
    s->times = s->nodes + steps;
    return 1;
}

/* Take one step with every walk of some roots: the edge that each takes, -1 where it has ended, then where that leads. */
static void take_step(const walked *w, const scratch *s, int64_t roots, int64_t step) {
    for (int64_t root = 0; root < roots; root++)
        for (int64_t walk = 0; walk < w->walks; walk++) {
            int64_t i = root * w->walks + walk, node = s->now[i];
            s->edge[i] = -1;
            if (node < 0) continue;
            int64_t from = w->offsets[node];
            uint64_t degree = (uint64_t)(w->offsets[node + 1] - from);
            if (!degree) continue;
            uint64_t draw = mixed(s->words[root] ^ (uint64_t)(walk * w->length + step));
            s->edge[i] = w->begins ? last_begun(w->begins, from, degree, (uint32_t)(draw >> 32))
                                   : from + (int64_t)(((draw >> 32) * degree) >> 32);
            __builtin_prefetch(w->sources + s->edge[i]);
        }
    for (int64_t i = 0; i < roots * w->walks; i++) {
        int32_t node = s->edge[i] < 0 ? -1 : w->sources[s->edge[i]];
        s->path[i * w->length + step] = s->now[i] = node;
        if (node < 0) continue;
        __builtin_prefetch(w->offsets + node);
        if (w->types) __builtin_prefetch(w->types + node);
    }
}

/* Whether a visit counts: of another node of the root's own type. */
static inline int counts(const walked *w, int32_t node, int32_t self) {
    return node >= 0 && node != self && (!w->types || w->types[node] == w->types[self]);
}

/* Put the top_k most visited of `met` nodes, those met first where visits are equal, at the front of the outputs. Returns
   how many there are. */
static int32_t most_visited(const scratch *s, int64_t met, int32_t most, int64_t top_k, int32_t *leaves, int32_t *visits) {
    memset(s->places, 0, (size_t)(most + 2) * sizeof *s->places);
    for (int64_t i = 0; i < met; i++) s->places[s->times[i]]++;
    int64_t before = 0;
    for (int64_t count = most; count > 0; count--) { /* where the nodes of each number of visits begin */
        int64_t held = s->places[count];
        s->places[count] = before;
        before += held;
    }
    for (int64_t i = 0; i < met; i++) {
        int64_t place = s->places[s->times[i]]++;
        if (place >= top_k) continue;
        leaves[place] = s->nodes[i];
        visits[place] = s->times[i];
    }
    return (int32_t)(met < top_k ? met : top_k);
}

/* Count whom the walks of one root visit, whose paths these are, in a table. */
static int32_t count_many(const walked *w, const scratch *s, int32_t self, const int32_t *path, int32_t *leaves, int32_t *visits) {
    int64_t met = 0;
    int32_t most = 0;
    memset(s->table, 0xff, (size_t)s->slots * sizeof *s->table); /* every node is -1 */
    for (int64_t i = 0; i < w->walks * w->length; i++) {
        int32_t node = path[i];
        if (!counts(w, node, self)) continue;
        int64_t at = ((uint32_t)node * 2654435769u) >> s->shift;
        while (s->table[at].node >= 0 && s->table[at].node != node) at = (at + 1) & (s->slots - 1);
        if (s->table[at].node < 0) {
            s->table[at] = (slot){node, (int32_t)met};
            s->nodes[met] = node;
            s->times[met++] = 0;
        }
        int32_t seen = ++s->times[s->table[at].place];
        if (seen > most) most = seen;
    }
    return most_visited(s, met, most, w->top_k, leaves, visits);
}

/* The same of few visits, in as many lanes: each is compared with all others at once, so nothing depends on what the
   processor would have to guess. lanes is known where this is compiled. */
INLINE int32_t count_few(const walked *w, int32_t self, const int32_t *path, int32_t *leaves, int32_t *visits, int lanes) {
    int32_t node[FEW], times[FEW] = {0}, before[FEW] = {0}, rank[FEW] = {0}, ranked[FEW + 1], seen[FEW + 1];
    int steps = (int)(w->walks * w->length), met = 0;
    for (int i = 0; i < lanes; i++) node[i] = i < steps && counts(w, path[i], self) ? path[i] : -1;
    for (int i = 0; i < steps; i++)
        for (int k = 0; k < lanes; k++) {
            times[k] += node[k] == node[i];
            before[k] += (node[k] == node[i]) & (i < k);
        }
    for (int k = 0; k < lanes; k++) { /* first visits by what puts them in order, 0 for the others */
        int first = (node[k] >= 0) & !before[k];
        before[k] = first ? times[k] * FEW + FEW - 1 - k : 0;
        met += first;
    }
    for (int i = 0; i < steps; i++)
        for (int k = 0; k < lanes; k++) rank[k] += before[i] > before[k];
    for (int k = 0; k < steps; k++) ranked[rank[k]] = node[k], seen[rank[k]] = times[k];
    int32_t kept = (int32_t)(met < w->top_k ? met : w->top_k);
    memcpy(leaves, ranked, (size_t)kept * sizeof *leaves);
    memcpy(visits, seen, (size_t)kept * sizeof *visits);
    return kept;
}

/* Count whom the walks of some roots visit. */
FOR_EVERY_PROCESSOR static void count_visits(const walked *w, const scratch *s, int64_t begin, int64_t roots) {
    int64_t steps = w->walks * w->length;
    for (int64_t root = 0; root < roots; root++) {
        const int32_t *path = s->path + root * steps;
        int32_t self = (int32_t)(w->first + begin + root);
        int32_t *leaves = w->leaves + (begin + root) * w->top_k, *visits = w->visits + (begin + root) * w->top_k;
        w->kept[begin + root] = steps <= 16   ? count_few(w, self, path, leaves, visits, 16)
                                : steps <= 32 ? count_few(w, self, path, leaves, visits, 32)
                                : steps <= FEW ? count_few(w, self, path, leaves, visits, FEW)
                                              : count_many(w, s, self, path, leaves, visits);
    }
}

/* Walk from a run of the roots. */
static void walk_chunk(void *task, int64_t chunk) {
    walked *w = task;
    scratch s;
    if (!allocate(&s, w)) {
        w->failed = 1;
        return;
    }
    int64_t to = (chunk + 1) * ROOTS_OF_CHUNK < w->count ? (chunk + 1) * ROOTS_OF_CHUNK : w->count;
    for (int64_t begin = chunk * ROOTS_OF_CHUNK; begin < to; begin += w->together) {
        int64_t roots = to - begin < w->together ? to - begin : w->together;
        for (int64_t root = 0; root < roots; root++) {
            s.words[root] = mixed(mixed(w->keys[begin + root]) ^ w->word);
            for (int64_t walk = 0; walk < w->walks; walk++) s.now[root * w->walks + walk] = (int32_t)(w->first + begin + root);
        }
        for (int64_t step = 0; step < w->length; step++) take_step(w, &s, roots, step);
        count_visits(w, &s, begin, roots);
    }
    free(s.edge);
}

/* Walk `walks` times `length` steps from each of the nodes first .. first + count - 1. keys [count] and word: what a root's
   draws are hashed from. offsets [nodes + 1], sources: in-edges of all nodes. begins: where each edge's part of 2^32 begins
   in its row, NULL where all are alike. types [nodes]: only nodes of a root's own type are visited; NULL where there is one
   type. leaves, visits [count, top_k] and kept [count] are filled in. Returns -1 where memory ends. */
int gnnflow_walks(int64_t count, int64_t first, const uint64_t *keys, uint64_t word, const int64_t *offsets,
                  const int32_t *sources, const uint32_t *begins, const uint8_t *types, int64_t walks, int64_t length,
                  int64_t top_k, int32_t *leaves, int32_t *visits, int32_t *kept, int threads) {
    int64_t together = walks >= WALKERS_AT_ONCE ? 1 : WALKERS_AT_ONCE / walks;
    walked w = {count, first, keys, word, offsets, sources, begins, types, walks, length, top_k, together, leaves, visits, kept, 0};
    run_chunks(walk_chunk, &w, (count + ROOTS_OF_CHUNK - 1) / ROOTS_OF_CHUNK, threads);
    return w.failed ? -1 : 0;
}

typedef struct {
    int64_t count, top_k;
    const int32_t *leaves, *visits;
    const int64_t *offsets;
    int32_t *nodes;
    float *weight, *total;
} shares;

static void share_chunk(void *task, int64_t chunk) {
    const shares *s = task;
    int64_t to = (chunk + 1) * ROOTS_OF_CHUNK < s->count ? (chunk + 1) * ROOTS_OF_CHUNK : s->count;
    for (int64_t root = chunk * ROOTS_OF_CHUNK; root < to; root++) {
        const int32_t *leaves = s->leaves + root * s->top_k, *visits = s->visits + root * s->top_k;
        int64_t begin = s->offsets[root], kept = s->offsets[root + 1] - begin, all = 0;
        double total = 0.0;
        for (int64_t i = 0; i < kept; i++) all += visits[i];
        for (int64_t i = 0; i < kept; i++) {
            s->nodes[begin + i] = leaves[i];
            total += s->weight[begin + i] = (float)((double)visits[i] / (double)all);
        }
        s->total[root] = (float)total;
    }
}

/* What gnnflow_walks found, root by root without gaps: offsets [count + 1] say how many each has. nodes and weight, the
   share of the root's visits [offsets[count]], and total, what a root's weights add up to [count], are filled in. */
void gnnflow_visit_shares(int64_t count, int64_t top_k, const int32_t *leaves, const int32_t *visits,
                          const int64_t *offsets, int32_t *nodes, float *weight, float *total, int threads) {
    shares s = {count, top_k, leaves, visits, offsets, nodes, weight, total};
    run_chunks(share_chunk, &s, (count + ROOTS_OF_CHUNK - 1) / ROOTS_OF_CHUNK, threads);
}

/* Add one to the count of each of some nodes. */
void gnnflow_occurrences(int64_t count, const int32_t *nodes, int64_t *counts) {
    for (int64_t i = 0; i < count; i++) counts[nodes[i]]++;
}
