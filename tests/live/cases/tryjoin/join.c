/* SPDX-License-Identifier: MIT */
// The main thread tries to join another that ends with its standard input. What it polls no thread
// writes: the kernel clears the number in the other's thread block.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *work(void *unused) {
  // The C library keeps a thread's number in the block that begins where pthread_self() points.
  int *word = (int *)pthread_self();
  while (*word != gettid()) word++;
  fprintf(stderr, "FLAG address=%p size=4\n", (void *)word);
  char byte;
  while (read(0, &byte, 1) == 1);
  return unused;
}

int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, work, NULL);
  while (pthread_tryjoin_np(thread, NULL) == EBUSY) usleep(1000);
  puts("done");
}
