/* Threads that share the chunks of one call. They are the caller's: a pool of the core's own would compete for the cores
   with the caller's threads, which look for more work for a while after each of their operations. */
#ifndef GNNFLOW_POOL_H
#define GNNFLOW_POOL_H

#include <stdint.h>

typedef void (*chunk_fn)(void *task, int64_t chunk);

/* Compute with the threads of an OpenMP runtime from now on, given its GOMP_parallel; NULL for the caller's alone. */
void gnnflow_use_threads(void *gomp_parallel);

/* Run fn(task, 0 .. chunks - 1) on up to `threads` threads, the caller's among them, and return when all are done. Which
   thread runs a chunk is left to chance, so a chunk must write what no other does. */
void run_chunks(chunk_fn fn, void *task, int64_t chunks, int threads);

#endif
