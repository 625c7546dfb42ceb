/* A BLAS, which the caller lends, packs both matrices anew for each product, which for pieces of rows that are in the cache
   takes as long as the product. Where 512 bits fit a register, small matrices are therefore read where they are, in tiles
   whose sums stay in registers. A tile asks for what comes after it, a line every other step: rows come from memory, which
   would otherwise be waited for between tiles. */
#include "products.h"

#include "csr.h"

/* Rows of a tile; numbers of a register and of a cache line; columns of a small matrix; tiles whose rows are asked for ahead. */
enum { TILE_ROWS = 6, LANES = 16, WIDEST = 128, TILES_AHEAD = 2 };

/* As sgemm_ of Fortran: C = alpha op(A) op(B) + beta C, columns side by side. */
typedef void (*product_fn)(const char *of_a, const char *of_b, const int *m, const int *n, const int *k, const float *alpha,
                           const float *a, const int *lda, const float *b, const int *ldb, const float *beta, float *c,
                           const int *ldc);

static product_fn product;

void gnnflow_use_products(void *sgemm) { product = (product_fn)sgemm; }

static void lent(const float *a, int a_moved, const float *b, int b_moved, int64_t m, int64_t n, int64_t k, float *c, int add) {
    int rows = (int)m, columns = (int)n, inner = (int)k, lda = (int)(a_moved ? m : k), ldb = (int)(b_moved ? k : n);
    float one = 1.0f, kept = add ? 1.0f : 0.0f;
    /* Rows side by side are the columns of the transposed matrix, and c transposed is b transposed times a transposed. */
    product(b_moved ? "T" : "N", a_moved ? "T" : "N", &columns, &rows, &inner, &one, b, &ldb, a, &lda, &kept, c, &columns);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define WIDE __attribute__((target("avx512f")))

/* A tile of so many rows and lines of columns of c, these and a_moved known where this is compiled. next: rows of b that
   are read some tiles later, where a is moved. */
INLINE WIDE void tile(const float *a, int64_t a_row, int64_t a_inner, const float *b, int64_t n, int64_t k, float *c, int add,
                      int rows, int lines, int a_moved, const float *next) {
    __m512 sum[TILE_ROWS][4];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < lines; j++) sum[i][j] = add ? _mm512_loadu_ps(c + i * n + j * LANES) : _mm512_setzero_ps();
    for (int64_t inner = 0; inner < k; inner++) {
        int64_t asked = inner / 2 * LANES, tiles = TILES_AHEAD * TILE_ROWS;
        if (a_moved && inner % 2) __builtin_prefetch(next + asked, 0, 2);
        if (!a_moved && inner % 2) __builtin_prefetch(c + tiles * n + asked, 1);
        if (!a_moved && !(inner % 2)) __builtin_prefetch(a + tiles * a_row + asked);
        __m512 line[4];
        for (int j = 0; j < lines; j++) line[j] = _mm512_loadu_ps(b + inner * n + j * LANES);
        for (int i = 0; i < rows; i++) {
            __m512 factor = _mm512_set1_ps(a[i * a_row + inner * a_inner]);
            for (int j = 0; j < lines; j++) sum[i][j] = _mm512_fmadd_ps(factor, line[j], sum[i][j]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < lines; j++) _mm512_storeu_ps(c + i * n + j * LANES, sum[i][j]);
}

#define COLUMNS(name, lines, a_moved)                                                                                  \
    WIDE static void name(const float *a, const float *b, int64_t m, int64_t n, int64_t k, float *c, int add) {        \
        int64_t i = 0, row = a_moved ? 1 : k, inner = a_moved ? m : 1;                                                 \
        const float *next = b + k * n; /* rows of the next piece */                                                    \
        for (; i + TILE_ROWS <= m; i += TILE_ROWS, next += k / 2 * LANES)                                              \
            tile(a + i * row, row, inner, b, n, k, c + i * n, add, TILE_ROWS, lines, a_moved, next);                   \
        for (; i < m; i++) tile(a + i * row, row, inner, b, n, k, c + i * n, add, 1, lines, a_moved, next);            \
    }
COLUMNS(rows_64, 4, 0)
COLUMNS(rows_32, 2, 0)
COLUMNS(rows_16, 1, 0)
COLUMNS(moved_64, 4, 1)
COLUMNS(moved_32, 2, 1)
COLUMNS(moved_16, 1, 1)
#undef COLUMNS

int reads_in_place(int64_t k, int64_t n) {
    return n % LANES == 0 && n <= WIDEST && k <= WIDEST && __builtin_cpu_supports("avx512f");
}

static void in_place(const float *a, int a_moved, const float *b, int64_t m, int64_t n, int64_t k, float *c, int add) {
    int64_t j = 0;
    for (; j + 64 <= n; j += 64) (a_moved ? moved_64 : rows_64)(a, b + j, m, n, k, c + j, add);
    for (; j + 32 <= n; j += 32) (a_moved ? moved_32 : rows_32)(a, b + j, m, n, k, c + j, add);
    for (; j < n; j += LANES) (a_moved ? moved_16 : rows_16)(a, b + j, m, n, k, c + j, add);
}
#else
int reads_in_place(int64_t k, int64_t n) { return 0; }
static void in_place(const float *a, int a_moved, const float *b, int64_t m, int64_t n, int64_t k, float *c, int add) {}
#endif

void multiply(const float *a, int a_moved, const float *b, int b_moved, int64_t m, int64_t n, int64_t k, float *c, int add) {
    if (!b_moved && reads_in_place(a_moved ? m : k, n)) in_place(a, a_moved, b, m, n, k, c, add);
    else lent(a, a_moved, b, b_moved, m, n, k, c, add);
}
