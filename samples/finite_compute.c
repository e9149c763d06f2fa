/* SPDX-License-Identifier: MIT */
/* Negative: counts primes. "spin" only means a bound that takes far longer than anybody will wait;
 * every iteration moves on. */
#include <stdio.h>
#include <string.h>

static int is_prime(unsigned long number)
{
    for (unsigned long divisor = 3; divisor * divisor <= number; divisor += 2)
        if (number % divisor == 0)
            return 0;
    return 1;
}

int main(int argc, char **argv)
{
    unsigned long bound = argc > 1 && strcmp(argv[1], "spin") == 0 ? 4000000000ul : 1000000ul;
    unsigned long primes = 1;
    for (unsigned long number = 3; number < bound; number += 2)
        primes += (unsigned long)is_prime(number);
    printf("%lu primes below %lu\n", primes, bound);
    return 0;
}
