/* SPDX-License-Identifier: MIT */
// A supervisor goes over its workers' states until none is left; the third waits for a byte of
// standard input.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORKERS = 4, DONE = 2 };
struct worker {
  int number;
  volatile int state;
};
static struct worker *workers[WORKERS];

static void *work(void *argument) {
  struct worker *worker = argument;
  char byte;
  usleep(20000 * worker->number);
  if (worker->number != 2 || read(0, &byte, 1) == 1) worker->state = DONE;
  return NULL;
}

int main(void) {
  pthread_t threads[WORKERS];
  for (int i = 0; i < WORKERS; i++) {
    workers[i] = calloc(1, sizeof **workers);
    workers[i]->number = i;
  }
  fprintf(stderr, "FLAG address=%p size=%zu\n", (void *)&workers[2]->state,
          sizeof workers[2]->state);
  for (int i = 0; i < WORKERS; i++) pthread_create(&threads[i], NULL, work, workers[i]);
  for (;;) {
    int left = 0;
    for (int i = 0; i < WORKERS; i++) left += workers[i]->state != DONE;
    if (left == 0) break;
    usleep(1000);
  }
  for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
  puts("done");
}
