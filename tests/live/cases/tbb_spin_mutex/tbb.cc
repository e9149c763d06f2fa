// SPDX-License-Identifier: MIT
// The holder of a tbb::spin_mutex reads standard input while it holds it.
#include <atomic>
#include <cstdio>
#include <oneapi/tbb/spin_mutex.h>
#include <thread>
#include <unistd.h>
struct Account { long balance = 0; tbb::spin_mutex mutex; };
static Account *account;
static std::atomic<int> held{0};
int main() {
  account = new Account;
  std::fprintf(stderr, "FLAG address=%p size=1\n", (void *)&account->mutex);
  std::thread holder([] {
    char byte;
    long got = 1;
    while (got == 1) {
      tbb::spin_mutex::scoped_lock lock(account->mutex);
      held++;
      held.notify_all();
      got = read(0, &byte, 1);
      account->balance += 5;
      lock.release();
      for (int i = held; i == held && got == 1;) usleep(1000);
    }
  });
  for (int round = 0; round < 15; round++) {
    held.wait(round * 2);
    { tbb::spin_mutex::scoped_lock lock(account->mutex); account->balance -= 1; }
    held++;
  }
  held += 1;
  std::printf("%ld\n", account->balance);
  std::fflush(nullptr);
  _exit(0);
}
