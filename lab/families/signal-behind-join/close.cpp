// SPDX-License-Identifier: MIT
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <truth.h>

static std::mutex lock;
static std::condition_variable changed;
static std::deque<int> jobs;
static bool closed;

static void work()
{
    for (;;) {
        std::unique_lock<std::mutex> held(lock);
        changed.wait(held, [] { return closed || !jobs.empty(); });
        if (jobs.empty())
            return;
        jobs.pop_front();
    }
}

static void tick()
{
    LAB_ROLE("clock");
    for (;;)
        usleep(50000);
}

int main(int count, char **)
{
    if (count > 1)
        std::thread(tick).detach();
    std::thread worker(work);
    for (int job = 0; job < 9; job++) {
        usleep(10000);
        std::lock_guard<std::mutex> held(lock);
        jobs.push_back(job);
        changed.notify_one();
    }
    usleep(100000);
    LAB_ROLE("waiter");
    LAB_READY();
    worker.join(); // it waits for what follows
    {
        std::lock_guard<std::mutex> held(lock);
        closed = true;
    }
    changed.notify_all();
}
