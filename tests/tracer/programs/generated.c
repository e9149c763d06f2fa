/* SPDX-License-Identifier: MIT */
/* What programs that generate code do; argv[1] chooses. Prints "ok". */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { ROUNDS = 30, REGISTERS = 12 };

/* In the order of EACH. */
uint64_t before[REGISTERS], after[REGISTERS], words[4];

#define EACH(OF) \
    OF(rax, 0) OF(rbx, 1) OF(rcx, 2) OF(rdx, 3) OF(rsi, 4) OF(r8, 5) OF(r9, 6) OF(r10, 7) \
    OF(r11, 8) OF(r12, 9) OF(r13, 10) OF(r14, 11)
#define SET(name, index) "mov before+8*" #index "(%%rip), %%" #name "\n"
#define GET(name, index) "mov %%" #name ", after+8*" #index "(%%rip)\n"

/* Writes `value` into the code at `code`, amid loads, with all registers known. */
static void write_code(uint8_t *code, uint8_t value)
{
    before[0] = value;
    __asm__ volatile(EACH(SET) "jmp 1f\n"
                               "1: mov words(%%rip), %%r15\n"
                               "mov %%r15, words+8(%%rip)\n"
                               "mov %%al, 1(%%rdi)\n"
                               "mov words+16(%%rip), %%r15\n"
                               "jmp 2f\n"
                               "2:\n" EACH(GET)
                     :
                     : "D"(code)
                     : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "r13",
                       "r14", "r15", "memory");
}

/* Code that runs is written to again and again: it does what was written last, and the writer's
 * registers stay. */
static int rewritten(void)
{
    static const uint8_t mov_eax_0_ret[] = {0xb8, 0, 0, 0, 0, 0xc3};
    uint8_t *code =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return 0;
    memcpy(code, mov_eax_0_ret, sizeof mov_eax_0_ret);
    int (*answer)(void) = (int (*)(void))(uintptr_t)code;
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 1; i < REGISTERS; i++)
            before[i] = (uint64_t)(round * REGISTERS + i) * UINT64_C(0x123456789);
        if (answer() != round - 1)
            return 0;
        write_code(code, (uint8_t)round);
        if (memcmp(before, after, sizeof after) != 0)
            return 0;
    }
    return answer() == ROUNDS;
}

#define FLAGS(operation) \
    __asm__ volatile("lea -128(%%rsp), %%rsp\npushf\n" operation \
                     "\npopf\nlea 128(%%rsp), %%rsp" ::: "memory", "cc")

/* HotSpot looks whether the processor can check alignment, and for a while it does. */
static int aligned(void)
{
    uint32_t sum = 0;
    FLAGS("orl $0x40000, (%%rsp)");
    for (uint32_t i = 0; i < 1000; i++) {
        sum += i % 3 == 0 ? i : 1;
        __asm__ volatile("" : "+r"(sum));
    }
    FLAGS("andl $~0x40000, (%%rsp)");
    return sum == 167499;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int ok = strcmp(what, "rewritten") == 0 ? rewritten()
             : strcmp(what, "aligned") == 0 ? aligned()
                                            : 0;
    printf(ok ? "ok\n" : "wrong\n");
    return ok ? 0 : 1;
}
