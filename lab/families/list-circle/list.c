/* SPDX-License-Identifier: MIT */
#include <truth.h>

struct order {
    struct order *next;
    long amount;
};
static struct order *first;

static void __attribute__((noinline)) add(struct order *order)
{
    order->next = first;
    first = order;
}

static long __attribute__((noinline)) total_of(const struct order *order)
{
    long total = 0;
    for (; order; order = order->next)
        total += order->amount;
    return total;
}

int main(void)
{
    struct order *orders = calloc(8, sizeof *orders);
    for (int number = 0; number < 8; number++) {
        orders[number].amount = number;
        add(&orders[number]);
    }
    add(&orders[5]); /* a retry of the same order */
    LAB_ROLE("waiter");
    LAB_READY();
    long total = total_of(first);
    sleep(5);
    return total == 28;
}
