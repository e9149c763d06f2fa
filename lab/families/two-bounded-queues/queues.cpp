// SPDX-License-Identifier: MIT
#include "truth.h"
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

template <class T> class Bounded {
    std::mutex mutex;
    std::condition_variable not_full, not_empty;
    std::deque<T> items;
    size_t most;

public:
    explicit Bounded(size_t most) : most(most) {}

    void put(T item)
    {
        std::unique_lock held(mutex);
        not_full.wait(held, [&] { return items.size() < most; });
        items.push_back(item);
        not_empty.notify_one();
    }

    T take()
    {
        std::unique_lock held(mutex);
        not_empty.wait(held, [&] { return !items.empty(); });
        T item = items.front();
        items.pop_front();
        not_full.notify_one();
        return item;
    }
};

Bounded<int> requests(4), replies(4);

void serve()
{
    LAB_ROLE("server");
    for (;;) {
        int request = requests.take();
        replies.put(request * 2);
        replies.put(request * 3);
    }
}

void ask()
{
    LAB_ROLE("waiter");
    for (int request = 0; request < 100; request++)
        requests.put(request);
    for (int reply = 0; reply < 200; reply++)
        replies.take();
}

int main()
{
    std::thread server(serve), client(ask);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    LAB_READY();
    client.join();
    server.detach();
}
