// SPDX-License-Identifier: MIT
// A worker runs until its stop token says so; the main thread reads standard input before it asks.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stop_token>
#include <thread>
#include <unistd.h>

// A token is a pointer to the state that it shares with its source.
template <class Owner> static uint32_t *state_of(const Owner &owner) {
  uint32_t *state;
  std::memcpy(&state, &owner, sizeof state);
  return state;
}

// Which word of a state tells that a stop was requested: the first that a request changes.
static int deciding_word() {
  std::stop_source source;
  uint32_t *state = state_of(source), before[4];
  std::memcpy(before, state, sizeof before);
  source.request_stop();
  for (int i = 0; i < 4; i++)
    if (state[i] != before[i]) return i;
  return -1;
}

int main() {
  long total = 0;
  const int word = deciding_word();
  for (int round = 0; round < 15; round++) {
    std::jthread worker([&total](std::stop_token stop) {
      while (!stop.stop_requested()) __builtin_ia32_pause();
      total++;
    });
    std::fprintf(stderr, "FLAG address=%p size=4\n",
                 (void *)(state_of(worker.get_stop_token()) + word));
    char byte;
    if (read(0, &byte, 1) != 1) total += 100;
    worker.request_stop();
  }
  printf("%ld\n", total);
}
