// SPDX-License-Identifier: MIT
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <truth.h>

class Worker
{
  public:
    Worker() : thread([this] { run(); }) {}
    ~Worker()
    {
        stop = true; // nobody is told
        LAB_ROLE("waiter");
        LAB_READY();
        thread.join();
    }

  private:
    void run()
    {
        LAB_ROLE("worker");
        std::unique_lock<std::mutex> held(lock);
        while (!stop) {
            changed.wait(held);
            while (!jobs.empty())
                jobs.pop_front();
        }
    }
    bool stop = false;
    std::mutex lock;
    std::condition_variable changed;
    std::deque<int> jobs;
    std::thread thread;
};

int main()
{
    Worker worker;
    usleep(200000);
}
