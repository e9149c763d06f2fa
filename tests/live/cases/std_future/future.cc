// Polls a future with wait_for(0); the task reads standard input.
#include <chrono>
#include <cstdio>
#include <future>
#include <thread>
#include <unistd.h>
int main() {
  long total = 0;
  for (int round = 0; round < 15; round++) {
    std::promise<int> promise;
    std::future<int> answer = promise.get_future();
    std::thread worker([&promise] {
      char byte = 0;
      long got = read(0, &byte, 1);
      promise.set_value(got == 1 ? byte : 0);
    });
    while (answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready) std::this_thread::yield();
    total += answer.get();
    worker.join();
  }
  printf("%ld\n", total);
}
