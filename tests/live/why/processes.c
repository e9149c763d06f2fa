/* SPDX-License-Identifier: MIT */
/* Hangs over several processes, by locks and children. */
#include "hangs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int tid_of_holder;

static int file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        exit(5);
    return fd;
}

static void lock_record(int fd, int command)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    fcntl(fd, command, &whole);
}

/* The first wants the flock of the second, which wants the record lock of the third, which sleeps.
 * */
static void file_locks(const char *folder)
{
    pid_t third = fork();
    if (third == 0) {
        lock_record(file(folder, "records"), F_SETLKW);
        sleep_long();
    }
    settle();
    if (fork() == 0) {
        flock(file(folder, "whole"), LOCK_EX);
        lock_record(file(folder, "records"), F_SETLKW);
    }
    settle();
    truth("timer", third, third);
    flock(file(folder, "whole"), LOCK_EX);
}

/* An open file's lock belongs to no process. */
static void open_file_lock(const char *folder)
{
    pid_t holder = fork();
    if (holder == 0) {
        lock_record(file(folder, "records"), F_OFD_SETLKW);
        raise(SIGSTOP);
    }
    settle();
    truth("stopped", holder, 0);
    lock_record(file(folder, "records"), F_OFD_SETLKW);
}

/* Asks for the record lock again and again, and opens the file for it each time. */
static void asks_file_lock(const char *folder)
{
    pid_t holder = fork();
    if (holder == 0) {
        lock_record(file(folder, "records"), F_SETLKW);
        sleep_long();
    }
    settle();
    truth("timer", holder, holder);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    for (;;) {
        int fd = file(folder, "records");
        if (fcntl(fd, F_SETLK, &whole) == 0)
            exit(6);
        close(fd);
        usleep(400000);
    }
}

/* Asks for a file that only one process may make, and that tells which has. */
static void asks_lock_file(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/made", folder);
    pid_t holder = fork();
    if (holder == 0) {
        dprintf(file(folder, "made"), "%d\n", (int)getpid());
        sleep_long();
    }
    settle();
    truth("timer", holder, holder);
    while (open(path, O_RDWR | O_CREAT | O_EXCL, 0600) < 0)
        usleep(400000);
}

static void child_reads_fifo(const char *folder)
{
    char *path = new_fifo(folder);
    pid_t child = fork();
    if (child == 0)
        read_one(open(path, O_RDWR));
    settle();
    truth("input", child, child);
    waitpid(child, NULL, 0);
}

/* Of two children one goes on working; the other opens a FIFO that nobody writes. */
static void grandchild_opens_fifo(const char *folder)
{
    char *path = new_fifo(folder);
    int announce[2];
    new_pipe(announce);
    if (fork() == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            close(announce[0]);
            close(announce[1]);
            read_one(open(path, O_RDONLY));
        }
        if (write(announce[1], &grandchild, sizeof grandchild) < 0)
            exit(5);
        close(announce[1]);
        waitpid(grandchild, NULL, 0);
    }
    pid_t grandchild;
    if (read(announce[0], &grandchild, sizeof grandchild) < 0)
        exit(5);
    settle();
    truth("input", grandchild, grandchild);
    wait(NULL);
}

static void *hold(void *unused)
{
    pthread_mutex_lock(&lock);
    tid_of_holder = own_tid();
    sleep_long();
    return unused;
}

static void fork_without_holder(const char *folder)
{
    start(hold, NULL);
    pid_t child = fork();
    if (child == 0)
        pthread_mutex_lock(&lock);
    settle();
    truth("ended", child, tid_of_holder);
    waitpid(child, NULL, 0);
}

static pthread_mutex_t *shared_mutex(int robust)
{
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    if (robust)
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        exit(5);
    pthread_mutex_init(page, &kind);
    return page;
}

static void hold_shared(int robust)
{
    pthread_mutex_t *mutex = shared_mutex(robust);
    pid_t holder = fork();
    if (holder == 0) {
        pthread_mutex_lock(mutex);
        raise(SIGSTOP);
    }
    settle();
    truth("stopped", holder, 0);
    pthread_mutex_lock(mutex);
}

static void shared_lock(const char *folder)
{
    hold_shared(0);
}

static void robust_lock(const char *folder)
{
    hold_shared(1);
}

/* The first polls a word of shared memory. Of its two children one would set it after a sleep; the
 * other has the memory, too, and only reads it. */
static void shared_word(const char *folder)
{
    volatile int *word =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (word == MAP_FAILED)
        exit(6);
    pid_t sets = fork();
    if (sets == 0) {
        sleep(100000);
        word[16] = 1;
        exit(0);
    }
    if (fork() == 0) {
        raise(SIGSTOP);
        exit(word[16]);
    }
    settle();
    truth("timer", sets, sets);
    while (!word[16])
        sched_yield();
}

/* It is not known what its code does next. */
static void stopped_sharer(const char *folder)
{
    (void)folder;
    volatile int *word =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (word == MAP_FAILED)
        exit(6);
    void *(*volatile write)(void *, int, size_t) = memset;
    pid_t sets = fork();
    if (sets == 0) {
        raise(SIGSTOP);
        write((void *)word, 1, 4096);
        exit(0);
    }
    settle();
    truth("stopped", sets, sets);
    while (!word[16])
        sched_yield();
}

