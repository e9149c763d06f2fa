// A loop asks a task, by a virtual function, whether it is done, and sleeps; a busy thread beside it compresses.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>
#include "truth.h"
struct Task { virtual bool done() const = 0; virtual ~Task() = default; };
struct Load : Task { std::vector<char> data; std::atomic<int> state{1}; bool done() const override { return state.load() >= 3; } void run() { char b; LAB_ROLE("loader"); while (read(0, &b, 1) == 1) data.push_back(b); state = data.empty() ? 4 : 3; } };
std::atomic<unsigned long> busy;
int main() { Load *load = new Load; Task *task = load; std::thread t([=] { load->run(); }); std::thread o([] { for (unsigned long x = 5;; x ^= x << 13, x ^= x >> 7, x ^= x << 17) busy += x & 1; });
    LAB_ROLE("waiter"); LAB_WORD("state", &load->state, 4); LAB_READY(); while (!task->done()) std::this_thread::sleep_for(std::chrono::microseconds(200)); _exit(0); }
