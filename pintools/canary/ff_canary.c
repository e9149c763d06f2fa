/* SPDX-License-Identifier: MIT */
/* Writes what a program sees of itself and of its registers to the file argv[1].
 *
 * flagfinder runs it untraced and traced and compares the two files: a tracer that loses
 * registers (DynamoRIO 11.90 does on AVX-512 machines) shows here and not in the user's
 * program. Prints no addresses and no times. Exit status 0 unless the file can't be written. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h> /* program_invocation_short_name */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FF_ROUNDS 2000

extern char **environ;

static unsigned signals_seen;
static char text[4096];

/* Uses the widest string functions that libc has, so that a handler or another thread overwrites
 * what the registers of the interrupted code must keep. */
static uint64_t use_strings(unsigned salt)
{
    char buffer[1024];
    uint64_t hash = salt;
    for (unsigned length = 1; length < 900; length += 37) {
        memset(buffer, 'a' + (int)((length + salt) % 23), length);
        buffer[length] = '\0';
        hash = hash * 31 + strlen(buffer);
        hash = hash * 31 + (uint64_t)(strchr(buffer, '\0') - buffer);
        hash = hash * 31 + (memcmp(buffer, text, length) != 0);
        hash = hash * 31 + (memchr(buffer, 'z', length) != NULL);
    }
    return hash;
}

static void on_signal(int number)
{
    (void)number;
    use_strings(__atomic_add_fetch(&signals_seen, 1, __ATOMIC_RELAXED));
}

static uint64_t hash_bytes(const void *data, size_t size)
{
    const unsigned char *byte = data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* What runs between loading the registers and looking at them: many blocks, direct and
 * indirect calls, and one signal to this thread. Touches general registers only. */
__asm__(".text\n"
        "ff_canary_wander:\n"
        "    mov $2000, %ecx\n"
        "1:  test $1, %ecx\n"
        "    jz 2f\n"
        "    call 4f\n"
        "    jmp 3f\n"
        "2:  lea 4f(%rip), %rax\n"
        "    call *%rax\n"
        "3:  dec %ecx\n"
        "    jnz 1b\n"
        "    mov $39, %eax\n" /* getpid */
        "    syscall\n"
        "    mov %eax, %r8d\n"
        "    mov $186, %eax\n" /* gettid */
        "    syscall\n"
        "    mov %r8d, %edi\n"
        "    mov %eax, %esi\n"
        "    mov $10, %edx\n"  /* SIGUSR1 */
        "    mov $234, %eax\n" /* tgkill */
        "    syscall\n"
        "    ret\n"
        "4:  ret\n");

#define FF_CLOBBERS "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r11", "memory", "cc"
/* The asm calls, so it must leave the red zone alone and keep the stack aligned. */
#define FF_WANDER                                                                                  \
    "mov %%rsp, %%rbx\n sub $256, %%rsp\n and $-64, %%rsp\n call ff_canary_wander\n mov %%rbx, "   \
    "%%rsp\n"

__attribute__((noinline)) static uint64_t keep_xmm(const unsigned char *pattern)
{
    unsigned char seen[16 * 16];
#define FF_LOAD(n) "movdqu " #n "*16(%0), %%xmm" #n "\n"
#define FF_STORE(n) "movdqu %%xmm" #n ", " #n "*16(%1)\n"
#define FF_ALL(X)                                                                                  \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
    __asm__ volatile(FF_ALL(FF_LOAD) FF_WANDER FF_ALL(FF_STORE)
                     :
                     : "r"(pattern), "r"((unsigned char *)seen)
                     : FF_CLOBBERS, "rbx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
                       "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15");
#undef FF_LOAD
#undef FF_STORE
    return hash_bytes(seen, sizeof seen);
}

__attribute__((noinline, target("avx"))) static uint64_t keep_ymm(const unsigned char *pattern)
{
    unsigned char seen[16 * 32];
#define FF_LOAD(n) "vmovdqu " #n "*32(%0), %%ymm" #n "\n"
#define FF_STORE(n) "vmovdqu %%ymm" #n ", " #n "*32(%1)\n"
    __asm__ volatile(FF_ALL(FF_LOAD) FF_WANDER FF_ALL(FF_STORE) "vzeroupper\n"
                     :
                     : "r"(pattern), "r"((unsigned char *)seen)
                     : FF_CLOBBERS, "rbx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
                       "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15");
#undef FF_LOAD
#undef FF_STORE
    return hash_bytes(seen, sizeof seen);
}

/* The registers that only AVX-512 has, loaded at their full and at their narrow width. */
__attribute__((noinline, target("avx512f,avx512vl,avx512bw"))) static uint64_t
keep_zmm(const unsigned char *pattern)
{
    unsigned char seen[16 * 64];
    uint64_t masks[8] = {0};
#define FF_HIGH(X)                                                                                 \
    X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
#define FF_MASKS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define FF_LOAD(n) "vmovdqu64 (" #n "-16)*64(%0), %%zmm" #n "\n"
#define FF_STORE(n) "vmovdqu64 %%zmm" #n ", (" #n "-16)*64(%1)\n"
#define FF_LOAD_MASK(n) "kmovq " #n "*8(%0), %%k" #n "\n"
#define FF_STORE_MASK(n) "kmovq %%k" #n ", " #n "*8(%2)\n"
    __asm__ volatile(FF_HIGH(FF_LOAD) FF_MASKS(FF_LOAD_MASK) FF_WANDER FF_HIGH(FF_STORE)
                         FF_MASKS(FF_STORE_MASK) "vzeroupper\n"
                     :
                     : "r"(pattern), "r"((unsigned char *)seen), "r"((uint64_t *)masks)
                     : FF_CLOBBERS, "rbx", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21",
                       "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29",
                       "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7");
    return hash_bytes(seen, sizeof seen) ^ hash_bytes(masks, sizeof masks);
#undef FF_LOAD
#undef FF_STORE
}

/* The narrow form alone: what DynamoRIO 11.90 overlooks. */
__attribute__((noinline, target("avx512f,avx512vl"))) static uint64_t
keep_high_xmm(const unsigned char *pattern)
{
    unsigned char seen[16 * 16];
#define FF_LOAD(n) "vmovdqu64 (" #n "-16)*16(%0), %%xmm" #n "\n"
#define FF_STORE(n) "vmovdqu64 %%xmm" #n ", (" #n "-16)*16(%1)\n"
    __asm__ volatile(FF_HIGH(FF_LOAD) FF_WANDER FF_HIGH(FF_STORE)
                     :
                     : "r"(pattern), "r"((unsigned char *)seen)
                     : FF_CLOBBERS, "rbx", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21",
                       "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29",
                       "xmm30", "xmm31");
    return hash_bytes(seen, sizeof seen);
}

struct ff_findings {
    uint64_t strings, xmm, ymm, high_xmm, zmm;
    long double x87;
};

/* Whether the processor has vectors of that kind (a bit of leaf 7, 0: AVX), and the kernel keeps
 * their registers. Not every compiler's library has what __builtin_cpu_supports asks. */
static int has(unsigned kind, unsigned registers)
{
    unsigned a, b, c, d, kept, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX))
        return 0;
    __asm__("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
    if ((kept & registers) != registers)
        return 0;
    return kind == 0 || (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & kind));
}

