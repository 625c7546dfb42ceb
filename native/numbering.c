/* Rows for nodes in the order in which they are first met. */
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
