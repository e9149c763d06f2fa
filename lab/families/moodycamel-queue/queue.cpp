// SPDX-License-Identifier: MIT
#include <atomic>
#include <sstream>
#include <thread>
#include <truth.h>
#define private public
#define protected public
#include <concurrentqueue/concurrentqueue.h>
#undef private
#undef protected
#include <arpa/inet.h>
#include <sys/socket.h>

static moodycamel::ConcurrentQueue<int> queue;

static void produce()
{
    LAB_ROLE("producer");
    for (int number = 0; number < 100; number++)
        queue.enqueue(number);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) ||
        listen(listener, 1))
        _exit(3);
    int client = accept(listener, nullptr, nullptr);
    queue.enqueue(client);
}

int main()
{
    std::thread producer(produce);
    int number, sum = 0;
    for (int taken = 0; taken < 100;)
        if (queue.try_dequeue(number))
            sum += number, taken++;
    usleep(200000);
    auto *owner = queue.producerListTail.load();
    LAB_ROLE("waiter");
    LAB_WORD("tail", &owner->tailIndex, sizeof owner->tailIndex);
    LAB_READY();
    while (!queue.try_dequeue(number))
        std::this_thread::yield();
    producer.join();
    return sum == 4950 ? 0 : 1;
}
