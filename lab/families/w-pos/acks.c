// A leader sleeps until three bits are set by followers; one of them reads a silent input. Another loops with progress.
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include "truth.h"
static struct { unsigned term; atomic_uint acks; } *leader;
static void *follows(void *n) { long me = (long)n; char b; if (me == 2) { LAB_ROLE("late"); if (read(0, &b, 1) != 1) return 0; } atomic_fetch_or(&leader->acks, 1u << me); return 0; }
static void *logs(void *a) { for (int n = 0;; n++) { usleep(3000); __atomic_fetch_add((int *)a, 1, 5); } }
int main(void) { static int lines; leader = calloc(1, sizeof *leader); pthread_t t; for (long n = 0; n < 3; n++) pthread_create(&t, 0, follows, (void *)n); pthread_create(&t, 0, logs, &lines);
    LAB_ROLE("waiter"); LAB_WORD("acks", &leader->acks, 4); LAB_READY(); while ((atomic_load(&leader->acks) & 7) != 7) usleep(500); return 0; }
