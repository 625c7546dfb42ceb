/* The edges of an adjacency in the order of their sources: a counting sort, so edges of one source stay in their order. */
#include "csr.h"

/* out_offsets [sources + 1]: where each source's out-edges begin; edges [E]: their numbers; targets [E]: where they lead.
   Returns -1, with nothing promised of the outputs, where an edge comes from no source. */
int gnnflow_transpose(int64_t rows, const int64_t *offsets, const int64_t *sources, int64_t num_sources,
                      int64_t *out_offsets, int64_t *edges, int64_t *targets) {
    int64_t begin = offsets[0], end = offsets[rows];
    for (int64_t source = 0; source <= num_sources; source++) out_offsets[source] = 0;
    for (int64_t i = begin; i < end; i++) {
        if (sources[i] < 0 || sources[i] >= num_sources) return -1;
        out_offsets[sources[i] + 1]++;
    }
    for (int64_t source = 0; source < num_sources; source++) out_offsets[source + 1] += out_offsets[source];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = offsets[row]; i < offsets[row + 1]; i++) {
            int64_t place = out_offsets[sources[i]]++; /* now the next free place of this source */
            edges[place] = i - begin;
            targets[place] = row;
        }
    for (int64_t source = num_sources; source > 0; source--) out_offsets[source] = out_offsets[source - 1];
    out_offsets[0] = 0;
    return 0;
}
