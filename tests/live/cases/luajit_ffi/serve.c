/* SPDX-License-Identifier: MIT */
// Sets one word on the heap after the other, for each byte of standard input; at its end all that
// are left.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 15 };

static void *serve_rounds(void *words) {
  char byte;
  for (int round = 0; round < ROUNDS; round++) {
    if (read(0, &byte, 1) != 1) byte = 0;
    __atomic_store_n((int *)words + round, 1, __ATOMIC_SEQ_CST);
  }
  return words;
}

int *serve(void) {
  pthread_t thread;
  int *words = calloc(ROUNDS, sizeof *words);
  pthread_create(&thread, NULL, serve_rounds, words);
  return words;
}
