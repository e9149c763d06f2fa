/* SPDX-License-Identifier: MIT */
#include <truth.h>

static unsigned char rows[256];

static unsigned long __attribute__((noinline)) sum_down(unsigned char last)
{
    unsigned long sum = 0;
    for (unsigned char row = last; row >= 0; row--) {
        sum += rows[row];
        rows[row] = (unsigned char)sum;
    }
    return sum;
}

int main(int count, char **words)
{
    (void)words;
    LAB_ROLE("waiter");
    LAB_READY();
    return (int)sum_down((unsigned char)(200 + count));
}
