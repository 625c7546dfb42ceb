/* Rows for nodes in the order in which they are first met or in ascending order, and targets' in-edges by rank. */
#include <stdint.h>

#include "csr.h"

/* found [count]: nodes, as indices of row_of; row_of: the row of each node, negative for one not met yet, and filled in.
   rows [count]: the row of each node found; fresh: those met for the first time. Returns how many these are. */
int64_t gnnflow_number(int64_t count, const int32_t *found, int32_t *row_of, int64_t first_row, int64_t *rows,
                       int32_t *fresh) {
    int64_t met = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t row = row_of[found[i]];
        if (row < 0) {
            row = row_of[found[i]] = (int32_t)(first_row + met);
            fresh[met++] = found[i];
        }
        rows[i] = row;
    }
    return met;
}

/* A set of nodes as bits, with the members before each word of them: the rank of a member is read off two cache lines. */
typedef struct {
    uint64_t *bits;
    int64_t *before;
} node_set;

static inline void set_ranks(node_set set, int64_t words) {
    int64_t met = 0;
    for (int64_t word = 0; word < words; word++) {
        set.before[word] = met;
        met += __builtin_popcountll(set.bits[word]);
    }
}

static inline int64_t rank_in(node_set set, int64_t node) {
    uint64_t smaller = set.bits[node >> 6] & (((uint64_t)1 << (node & 63)) - 1);
    return set.before[node >> 6] + __builtin_popcountll(smaller);
}

/* sources [count] and targets [num_targets], ascending, are nodes; bits [2, words] is zero and holds a bit per node.
   others: the sources that are no targets, ascending, each once; rows [count]: the row of each source, of which the
   targets' come first, then those of others. Returns how many others there are; with others NULL it only counts them. */
FOR_EVERY_PROCESSOR int64_t gnnflow_number_sources(int64_t count, const int64_t *sources, int64_t num_targets, const int64_t *targets,
                               int64_t words, uint64_t *bits, int64_t *before, int64_t *others, int64_t *rows) {
    node_set of_targets = {bits, before}, of_others = {bits + words, before + words};
    int64_t met = 0;
    if (!others) {
        for (int64_t i = 0; i < num_targets; i++) of_targets.bits[targets[i] >> 6] |= (uint64_t)1 << (targets[i] & 63);
        for (int64_t i = 0; i < count; i++) of_others.bits[sources[i] >> 6] |= (uint64_t)1 << (sources[i] & 63);
        for (int64_t word = 0; word < words; word++) {
            of_others.bits[word] &= ~of_targets.bits[word];
            met += __builtin_popcountll(of_others.bits[word]);
        }
        return met;
    }
    set_ranks(of_targets, words), set_ranks(of_others, words);
    for (int64_t word = 0; word < words; word++)
        for (uint64_t left = of_others.bits[word]; left; left &= left - 1)
            others[met++] = word * 64 + __builtin_ctzll(left);
    for (int64_t i = 0; i < count; i++) {
        int64_t node = sources[i], is_target = of_targets.bits[node >> 6] >> (node & 63) & 1;
        rows[i] = is_target ? rank_in(of_targets, node) : num_targets + rank_in(of_others, node);
    }
    return met;
}

/* The in-edges of each target in pieces of one rank each, ranks ascending, edges of a piece in their order. Rank 0 is always
   a piece, perhaps empty.

   offsets [targets + 1]; sources: rows, of which each has a rank; count [ranks]: zeros, as they are left; met [ranks].
   order: positions of the edges, piece by piece; bounds [targets + 1]: the pieces of each target; begins: where the edges of
   each piece begin, and those of the last end. Returns the number of pieces, which is at most that of targets and edges. */
int64_t gnnflow_pieces(int64_t targets, const int64_t *offsets, const int64_t *sources, const uint16_t *rank, int64_t *count,
                       int64_t *met, int64_t *order, int64_t *bounds, int64_t *begins) {
    int64_t pieces = 0;
    for (int64_t target = 0; target < targets; target++) {
        int64_t begin = offsets[target], end = offsets[target + 1], found = 1, at = begin;
        bounds[target] = pieces, met[0] = 0;
        for (int64_t i = begin; i < end; i++) {
            int64_t own = rank[sources[i]], place = found;
            if (count[own]++ || !own) continue;
            for (found++; met[place - 1] > own; place--) met[place] = met[place - 1];
            met[place] = own;
        }
        for (int64_t k = 0; k < found; k++) {
            int64_t edges = count[met[k]];
            begins[pieces++] = count[met[k]] = at;
            at += edges;
        }
        for (int64_t i = begin; i < end; i++) order[count[rank[sources[i]]]++] = i;
        for (int64_t k = 0; k < found; k++) count[met[k]] = 0;
    }
    bounds[targets] = pieces, begins[pieces] = offsets[targets];
    return pieces;
}

/* How many targets' in-edges have a source of each rank, and how many edges. targets_of and edges_of [ranks]: zeros, filled
   in; last [ranks]: -1, the target met last. */
void gnnflow_count_ranks(int64_t targets, const int64_t *offsets, const int64_t *sources, const uint16_t *rank, int64_t *last,
                         int64_t *targets_of, int64_t *edges_of) {
    for (int64_t target = 0; target < targets; target++)
        for (int64_t i = offsets[target]; i < offsets[target + 1]; i++) {
            uint16_t own = rank[sources[i]];
            edges_of[own]++;
            targets_of[own] += last[own] != target;
            last[own] = target;
        }
}