enum { FF_YMM = 0x06, FF_ZMM = 0xe6 }; /* of XCR0 */

static void *look(void *argument)
{
    struct ff_findings *found = argument;
    unsigned char pattern[16 * 64];
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (unsigned char)(i * 167 + 13);
    /* The narrow high registers first: nothing has used wide state in this thread yet. */
    if (has(bit_AVX512VL, FF_ZMM))
        found->high_xmm = keep_high_xmm(pattern);
    found->xmm = keep_xmm(pattern);
    if (has(0, FF_YMM))
        found->ymm = keep_ymm(pattern);
    if (has(bit_AVX512BW, FF_ZMM))
        found->zmm = keep_zmm(pattern);
    for (unsigned round = 0; round < FF_ROUNDS; round++) {
        found->strings = found->strings * 33 + use_strings(round);
        found->x87 = found->x87 * 0.75L + (long double)round / 3.0L;
    }
    return NULL;
}

static void report(FILE *out, const char *who, const struct ff_findings *found)
{
    fprintf(out, "%s strings %016llx\n", who, (unsigned long long)found->strings);
    fprintf(out, "%s xmm0-15 %016llx\n", who, (unsigned long long)found->xmm);
    fprintf(out, "%s ymm0-15 %016llx\n", who, (unsigned long long)found->ymm);
    fprintf(out, "%s xmm16-31 %016llx\n", who, (unsigned long long)found->high_xmm);
    fprintf(out, "%s zmm16-31 and masks %016llx\n", who, (unsigned long long)found->zmm);
    fprintf(out, "%s x87 %.15Lf\n", who, found->x87);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    FILE *out = fopen(argv[1], "w");
    if (out == NULL) {
        perror(argv[1]);
        return 1;
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);

    const char *name = strrchr(argv[0], '/');
    fprintf(out, "short name is argv[0]'s %d\n",
            strcmp(program_invocation_short_name, name ? name + 1 : argv[0]));
    uint64_t environment = 0;
    for (char **entry = environ; *entry != NULL; entry++)
        environment = environment * 31 + hash_bytes(*entry, strlen(*entry));
    fprintf(out, "environment %016llx\n", (unsigned long long)environment);

    struct ff_findings first = {0}, second = {0};
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, look, &second);
    look(&first);
    if (failed == 0)
        pthread_join(thread, NULL);
    report(out, "first thread", &first);
    report(out, "second thread", &second);
    fprintf(out, "second thread started %d\n", failed == 0);
    fprintf(out, "signals %u\n", signals_seen);
    return fclose(out) == 0 ? 0 : 1;
}
