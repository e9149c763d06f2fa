/* SPDX-License-Identifier: MIT */
// A sequence lock: readers wait while the writer's count is odd. The writer reads standard input
// between its two steps.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static struct {
  unsigned sequence;
  long first, second;
} pair __attribute__((aligned(64)));
static int stop;

static void *update(void *unused) {
  for (char byte = '.'; byte == '.'; usleep(2000)) {
    __atomic_add_fetch(&pair.sequence, 1, __ATOMIC_SEQ_CST);
    pair.first++;
    if (read(0, &byte, 1) != 1) byte = 0;
    pair.second++;
    __atomic_add_fetch(&pair.sequence, 1, __ATOMIC_SEQ_CST);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
  return unused;
}

static long look(void) {
  unsigned before;
  long difference;
  do {
    while ((before = __atomic_load_n(&pair.sequence, __ATOMIC_ACQUIRE)) & 1) __builtin_ia32_pause();
    difference = pair.first - pair.second;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
  } while (__atomic_load_n(&pair.sequence, __ATOMIC_RELAXED) != before);
  return difference;
}

int main(void) {
  pthread_t thread;
  long torn = 0;
  fprintf(stderr, "FLAG address=%p size=%zu\n", (void *)&pair.sequence, sizeof pair.sequence);
  pthread_create(&thread, NULL, update, NULL);
  for (; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); usleep(1000)) torn += look();
  pthread_join(thread, NULL);
  printf("%ld\n", torn);
}
