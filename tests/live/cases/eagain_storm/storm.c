/* SPDX-License-Identifier: MIT */
// The main thread reads a pipe that does not block, again and again; a thread writes to it for
// every byte of standard input.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { ROUNDS = 15 };
static int ends[2];

static void *relay(void *unused) {
  char byte;
  for (int round = 0; round < ROUNDS; round++) {
    if (read(0, &byte, 1) != 1) byte = 0;
    if (write(ends[1], &byte, 1) != 1) break;
  }
  return unused;
}

int main(void) {
  pthread_t thread;
  char byte;
  if (pipe2(ends, O_NONBLOCK) != 0) return 1;
  pthread_create(&thread, NULL, relay, NULL);
  for (int got = 0; got < ROUNDS;) {
    ssize_t result = read(ends[0], &byte, 1);
    if (result == 1) got++;
    else if (result < 0 && errno != EAGAIN) return 2;
  }
  pthread_join(thread, NULL);
}
