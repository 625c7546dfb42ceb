#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#define MOST_THREADS 256

static pthread_mutex_t taken = PTHREAD_MUTEX_INITIALIZER; /* held by the caller whose chunks the pool runs */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* guards everything below but the two counters */
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static int started; /* threads that exist */
static int wanted;  /* of them, those that join the present call */
static int working; /* of them, those that have not finished it */
static uint64_t call;
static chunk_fn run;
static void *task_of_call;
static int64_t chunks_of_call;
static atomic_llong next_chunk;

static void work(void) {
    for (;;) {
        int64_t chunk = atomic_fetch_add_explicit(&next_chunk, 1, memory_order_relaxed);
        if (chunk >= chunks_of_call) return;
        run(task_of_call, chunk);
    }
}

static void *serve(void *number_as_pointer) {
    int number = (int)(intptr_t)number_as_pointer;
    uint64_t seen = 0;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (call == seen || number >= wanted) {
            seen = call; /* a call that wants fewer threads is none of this one's */
            pthread_cond_wait(&begun, &lock);
        }
        seen = call;
        pthread_mutex_unlock(&lock);
        work();
        pthread_mutex_lock(&lock);
        if (--working == 0) pthread_cond_signal(&ended);
    }
    return NULL;
}

/* A forked child has none of the threads, and may have inherited locks that nobody will release. */
static void forget_threads(void) {
    pthread_mutex_init(&taken, NULL);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&begun, NULL);
    pthread_cond_init(&ended, NULL);
    started = wanted = working = 0;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void at_first(void) { pthread_atfork(NULL, NULL, forget_threads); }

/* With `lock` held: see to it that `helpers` threads exist, as far as the system allows. */
static int start_threads(int helpers) {
    sigset_t all, before; /* signals are for the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < helpers) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        int failed = pthread_create(&thread, &attributes, serve, (void *)(intptr_t)started);
        pthread_attr_destroy(&attributes);
        if (failed) break;
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started < helpers ? started : helpers;
}

void run_chunks(chunk_fn fn, void *task, int64_t chunks, int threads) {
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads > chunks) threads = (int)chunks;
    if (threads <= 1 || pthread_mutex_trylock(&taken)) {
        for (int64_t chunk = 0; chunk < chunks; chunk++) fn(task, chunk);
        return;
    }
    pthread_once(&once, at_first);
    pthread_mutex_lock(&lock);
    run = fn;
    task_of_call = task;
    chunks_of_call = chunks;
    atomic_store(&next_chunk, 0);
    wanted = working = start_threads(threads - 1);
    call++;
    pthread_cond_broadcast(&begun);
    pthread_mutex_unlock(&lock);
    work();
    pthread_mutex_lock(&lock);
    while (working) pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&taken);
}
