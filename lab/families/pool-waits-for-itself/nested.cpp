// SPDX-License-Identifier: MIT
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <iostream>
#include <thread>
#include <vector>
#include <pthread.h>
class Pool
{
    std::mutex m;
    std::condition_variable cv;
    std::deque<std::function<void()>> q;
    std::vector<std::thread> ts;
    bool stop = false;
    void run()
    {
        for (;;) {
            std::function<void()> f;
            {
                std::unique_lock<std::mutex> l(m);
                cv.wait(l, [&] { return stop || !q.empty(); });
                if (q.empty())
                    return;
                f = std::move(q.front());
                q.pop_front();
            }
            f();
        }
    }

  public:
    explicit Pool(int n)
    {
        for (int i = 0; i < n; i++) {
            ts.emplace_back([this] { run(); });
            pthread_setname_np(ts.back().native_handle(), "pool");
        }
    }
    template <class F> auto submit(F f) -> std::future<decltype(f())>
    {
        auto t = std::make_shared<std::packaged_task<decltype(f())()>>(f);
        auto r = t->get_future();
        {
            std::lock_guard<std::mutex> l(m);
            q.emplace_back([t] { (*t)(); });
        }
        cv.notify_one();
        return r;
    }
    ~Pool()
    {
        {
            std::lock_guard<std::mutex> l(m);
            stop = true;
        }
        cv.notify_all();
        for (auto &t : ts)
            t.join();
    }
};
static Pool pool(2);
static int leaf(int n)
{
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return n;
}
static int tree(int n)
{
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    auto l = pool.submit([n] { return leaf(n); });
    return l.get() + 1;
}
int main()
{
    std::mutex mm;
    std::condition_variable mc;
    std::thread metrics([&] {
        std::unique_lock<std::mutex> l(mm);
        for (;;)
            mc.wait_for(l, std::chrono::milliseconds(300));
    });
    pthread_setname_np(metrics.native_handle(), "metrics");
    metrics.detach();
    auto a = pool.submit([] { return tree(1); });
    auto b = pool.submit([] { return tree(2); });
    std::cout << a.get() + b.get() << "\n";
}
