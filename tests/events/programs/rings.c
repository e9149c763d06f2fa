/* SPDX-License-Identifier: MIT */
/* Waits in io_uring_enter for what another thread, a worker of the kernel or nobody does, ROUNDS
 * times. Prints `NAME TID` for each role.
 *
 * pipe: it reads from a pipe that another thread writes to. worker: it has a call made by a thread
 *   of the kernel, which waits there. other: one thread submits, and another waits for what comes
 *   of it. By raw system calls. Exits with 77 where the kernel forbids io_uring. */
#include "asleep.h"
#include <errno.h>
#include <linux/io_uring.h>
#include <sys/mman.h>

enum { ROUNDS = 10, ENTRIES = 4, FORBIDDEN = 77 };

static int ring;
static unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail;
static struct io_uring_sqe *sqes;
static int pipe_ends[2];
static pid_t waiter_tid;
static uint64_t number;
static pthread_barrier_t all_taken; /* what a thread has submitted is cancelled when it ends */

static void *map(size_t bytes, uint64_t offset)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, (off_t)offset);
    if (at == MAP_FAILED)
        abort();
    return at;
}

static void set_up(void)
{
    struct io_uring_params made;
    memset(&made, 0, sizeof made);
    ring = syscall(SYS_io_uring_setup, ENTRIES, &made);
    if (ring < 0 && (errno == EPERM || errno == ENOSYS)) {
        perror("io_uring_setup");
        exit(FORBIDDEN);
    }
    if (ring < 0)
        abort();
    char *sq = map(made.sq_off.array + made.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    char *cq =
        map(made.cq_off.cqes + made.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    sqes = map(made.sq_entries * sizeof *sqes, IORING_OFF_SQES);
    sq_tail = (unsigned *)(sq + made.sq_off.tail);
    sq_mask = (unsigned *)(sq + made.sq_off.ring_mask);
    sq_array = (unsigned *)(sq + made.sq_off.array);
    cq_head = (unsigned *)(cq + made.cq_off.head);
    cq_tail = (unsigned *)(cq + made.cq_off.tail);
}

/* A read from the pipe; `flags`: of the request. */
static void prepare(unsigned flags)
{
    unsigned place = *sq_tail & *sq_mask;
    memset(&sqes[place], 0, sizeof sqes[place]);
    sqes[place].opcode = IORING_OP_READ;
    sqes[place].flags = flags;
    sqes[place].fd = pipe_ends[0];
    sqes[place].addr = (uint64_t)(uintptr_t)&number;
    sqes[place].len = sizeof number;
    sq_array[place] = place;
    __atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
}

static void enter(unsigned submit, unsigned wait_for)
{
    while (syscall(SYS_io_uring_enter, ring, submit, wait_for,
                   wait_for ? IORING_ENTER_GETEVENTS : 0, NULL, 0) < 0)
        if (errno != EINTR)
            abort();
}

/* Waits for one completion, and takes it. */
static void take(void)
{
    while (__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == *cq_head)
        enter(0, 1);
    __atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
}

static void write_one(void)
{
    uint64_t one = 1;
    until_sleeping(waiter_tid, SYS_io_uring_enter);
    if (write(pipe_ends[1], &one, sizeof one) != sizeof one)
        abort();
}

static void *write_all(void *unused)
{
    tell("writer");
    for (int i = 0; i < ROUNDS; i++)
        write_one();
    pthread_barrier_wait(&all_taken);
    return unused;
}

/* Submits while the main thread waits, and writes to the pipe itself. */
static void *submit_all(void *unused)
{
    tell("submitter");
    for (int i = 0; i < ROUNDS; i++) {
        until_sleeping(waiter_tid, SYS_io_uring_enter);
        prepare(IOSQE_ASYNC);
        enter(1, 0);
        write_one();
    }
    pthread_barrier_wait(&all_taken);
    return unused;
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    int is_other = !strcmp(mode, "other");
    pthread_t thread;
    waiter_tid = getpid();
    set_up();
    if (pipe(pipe_ends))
        abort();
    tell("waiter");
    if (pthread_barrier_init(&all_taken, NULL, 2) ||
        pthread_create(&thread, NULL, is_other ? submit_all : write_all, NULL))
        abort();
    for (int i = 0; i < ROUNDS; i++) {
        if (!is_other) {
            prepare(strcmp(mode, "worker") ? 0 : IOSQE_ASYNC);
            enter(1, 0);
        }
        take();
    }
    pthread_barrier_wait(&all_taken);
    pthread_join(thread, NULL);
    return 0;
}
