// A thread spins until the node that it queued behind the last gets its turn; the owner reads a silent input.
#include <atomic>
#include <memory>
#include <thread>
#include "truth.h"
struct Node { std::atomic<Node *> next{nullptr}; std::atomic<bool> go{false}; };
class Lock { std::atomic<Node *> tail{nullptr};
public: void lock(Node &me) { me.next = nullptr; me.go = false; Node *before = tail.exchange(&me); if (before) { before->next = &me; while (!me.go.load(std::memory_order_acquire)) __builtin_ia32_pause(); } }
    void unlock(Node &me) { Node *next = me.next; if (!next) { Node *self = &me; if (tail.compare_exchange_strong(self, nullptr)) return; while (!(next = me.next)) {} } next->go = true; } };
Lock lock_; std::atomic<int> holds{0};
int main() { std::thread owner([] { auto me = std::make_unique<Node>(); lock_.lock(*me); holds = 1; char b; LAB_ROLE("owner"); if (read(0, &b, 1) != 1) return; lock_.unlock(*me); });
    while (!holds) std::this_thread::yield(); auto me = std::make_unique<Node>(); LAB_ROLE("waiter"); LAB_WORD("go", &me->go, 1); LAB_READY(); lock_.lock(*me); owner.join(); }
