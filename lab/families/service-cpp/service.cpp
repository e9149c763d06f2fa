// SPDX-License-Identifier: MIT
// Hangs of small services: `service HANG` says that it begins, and stands a moment later.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <iostream>
#include <latch>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace std::chrono_literals;

class Queue {
public:
    void put(int job)
    {
        {
            std::lock_guard<std::mutex> hold(lock_);
            jobs_.push_back(job);
        }
        ready_.notify_one();
    }
    int take()
    {
        std::unique_lock<std::mutex> hold(lock_);
        ready_.wait(hold, [this] { return !jobs_.empty(); });
        int job = jobs_.front();
        jobs_.pop_front();
        return job;
    }

private:
    std::mutex lock_;
    std::condition_variable ready_;
    std::deque<int> jobs_;
};

static void produce(Queue &into)
{
    try {
        for (int n = 0;; n++) {
            if (n == 3)
                throw std::runtime_error("no such row");
            into.put(n);
        }
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
    }
    std::this_thread::sleep_for(3600s);
}

// The producer caught an error, and produces no more.
static void ended()
{
    auto *jobs = new Queue;
    auto *idle = new Queue;
    std::thread([idle] { idle->take(); }).detach();
    std::thread([jobs] { produce(*jobs); }).detach();
    for (;;)
        jobs->take();
}

static std::mutex config;

static void reload()
{
    std::lock_guard<std::mutex> hold(config);
    std::string line;
    std::getline(std::cin, line);
}

static void prepare(std::latch &ready)
{
    {
        std::lock_guard<std::mutex> hold(config);
    }
    ready.count_down();
}

// One that is to count down wants a lock, whose owner reads.
static void latch()
{
    std::latch ready(2);
    std::thread(reload).detach();
    std::this_thread::sleep_for(300ms);
    std::thread([&ready] { ready.count_down(); }).detach();
    std::thread([&ready] { prepare(ready); }).detach();
    ready.wait();
}

static std::shared_mutex rows;

static int count()
{
    std::shared_lock<std::shared_mutex> hold(rows);
    std::string line;
    std::getline(std::cin, line);
    return 1;
}

static void update()
{
    std::unique_lock<std::shared_mutex> hold(rows);
}

// The result of a task that waits for a writer's turn, behind a reader that reads a silent pipe.
static void future()
{
    auto counted = std::async(std::launch::async, count);
    std::this_thread::sleep_for(300ms);
    auto updated = std::async(std::launch::async, update);
    updated.get();
}

int main(int count, char **words)
{
    std::string hang = count > 1 ? words[1] : "";
    std::cout << "begins" << std::endl;
    std::thread([] {
        for (;;)
            std::this_thread::sleep_for(200ms);
    }).detach();
    if (hang == "ended")
        ended();
    else if (hang == "latch")
        latch();
    else if (hang == "future")
        future();
    return 2;
}
