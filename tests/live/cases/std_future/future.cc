// SPDX-License-Identifier: MIT
// Polls a future with wait_for(0); the task reads standard input.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <future>
#include <thread>
#include <unistd.h>

// A future begins with a pointer to the state that it shares with its promise.
static uint32_t *state_of(const std::future<int> &future) {
  uint32_t *state;
  std::memcpy(&state, &future, sizeof state);
  return state;
}

// Which word of a state tells that there is a value: the one that becomes 1 with it.
static int deciding_word() {
  enum { WORDS = 8 };
  std::promise<int> promise;
  std::future<int> future = promise.get_future();
  uint32_t *state = state_of(future), before[WORDS];
  std::memcpy(before, state, sizeof before);
  promise.set_value(7);
  for (int i = 0; i < WORDS; i++)
    if (before[i] == 0 && state[i] == 1) return i;
  return -1;
}

int main() {
  long total = 0;
  const int word = deciding_word();
  for (int round = 0; round < 15; round++) {
    std::promise<int> promise;
    std::future<int> answer = promise.get_future();
    std::fprintf(stderr, "FLAG address=%p size=4\n", (void *)(state_of(answer) + word));
    std::thread worker([&promise] {
      char byte = 0;
      long got = read(0, &byte, 1);
      promise.set_value(got == 1 ? byte : 0);
    });
    while (answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      std::this_thread::yield();
    total += answer.get();
    worker.join();
  }
  printf("%ld\n", total);
}
