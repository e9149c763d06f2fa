/* SPDX-License-Identifier: MIT */
/* Instructions with an operand relative to rip that use rax, rdx, rbx or rcx without naming them.
 * */
#include <stdint.h>
#include <stdio.h>

static int64_t divisor = 7, factor = 3, cell = 5;
static __attribute__((aligned(16))) int64_t pair[2] = {1, 2};
static uint8_t table[256];

int main(void)
{
    for (int i = 0; i < 256; i++)
        table[i] = (uint8_t)(255 - i);
    for (int64_t i = 1; i < 200; i++) {
        int64_t quotient, rest, low, high, old, shifted = i;
        __asm__("cqto; idivq %3"
                : "=a"(quotient), "=&d"(rest)
                : "0"(i * 1001), "m"(divisor)
                : "cc");
        __asm__("imulq %3" : "=a"(low), "=d"(high) : "0"(i << 60), "m"(factor) : "cc");
        __asm__("lock cmpxchgq %2, %1"
                : "=a"(old), "+m"(cell)
                : "r"(i), "0"(cell)
                : "cc", "memory");
        __asm__("lock cmpxchg16b %0" : "+m"(pair), "=a"(low), "=d"(high)
                : "1"(pair[0]), "2"(pair[1]), "b"(i), "c"(-i) : "cc", "memory");
        __asm__("shlq %%cl, %1; addq %1, %0" : "+r"(shifted), "+m"(divisor) : "c"(0) : "cc");
        divisor = 7 + i % 5;
        printf("%ld %ld %ld %ld %ld %ld %ld %ld %d\n", (long)quotient, (long)rest, (long)low,
               (long)high, (long)old, (long)shifted, (long)pair[0], (long)pair[1], table[i]);
    }
    return 0;
}
