// A worker runs until its stop token says so; the main thread reads standard input before it asks.
#include <atomic>
#include <cstdio>
#include <stop_token>
#include <thread>
#include <unistd.h>
int main() {
  long total = 0;
  for (int round = 0; round < 15; round++) {
    std::jthread worker([&total](std::stop_token stop) {
      while (!stop.stop_requested()) __builtin_ia32_pause();
      total++;
    });
    char byte;
    if (read(0, &byte, 1) != 1) total += 100;
    worker.request_stop();
  }
  printf("%ld\n", total);
}
