/* SPDX-License-Identifier: MIT */
// A consumer as servers have them: it counts its polls, keeps a history, backs off with pauses and
// then yields. The pause is a loop of its own and much of the work; the word waited for is a bit
// among others, set after each byte of standard input.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 15, STOP = 0x10 };
struct stats {
  unsigned long polls, yields;
  int backoff;
};
struct context {
  struct stats now;
  unsigned flags;
  struct stats history[64];
};
static struct context *context;

static void *serve(void *unused) {
  char byte;
  for (int round = 0; round < ROUNDS; round++) {
    if (read(0, &byte, 1) != 1) break;
    __atomic_or_fetch(&context->flags, STOP, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&context->flags, __ATOMIC_ACQUIRE) & STOP) usleep(100);
  }
  return unused;
}

static void await(struct context *c) {
  c->now.backoff = 1;
  while (!(__atomic_load_n(&c->flags, __ATOMIC_ACQUIRE) & STOP)) {
    c->history[++c->now.polls % 64] = c->now;
    for (int i = 0; i < c->now.backoff; i++) __builtin_ia32_pause();
    if (c->now.backoff < 64) c->now.backoff *= 2;
    else {
      c->now.yields++;
      sched_yield();
    }
  }
}

int main(void) {
  pthread_t thread;
  context = calloc(1, sizeof *context);
  context->flags = 3;
  fprintf(stderr, "FLAG address=%p size=%zu\n", (void *)&context->flags, sizeof context->flags);
  pthread_create(&thread, NULL, serve, NULL);
  for (int round = 0; round < ROUNDS; round++) {
    await(context);
    __atomic_and_fetch(&context->flags, ~STOP, __ATOMIC_SEQ_CST);
  }
  pthread_join(thread, NULL);
  puts("done");
}
