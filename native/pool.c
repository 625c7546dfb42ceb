#include "pool.h"

#include <stdatomic.h>
#include <stddef.h>

/* As GOMP_parallel of OpenMP's runtime: run share(call) on so many threads, the caller's among them. */
typedef void (*parallel_fn)(void (*share)(void *), void *call, unsigned threads, unsigned flags);

static _Atomic(parallel_fn) parallel; /* NULL until threads are lent */

typedef struct {
    chunk_fn run;
    void *task;
    int64_t chunks;
    atomic_llong next;
} call;

static void share(void *call_as_pointer) {
    call *c = call_as_pointer;
    for (;;) {
        int64_t chunk = atomic_fetch_add_explicit(&c->next, 1, memory_order_relaxed);
        if (chunk >= c->chunks) return;
        c->run(c->task, chunk);
    }
}

void gnnflow_use_threads(void *gomp_parallel) { parallel = (parallel_fn)gomp_parallel; }

void run_chunks(chunk_fn fn, void *task, int64_t chunks, int threads) {
    call c = {fn, task, chunks, 0};
    parallel_fn lent = parallel;
    if (threads > chunks) threads = (int)chunks;
    if (threads > 1 && lent) lent(share, &c, (unsigned)threads, 0);
    else share(&c);
}
