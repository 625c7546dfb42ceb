/* A pool of threads that share the chunks of one call. */
#ifndef GNNFLOW_POOL_H
#define GNNFLOW_POOL_H

#include <stdint.h>

typedef void (*chunk_fn)(void *task, int64_t chunk);

/* Run fn(task, 0 .. chunks - 1) on up to `threads` threads, the caller's among them, and return when all are done. Which
   thread runs a chunk is left to chance, so a chunk must write what no other does. A call that finds the pool taken by
   another caller runs alone. */
void run_chunks(chunk_fn fn, void *task, int64_t chunks, int threads);

#endif
