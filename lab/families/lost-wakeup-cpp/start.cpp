// SPDX-License-Identifier: MIT
#include <condition_variable>
#include <mutex>
#include <thread>
#include <truth.h>

static std::mutex lock;
static std::condition_variable started;

static void start() { started.notify_all(); }

static void __attribute__((noinline)) wait_for_start()
{
    std::unique_lock<std::mutex> held(lock);
    started.wait(held); // too late, and without asking anything
}

static void tick()
{
    LAB_ROLE("ticker");
    for (;;)
        usleep(100000);
}

int main()
{
    std::thread(tick).detach();
    std::thread(start).join();
    usleep(200000);
    LAB_ROLE("waiter");
    LAB_READY();
    wait_for_start();
}
