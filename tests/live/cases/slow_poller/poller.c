/* SPDX-License-Identifier: MIT */
// The main thread looks every 20 ms whether a byte has arrived; a worker keeps a processor busy all
// the time and makes progress.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 15 };
static volatile int arrived;
static int stop;
static char memory[1 << 22];

static void *work(void *unused) {
  for (int round = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); round++) {
    memset(memory, round, sizeof memory);
    __asm__ volatile("" ::: "memory");
  }
  return unused;
}

static void *serve(void *unused) {
  char byte;
  for (int round = 1; round <= ROUNDS; round++) {
    if (read(0, &byte, 1) != 1) byte = 0;
    arrived = round;
  }
  return unused;
}

int main(void) {
  pthread_t worker, server;
  fprintf(stderr, "FLAG address=%p size=%zu\n", (void *)&arrived, sizeof arrived);
  pthread_create(&worker, NULL, work, NULL);
  pthread_create(&server, NULL, serve, NULL);
  for (int round = 1; round <= ROUNDS; round++)
    while (arrived < round) usleep(20000);
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  pthread_join(worker, NULL);
  pthread_join(server, NULL);
}
