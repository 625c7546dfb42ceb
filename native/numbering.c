/* Rows for nodes in the order in which they are first met, and the pieces of targets' in-edges. */
#include <stdint.h>

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
