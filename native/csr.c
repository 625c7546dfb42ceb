#include "csr.h"

enum { CHUNKS_PER_THREAD = 16, LEAST_WORK = 32768 };

int64_t first_row(const csr *adjacency, int64_t number, int64_t chunks) {
    int64_t rows = adjacency->rows;
    if (number >= chunks) return rows;
    int64_t begin = adjacency->offsets[0], all = adjacency->offsets[rows] - begin + rows;
    int64_t wanted = (int64_t)((__int128)all * number / chunks), low = 0, high = rows;
    while (low < high) { /* the first target before which that much lies */
        int64_t middle = low + (high - low) / 2;
        if (adjacency->offsets[middle] - begin + middle < wanted) low = middle + 1;
        else high = middle;
    }
    return low;
}

int64_t chunks_for(int64_t work, int64_t rows, int threads) {
    int64_t most = work / LEAST_WORK, chunks = (int64_t)threads * CHUNKS_PER_THREAD;
    if (chunks > most) chunks = most;
    if (chunks > rows) chunks = rows;
    return threads <= 1 || chunks < 1 ? 1 : chunks;
}
