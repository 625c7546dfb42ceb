/* Random walks along in-edges, and the nodes they visit most. All walks of some roots are taken a step at a time: what
   they read next is fetched into the cache while the others move. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { WALKERS_AT_ONCE = 512 };

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

/* Put the top_k most visited of `met` nodes, those met first where visits are equal, at the front of the outputs; places
   [most + 2] is scratch. Returns how many there are. */
static int32_t most_visited(const int32_t *nodes, const int32_t *visits, int64_t met, int32_t most, int64_t top_k,
                            int64_t *places, int32_t *leaves, int32_t *counts) {
    memset(places, 0, (size_t)(most + 2) * sizeof *places);
    for (int64_t i = 0; i < met; i++) places[visits[i]]++;
    int64_t before = 0;
    for (int64_t count = most; count > 0; count--) { /* where the nodes of each number of visits begin */
        int64_t held = places[count];
        places[count] = before;
        before += held;
    }
    for (int64_t i = 0; i < met; i++) {
        int64_t place = places[visits[i]]++;
        if (place >= top_k) continue;
        leaves[place] = nodes[i];
        counts[place] = visits[i];
    }
    return (int32_t)(met < top_k ? met : top_k);
}

/* Walk `walks` times `length` steps from each of the nodes first .. first + count - 1. words [count]: what a root's draws
   are hashed from. offsets [nodes + 1], sources: in-edges of all nodes. begins: where each edge's part of 2^32 begins in
   its row, NULL where all are alike. types [nodes]: only nodes of a root's own type are visited; NULL where there is one
   type. leaves, visits [count, top_k] and kept [count] are filled in. Returns -1 where
   memory ends. */
int gnnflow_walks(int64_t count, int64_t first, const uint64_t *words, const int64_t *offsets, const int32_t *sources,
                  const uint32_t *begins, const uint8_t *types, int64_t walks, int64_t length, int64_t top_k, int32_t *leaves, int32_t *visits,
                  int32_t *kept) {
    int64_t together = walks >= WALKERS_AT_ONCE ? 1 : WALKERS_AT_ONCE / walks, steps = walks * length, slots = 16;
    int shift = 28; /* of a 32-bit hash, to a number of a slot */
    for (; slots < 2 * steps; slots *= 2) shift--;
    int32_t *path = malloc((size_t)(together * steps) * sizeof *path);
    int32_t *now = malloc((size_t)(together * walks) * sizeof *now);
    int64_t *edge = malloc((size_t)(together * walks) * sizeof *edge);
    int32_t *nodes = malloc((size_t)steps * sizeof *nodes), *times = malloc((size_t)steps * sizeof *times);
    int64_t *places = malloc((size_t)(steps + 2) * sizeof *places);
    slot *table = malloc((size_t)slots * sizeof *table);
    int failed = !path || !now || !edge || !nodes || !times || !places || !table;
    for (int64_t begin = 0; !failed && begin < count; begin += together) {
        int64_t roots = count - begin < together ? count - begin : together, walkers = roots * walks;
        for (int64_t i = 0; i < walkers; i++) now[i] = (int32_t)(first + begin + i / walks);
        for (int64_t step = 0; step < length; step++) {
            for (int64_t root = 0; root < roots; root++) /* the edge that each walk takes, -1 where it has ended */
                for (int64_t walk = 0; walk < walks; walk++) {
                    int64_t i = root * walks + walk, node = now[i];
                    edge[i] = -1;
                    if (node < 0) continue;
                    uint64_t degree = (uint64_t)(offsets[node + 1] - offsets[node]);
                    if (!degree) continue;
                    uint64_t draw = mixed(words[begin + root] ^ (uint64_t)(walk * length + step));
                    edge[i] = begins ? last_begun(begins, offsets[node], degree, (uint32_t)(draw >> 32))
                                     : offsets[node] + (int64_t)(((draw >> 32) * degree) >> 32);
                    __builtin_prefetch(sources + edge[i]);
                }
            for (int64_t i = 0; i < walkers; i++) {
                int32_t node = edge[i] < 0 ? -1 : sources[edge[i]];
                path[i * length + step] = now[i] = node;
                if (node < 0) continue;
                __builtin_prefetch(offsets + node);
                if (types) __builtin_prefetch(types + node);
            }
        }
        for (int64_t root = 0; root < roots; root++) {
            int64_t own = begin + root, met = 0;
            int32_t most = 0, self = (int32_t)(first + own);
            memset(table, 0xff, (size_t)slots * sizeof *table); /* every node is -1 */
            for (int64_t i = root * steps; i < (root + 1) * steps; i++) {
                int32_t node = path[i];
                if (node < 0 || node == self || (types && types[node] != types[self])) continue;
                int64_t at = ((uint32_t)node * 2654435769u) >> shift;
                while (table[at].node >= 0 && table[at].node != node) at = (at + 1) & (slots - 1);
                if (table[at].node < 0) {
                    table[at] = (slot){node, (int32_t)met};
                    nodes[met] = node;
                    times[met++] = 0;
                }
                int32_t seen = ++times[table[at].place];
                if (seen > most) most = seen;
            }
            kept[own] = most_visited(nodes, times, met, most, top_k, places, leaves + own * top_k, visits + own * top_k);
        }
    }
    free(path), free(now), free(edge), free(nodes), free(times), free(places), free(table);
    return failed ? -1 : 0;
}
