// SPDX-License-Identifier: MIT
// Hangs of a backend: `backend HANG` says that it begins, and stands a moment later.
#include <condition_variable>
#include <csignal>
#include <deque>
#include <iostream>
#include <mutex>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

class Jobs {
public:
    void put(int job)
    {
        std::lock_guard<std::mutex> hold(lock_);
        jobs_.push_back(job);
        more_.notify_one();
    }
    int take()
    {
        std::unique_lock<std::mutex> hold(lock_);
        while (jobs_.empty())
            more_.wait(hold);
        int job = jobs_.front();
        jobs_.pop_front();
        return job;
    }

private:
    std::mutex lock_;
    std::condition_variable more_;
    std::deque<int> jobs_;
};

class Ledger {
public:
    __attribute__((noinline)) bool add(int sum)
    {
        lock_.lock();
        if (sum == 0)
            return false;
        total_ += sum;
        lock_.unlock();
        return true;
    }

private:
    std::mutex lock_;
    int total_ = 0;
};

static Ledger ledger;

static void keep(Jobs &jobs)
{
    for (;;)
        ledger.add(jobs.take());
}

// A lock was left locked by a worker that waits for its next job.
static void left()
{
    static Jobs jobs, other;
    std::thread([] { keep(other); }).detach();
    std::thread([] { keep(jobs); }).detach();
    jobs.put(1);
    jobs.put(0);
    usleep(300000);
    ledger.add(2);
}

static std::mutex log_lock;
static int log_socket;

static void log(const std::string &line)
{
    std::lock_guard<std::mutex> hold(log_lock);
    if (write(log_socket, line.data(), line.size()) < 0)
        _exit(1);
}

static void chatter()
{
    for (;;)
        log(std::string(4096, 'x'));
}

// A log goes to a process that is stopped, under a lock that another thread wants.
static void stopped()
{
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    if (fork() == 0) {
        close(pair[0]);
        raise(SIGSTOP);
        char some[4096];
        while (read(pair[1], some, sizeof some) > 0) {
        }
        _exit(0);
    }
    close(pair[1]);
    log_socket = pair[0];
    std::thread(chatter).detach();
    usleep(300000);
    log("ends");
}

int main(int count, char **words)
{
    std::string hang = count > 1 ? words[1] : "";
    std::cout << "begins" << std::endl;
    if (hang == "left")
        left();
    else
        stopped();
    return 2;
}