static int told[2];

static void *tells_its_id(void *unused)
{
    int tid = own_tid();
    if (write(told[1], &tid, sizeof tid) < 0)
        exit(5);
    sleep_long();
    return unused;
}

/* An execve waits until a tracer has asked for the status of a thread that it ended. */
static void execs_beside_a_traced_thread(const char *folder)
{
    char *path = new_fifo(folder);
    int go[2];
    new_pipe(told);
    new_pipe(go);
    pid_t child = fork();
    if (child == 0) {
        start(tells_its_id, NULL);
        read_one(go[0]);
        execl("/bin/true", "true", NULL);
        exit(6);
    }
    pid_t tracer = fork();
    if (tracer == 0) {
        int tid;
        if (read(told[0], &tid, sizeof tid) < 0 || ptrace(PTRACE_SEIZE, tid, 0, 0) != 0 ||
            write(go[1], "", 1) < 0)
            exit(6);
        for (int end = 0; end < 2; end++) {
            close(told[end]);
            close(go[end]);
        }
        read_one(open(path, O_RDWR));
    }
    settle();
    settle();
    truth("input", tracer, tracer);
    waitpid(child, NULL, 0);
}

/* The first waits at a condition that its child would signal, once that has a mutex of both, which
 * another child holds while it reads a FIFO. */
static void shared_condition(const char *folder)
{
    struct { pthread_mutex_t held, own; pthread_cond_t done; int is_done; } *all;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        exit(6);
    pthread_mutexattr_t of_mutex;
    pthread_condattr_t of_condition;
    pthread_mutexattr_init(&of_mutex);
    pthread_condattr_init(&of_condition);
    pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setpshared(&of_condition, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&all->held, &of_mutex);
    pthread_mutex_init(&all->own, &of_mutex);
    pthread_cond_init(&all->done, &of_condition);
    char *path = new_fifo(folder);
    pid_t holder = fork();
    if (holder == 0) {
        pthread_mutex_lock(&all->held);
        read_one(open(path, O_RDWR));
        exit(0);
    }
    settle();
    if (fork() == 0) {
        pthread_mutex_lock(&all->held);
        pthread_mutex_lock(&all->own);
        all->is_done = 1;
        pthread_cond_signal(&all->done);
        pthread_mutex_unlock(&all->own);
        exit(0);
    }
    settle();
    truth("input", holder, holder);
    pthread_mutex_lock(&all->own);
    while (!all->is_done)
        pthread_cond_wait(&all->done, &all->own);
}

/* Both children have the end of the pipe. One would write once it has read; the other, which is
 * stopped, only inherited it. */
static void pipe_of_two_children(const char *folder)
{
    int ends[2];
    new_pipe(ends);
    char *path = new_fifo(folder);
    pid_t writer = fork();
    if (writer == 0) {
        close(ends[0]);
        read_one(open(path, O_RDWR));
        exit(write(ends[1], "", 1) < 0);
    }
    if (fork() == 0) {
        close(ends[0]);
        raise(SIGSTOP);
        exit(0);
    }
    close(ends[1]);
    settle();
    truth("input", writer, writer);
    read_one(ends[0]);
}

/* Both children inherited the end of the pipe, and wait for clients: no end of file comes. */
static void pipe_of_two_servers(const char *folder)
{
    (void)folder;
    int ends[2];
    new_pipe(ends);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr unnamed = {.sa_family = AF_UNIX};
    if (bind(listener, &unnamed, sizeof unnamed.sa_family) != 0 || listen(listener, 2) != 0)
        exit(5);
    for (int child = 0; child < 2; child++)
        if (fork() == 0) {
            close(ends[0]);
            exit(accept(listener, NULL, NULL) < 0);
        }
    close(ends[1]);
    settle();
    truth("input", 0, 0);
    read_one(ends[0]);
}

/* A child is to write the eventfd that its parent made for it, as the shells of containers do. */
static void eventfd_of_a_child(const char *folder)
{
    (void)folder;
    struct pollfd ready = {.fd = eventfd(0, EFD_CLOEXEC), .events = POLLIN};
    pid_t child = fork();
    if (child == 0) {
        sleep(1000);
        uint64_t one = 1;
        exit(write(ready.fd, &one, sizeof one) != sizeof one);
    }
    settle();
    truth("timer", child, child);
    poll(&ready, 1, -1);
}

const struct scenario in_processes[] = {
    {"execs_beside_a_traced_thread", execs_beside_a_traced_thread},
    {"file_locks", file_locks},
    {"open_file_lock", open_file_lock},
    {"asks_file_lock", asks_file_lock},
    {"asks_lock_file", asks_lock_file},
    {"child_reads_fifo", child_reads_fifo},
    {"grandchild_opens_fifo", grandchild_opens_fifo},
    {"fork_without_holder", fork_without_holder},
    {"shared_lock", shared_lock},
    {"robust_lock", robust_lock},
    {"shared_word", shared_word},
    {"stopped_sharer", stopped_sharer},
    {"shared_condition", shared_condition},
    {"pipe_of_two_children", pipe_of_two_children},
    {"pipe_of_two_servers", pipe_of_two_servers},
    {"eventfd_of_a_child", eventfd_of_a_child},
    {NULL, NULL},
};
