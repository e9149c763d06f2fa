/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <truth.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int table[16];
static int look_up(int index);

static void fill(void)
{
    for (int index = 1; index < 16; index++)
        table[index] = look_up(index - 1) + 1;
}

static int __attribute__((noinline)) look_up(int index)
{
    pthread_once(&once, fill);
    return table[index];
}

int main(void)
{
    LAB_ROLE("waiter");
    LAB_READY();
    return look_up(3);
}
