// SPDX-License-Identifier: MIT
constexpr unsigned long collatz(unsigned long last)
{
    unsigned long longest = 0;
    for (unsigned long start = 1; start < last; start++) {
        unsigned long steps = 0;
        for (unsigned long number = start; number != 1; steps++)
            number = number % 2 ? 3 * number + 1 : number / 2;
        if (steps > longest)
            longest = steps;
    }
    return longest;
}

static_assert(collatz(1000000) == 524);
int main() { return collatz(3); }
