/* SPDX-License-Identifier: MIT */
// A POSIX spin lock whose owner reads standard input while it holds it.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_spinlock_t lock;
static volatile int stop;

static void *own(void *unused) {
  char byte = '.';
  while (byte == '.') {
    usleep(2000);
    pthread_spin_lock(&lock);
    if (read(0, &byte, 1) != 1) byte = 0;
    pthread_spin_unlock(&lock);
  }
  stop = 1;
  return unused;
}

int main(void) {
  pthread_t thread;
  pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
  fprintf(stderr, "FLAG address=%p size=%zu\n", (void *)&lock, sizeof lock);
  pthread_create(&thread, NULL, own, NULL);
  while (!stop) {
    pthread_spin_lock(&lock);
    pthread_spin_unlock(&lock);
    usleep(1000);
  }
  pthread_join(thread, NULL);
}
