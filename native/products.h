/* Products of a few hundred rows with a small matrix, on one thread. */
#ifndef GNNFLOW_PRODUCTS_H
#define GNNFLOW_PRODUCTS_H

#include <stdint.h>

/* Whether products with matrices of so many rows and columns read them where they are, and b only as it is. */
int reads_in_place(int64_t k, int64_t n);

/* c [m, n] (+)= a [m, k] b [k, n], all of rows side by side; a_moved, b_moved: stored transposed, as [k, m] and [n, k]. */
void multiply(const float *a, int a_moved, const float *b, int b_moved, int64_t m, int64_t n, int64_t k, float *c, int add);

#endif
