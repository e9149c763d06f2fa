/* SPDX-License-Identifier: MIT */
// Concurrency Kit's ring: the main thread takes out what another puts in for every byte of standard
// input. It spins on the producer's tail; the consumer's head, its own, is compared with it.
#include <ck_ring.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 15 };
static ck_ring_t ring;
static ck_ring_buffer_t buffer[64];

static void *produce(void *unused) {
  char byte;
  for (long round = 1; round <= ROUNDS; round++) {
    if (read(0, &byte, 1) != 1) byte = 0;
    while (!ck_ring_enqueue_spsc(&ring, buffer, (void *)round)) ck_pr_stall();
  }
  return unused;
}

int main(void) {
  pthread_t thread;
  long sum = 0;
  ck_ring_init(&ring, 64);
  fprintf(stderr, "FLAG address=%p size=%zu\n", (void *)&ring.p_tail, sizeof ring.p_tail);
  pthread_create(&thread, NULL, produce, NULL);
  for (int round = 0; round < ROUNDS; round++) {
    void *entry;
    while (!ck_ring_dequeue_spsc(&ring, buffer, &entry)) ck_pr_stall();
    sum += (long)entry;
  }
  pthread_join(thread, NULL);
  printf("%ld\n", sum);
}
