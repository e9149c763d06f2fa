// SPDX-License-Identifier: MIT
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <queue>
#include <stdexcept>
#include <string>
#include <thread>
#include <pthread.h>
struct Records {
    std::mutex m;
    std::condition_variable cv;
    std::queue<std::string> q;
    bool closed = false;
    void push(std::string s)
    {
        {
            std::lock_guard<std::mutex> l(m);
            q.push(std::move(s));
        }
        cv.notify_one();
    }
    void close()
    {
        {
            std::lock_guard<std::mutex> l(m);
            closed = true;
        }
        cv.notify_all();
    }
    bool pop(std::string &out)
    {
        std::unique_lock<std::mutex> l(m);
        cv.wait(l, [&] { return closed || !q.empty(); });
        if (q.empty())
            return false;
        out = std::move(q.front());
        q.pop();
        return true;
    }
};
static Records records;
static void parse(int n)
{
    for (int i = 0; i < n; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        if (i == 9)
            throw std::runtime_error("line 10: bad quote");
        records.push("r" + std::to_string(i));
    }
    records.close();
}
static void parser()
{
    try {
        parse(100);
    } catch (const std::exception &e) {
        std::cerr << "parser: " << e.what() << "\n";
    }
}
static void consume()
{
    std::string s;
    size_t n = 0;
    while (records.pop(s))
        n += s.size();
    std::cout << n << "\n";
}
int main()
{
    std::thread p(parser);
    pthread_setname_np(p.native_handle(), "parser");
    std::thread a(consume), b(consume);
    pthread_setname_np(a.native_handle(), "consumer-1");
    pthread_setname_np(b.native_handle(), "consumer-2");
    p.join();
    a.join();
    b.join();
}
