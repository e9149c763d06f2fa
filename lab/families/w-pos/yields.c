// A thread yields until a setting was read; the reader waits for its input. Others compute, or wait for work.
#include <pthread.h>
#include <sched.h>
#include "truth.h"
static struct { int level; volatile int ready; unsigned long ticks; } settings = {3, 0, 0};
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t c = PTHREAD_COND_INITIALIZER; static int jobs;
static void *reads(void *a) { char b; LAB_ROLE("setter"); while (read(0, &b, 1) == 1 && b != 'q') settings.level += b; settings.ready = 1; return a; }
static void *computes(void *a) { for (unsigned long x = 1;; x = x * 31 + 7) if (x % 1000003 == 0) settings.ticks++; return a; }
static void *idles(void *a) { pthread_mutex_lock(&m); while (!jobs) pthread_cond_wait(&c, &m); return a; }
int main(void) { pthread_t t; pthread_create(&t, 0, reads, 0); pthread_create(&t, 0, computes, 0); pthread_create(&t, 0, idles, 0);
    LAB_ROLE("waiter"); LAB_WORD("ready", &settings.ready, 4); LAB_READY(); while (!settings.ready) sched_yield(); return settings.level; }
