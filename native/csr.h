/* What the kernels share: an adjacency grouped by target, and its cut into chunks of about the same work. */
#ifndef GNNFLOW_CSR_H
#define GNNFLOW_CSR_H

#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

/* In-edges of `rows` targets: edge i of target t has offsets[t] <= i < offsets[t + 1] and comes from row sources[i].
   edges[i] is its row among coefficients; NULL says that it is i itself. narrow: both are int32_t, as files have them, and
   int64_t else. */
typedef struct {
    const int64_t *offsets;
    const void *sources, *edges;
    int64_t rows, narrow;
} csr;

/* One of `sources` or `edges`. */
INLINE int64_t number_at(const csr *adjacency, const void *numbers, int64_t i) {
    return adjacency->narrow ? ((const int32_t *)numbers)[i] : ((const int64_t *)numbers)[i];
}

INLINE int64_t source_of(const csr *adjacency, int64_t i) {
    return number_at(adjacency, adjacency->sources, i);
}

INLINE int64_t edge_of(const csr *adjacency, int64_t i) {
    return number_at(adjacency, adjacency->edges, i);
}

/* The first target of chunk `number` of `chunks`: chunks have about the same number of edges plus targets, so that a few
   targets with very many in-edges do not keep one thread busy while the others wait. */
int64_t first_row(const csr *adjacency, int64_t number, int64_t chunks);

/* How many chunks pay for `work` multiplications on `threads` threads. */
int64_t chunks_for(int64_t work, int64_t rows, int threads);

/* The compiler makes one version per instruction set, and the loader takes the best that the processor has. Products and
   sums are never fused (see build.py), so all of them give the same bits. */
#ifndef FOR_EVERY_PROCESSOR /* a test compiles for one instruction set at a time */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EVERY_PROCESSOR
#endif
#endif

/* Columns are taken in blocks whose sums stay in registers. The last block may begin before the one before it ends:
   columns of both are computed twice, alike. */
#define FOR_BLOCKS(width, BLOCK)                                    \
    do {                                                            \
        int64_t column_ = 0;                                        \
        for (; column_ + 64 <= (width); column_ += 64) BLOCK(column_, 64); \
        if (column_ + 32 <= (width)) { BLOCK(column_, 32); column_ += 32; } \
        if (column_ + 16 <= (width)) { BLOCK(column_, 16); column_ += 16; } \
        if (column_ == (width)) break;                              \
        if ((width) >= 16) BLOCK((width) - 16, 16);                 \
        else if ((width) >= 8) { BLOCK(0, 8); if ((width) > 8) BLOCK((width) - 8, 8); } \
        else if ((width) >= 4) { BLOCK(0, 4); if ((width) > 4) BLOCK((width) - 4, 4); } \
        else for (; column_ < (width); column_++) BLOCK(column_, 1); \
    } while (0)

#endif
