/* SPDX-License-Identifier: MIT */
/* Threads that write, read and update words, for tests of `watch`. Usage: writers WHAT COUNT...;
 * each WHAT is described where it is handled. Prints addresses, then waits for a line on stdin
 * before anything is accessed, so that a watch can be set up. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct worker {
    int state;
    char *note;
};

struct pool {
    long generation;
    struct worker workers[4];
    struct worker *current;
};

volatile uint64_t word64;
volatile uint32_t word32;
volatile uint16_t word16;
volatile uint8_t word8;
volatile int flags[8];
static struct pool the_pool;
struct pool *pool = &the_pool;
__thread volatile int own;

static void wait_for_line(void)
{
    char line[64];
    if (!fgets(line, sizeof line, stdin))
        exit(0);
}

static void announce(void)
{
    printf("pid %d\n", getpid());
    printf("word64 %p\nword32 %p\nword16 %p\nword8 %p\nflags %p\n", (void *)&word64,
           (void *)&word32, (void *)&word16, (void *)&word8, (void *)flags);
    printf("ready 1\n");
    fflush(stdout);
}

static long writes_each;

/* Thread N writes N * 2^32 + 1, 2, .. */
__attribute__((noinline)) static void *planted(void *argument)
{
    uint64_t number = (uintptr_t)argument;
    for (long i = 1; i <= writes_each; i++)
        word64 = number << 32 | (uint64_t)i;
    return NULL;
}

/* planted THREADS WRITES: the threads start after the watch did. */
static void run_planted(int threads)
{
    pthread_t ids[64];
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, planted, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
}

__attribute__((noinline)) static void write_sizes(void)
{
    word8 = 0x11;
    word16 = 0x2222;
    word32 = 0x33333333;
    word64 = 0x4444444444444444;
    word8 = 0x51;
    word16 = 0x6262;
    word32 = 0x73737373;
    word64 = 0x8484848484848484;
}

__attribute__((noinline)) static void update(void)
{
    __atomic_store_n(&word32, 5, __ATOMIC_SEQ_CST);             /* 0 -> 5 */
    __atomic_fetch_add(&word32, 2, __ATOMIC_SEQ_CST);           /* 5 -> 7 */
    word32++;                                                   /* 7 -> 8 */
    uint32_t expected = 9;
    __atomic_compare_exchange_n(&word32, &expected, 1, 0, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST); /* fails: 8 */
    __atomic_compare_exchange_n(&word32, &expected, 20, 0, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST); /* 8 -> 20 */
    __atomic_exchange_n(&word32, 30, __ATOMIC_SEQ_CST);         /* 20 -> 30 */
    __atomic_fetch_or(&word32, 1, __ATOMIC_SEQ_CST);            /* 30 -> 31 */
}

__attribute__((noinline)) static void *spin_until_set(void *unused)
{
    while (word32 == 0)
        __asm__ volatile("pause");
    return unused;
}

__attribute__((noinline)) static void set_flag(uint32_t value)
{
    word32 = value;
}

/* spin MILLISECONDS: a reader spins until the word is set, then; 0: at the next line. */
static void run_spin(unsigned milliseconds)
{
    pthread_t reader;
    pthread_create(&reader, NULL, spin_until_set, NULL);
    if (milliseconds)
        usleep(milliseconds * 1000);
    else
        wait_for_line();
    set_flag(1);
    pthread_join(reader, NULL);
}

/* crowd THREADS: so many readers spin until the word is set, a tenth of a second later. */
static void run_crowd(int threads)
{
    pthread_t ids[64];
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, spin_until_set, NULL);
    usleep(100000);
    set_flag(1);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
}

static void *own_writer(void *argument)
{
    int *ids = argument;
    own = 1;
    ids[0] = (int)syscall(SYS_gettid);
    __atomic_store_n(&ids[1], 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&ids[2], __ATOMIC_SEQ_CST))
        usleep(1000);
    own = 77;
    return NULL;
}

/* own: a thread writes its thread-local variable; so does the main thread, its own. */
static void run_own(void)
{
    static int ids[3];
    pthread_t thread;
    pthread_create(&thread, NULL, own_writer, ids);
    while (!__atomic_load_n(&ids[1], __ATOMIC_SEQ_CST))
        usleep(1000);
    printf("tid %d\n", ids[0]);
    fflush(stdout);
    wait_for_line();
    own = 99;
    __atomic_store_n(&ids[2], 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
}

struct object {
    long before[3];
    volatile int need;
};

__attribute__((noinline)) static void request_display(struct object *object, int value)
{
    object->need = value;
}

/* objects: one instruction writes a field of several heap objects. */
static void run_objects(void)
{
    for (int i = 0; i < 5; i++) {
        struct object *object = calloc(1, sizeof *object);
        request_display(object, i + 1);
        printf("object %p\n", (void *)object);
    }
    fflush(stdout);
}

static void block_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
}

static int go_on[2];

static void *masked_writer(void *unused)
{
    block_signals();
    __atomic_store_n(&go_on[0], 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&go_on[1], __ATOMIC_SEQ_CST))
        usleep(1000);
    word32 = 2;
    return unused;
}

/* masked: the main thread writes with signals blocked since the watch began, another one with
 * signals blocked before. */
static void run_masked(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, masked_writer, NULL);
    while (!__atomic_load_n(&go_on[0], __ATOMIC_SEQ_CST))
        usleep(1000);
    printf("masked 1\n");
    fflush(stdout);
    wait_for_line();
    block_signals();
    word32 = 1;
    __atomic_store_n(&go_on[1], 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
}

/* kernel: the kernel writes the word, in read(2). */
static void run_kernel(void)
{
    int ends[2];
    uint32_t value = 0x1234;
    if (pipe(ends) != 0 || write(ends[1], &value, 4) != 4 || read(ends[0], (void *)&word32, 4) != 4)
        exit(1);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    long first = argc > 2 ? atol(argv[2]) : 0, second = argc > 3 ? atol(argv[3]) : 0;
    the_pool.current = &the_pool.workers[2];
    writes_each = second;
    announce();
    if (strcmp(what, "own") != 0 && strcmp(what, "masked") != 0)
        wait_for_line();
    if (strcmp(what, "own") == 0)
        run_own();
    else if (strcmp(what, "masked") == 0)
        run_masked();
    else if (strcmp(what, "planted") == 0)
        run_planted((int)first);
    else if (strcmp(what, "sizes") == 0)
        write_sizes();
    else if (strcmp(what, "update") == 0)
        update();
    else if (strcmp(what, "spin") == 0)
        run_spin((unsigned)first);
    else if (strcmp(what, "crowd") == 0)
        run_crowd((int)first);
    else if (strcmp(what, "objects") == 0)
        run_objects();
    else if (strcmp(what, "kernel") == 0)
        run_kernel();
    else if (strcmp(what, "pool") == 0)
        pool->current->state = 42;
    else if (strcmp(what, "flags") == 0)
        for (int i = 0; i < 8; i++)
            flags[i] = i + 1;
    printf("done 1\n");
    fflush(stdout);
    wait_for_line();
    return 0;
}
