/* SPDX-License-Identifier: MIT */
/* Waits whose owner only its own code tells: conditions, semaphores, channels of the process. Idle
 * threads stand beside it. */
#include "hangs.h"

#include <poll.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static sem_t items;
static volatile int count, tid_of_owner, ends[2];

static void *rest(void *unused)
{
    sleep_long();
    return unused;
}

static void *beat(void *unused)
{
    for (;;)
        usleep(50000);
    return unused;
}

static void *wait_for_another(void *unused)
{
    static pthread_cond_t other = PTHREAD_COND_INITIALIZER;
    static pthread_mutex_t its = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&its);
    for (;;)
        pthread_cond_wait(&other, &its);
    return unused;
}

static void bystanders(void)
{
    start(rest, NULL);
    start(beat, NULL);
    start(wait_for_another, NULL);
}

static void *fill(void *path)
{
    char byte;
    tid_of_owner = own_tid();
    int fd = open(path, O_RDWR);
    while (read(fd, &byte, 1) == 1) {
        pthread_mutex_lock(&lock);
        count++;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* main waits for a condition that the reader of a FIFO signals. */
static void condition_of_a_reader(const char *folder)
{
    bystanders();
    start(fill, new_fifo(folder));
    truth("input", getpid(), tid_of_owner);
    pthread_mutex_lock(&lock);
    while (count == 0)
        pthread_cond_wait(&filled, &lock);
}

static void *post_when_told(void *unused)
{
    uint64_t told;
    struct pollfd asked = {ends[0], POLLIN, 0};
    tid_of_owner = own_tid();
    while (poll(&asked, 1, -1) == 1 && read(ends[0], &told, sizeof told) == sizeof told)
        sem_post(&items);
    return unused;
}

/* main waits for a semaphore; the thread that posts it polls an eventfd that no thread writes. */
static void semaphore_of_a_poller(const char *folder)
{
    sem_init(&items, 0, 0);
    ends[0] = eventfd(0, 0);
    bystanders();
    start(post_when_told, NULL);
    truth("unknown", getpid(), tid_of_owner);
    sem_wait(&items);
}

static void *answer(void *unused)
{
    char byte;
    read_one(ends[1]);
    return write(ends[1], &byte, 1) < 0 ? unused : NULL;
}

static void *write_when_asked(void *path)
{
    char byte = 0;
    tid_of_owner = own_tid();
    int fd = open(path, O_RDWR);
    if (read(fd, &byte, 1) == 1 && write(ends[1], &byte, 1) < 0)
        exit(4);
    return NULL;
}

/* main reads a pair of sockets that its process has alone. Of the others one would write there: it
 * reads a FIFO. */
static void pair_of_a_reader(const char *folder)
{
    int both[2];
    new_pair(both);
    ends[0] = both[0], ends[1] = both[1];
    bystanders();
    start(write_when_asked, new_fifo(folder));
    truth("input", getpid(), tid_of_owner);
    read_one(ends[0]);
}

/* main and another thread wait for each other's message: a circle. */
static void pair_of_two(const char *folder)
{
    int both[2];
    new_pair(both);
    ends[0] = both[0], ends[1] = both[1];
    bystanders();
    start(answer, NULL);
    truth("deadlock", getpid(), 0);
    read_one(ends[0]);
    if (write(ends[0], "", 1) < 0)
        exit(4);
}

/* main waits for a semaphore that processes share. One child posts it once it has read a FIFO; the
 * other has the memory, too, and sleeps. */
static void semaphore_of_a_process(const char *folder)
{
    sem_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *path = new_fifo(folder);
    if (shared == MAP_FAILED || sem_init(shared, 1, 0) != 0)
        exit(6);
    pid_t posts = fork();
    if (posts == 0) {
        read_one(open(path, O_RDWR));
        sem_post(shared);
        exit(0);
    }
    if (fork() == 0)
        sleep_long();
    settle();
    truth("input", posts, posts);
    sem_wait(shared);
}

static void post(int number)
{
    (void)number;
    sem_post(&items);
}

/* Only the handler of a signal posts what main waits for. */
static void semaphore_of_a_handler(const char *folder)
{
    (void)folder;
    sem_init(&items, 0, 0);
    signal(SIGUSR1, post);
    truth("unknown", 0, 0);
    sem_wait(&items);
}

/* That the wait is limited is no cause, and the other thread waits for something else. */
static void limited_condition(const char *folder)
{
    (void)folder;
    start(wait_for_another, NULL);
    truth("unknown", 0, 0);
    pthread_mutex_lock(&lock);
    struct timespec end = {time(NULL) + 100000, 0};
    while (count == 0)
        pthread_cond_timedwait(&filled, &lock, &end);
}

static void *read_with_lock(void *unused)
{
    settle();
    pthread_mutex_lock(&lock);
    read_one(ends[0]);
    return unused;
}

/* main writes into a full pipe whose reader waits for the lock that main has. A child inherited the
 * pipe, and sleeps. */
static void pipe_that_a_child_has(const char *folder)
{
    (void)folder;
    int both[2];
    new_pipe(both);
    ends[0] = both[0], ends[1] = both[1];
    if (fork() == 0)
        sleep_long();
    start(rest, NULL);
    pthread_mutex_lock(&lock);
    start(read_with_lock, NULL);
    truth("deadlock", getpid(), 0);
    while (write(ends[1], "", 1) == 1)
        ;
}

static pthread_cond_t asked = PTHREAD_COND_INITIALIZER, answered = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t of_both = PTHREAD_MUTEX_INITIALIZER;
static int questions, answers;

static void *brings_answer(void *unused)
{
    pthread_mutex_lock(&of_both);
    while (questions == 0)
        pthread_cond_wait(&asked, &of_both);
    questions--;
    answers++;
    pthread_cond_signal(&answered);
    pthread_mutex_unlock(&of_both);
    return unused;
}

static void *brings_question(void *unused)
{
    pthread_mutex_lock(&of_both);
    while (answers == 0)
        pthread_cond_wait(&answered, &of_both);
    questions++;
    pthread_cond_signal(&asked);
    pthread_mutex_unlock(&of_both);
    return unused;
}

/* Each of two threads would wake the other, once it finds what the other is to bring. */
static void conditions_that_do_not_hold(const char *folder)
{
    start(brings_answer, NULL);
    pthread_t other = start(brings_question, NULL);
    truth("deadlock", getpid(), 0);
    pthread_join(other, NULL);
}

const struct scenario by_owners[] = {
    {"semaphore_of_a_process", semaphore_of_a_process},
    {"semaphore_of_a_handler", semaphore_of_a_handler},
    {"limited_condition", limited_condition},
    {"pipe_that_a_child_has", pipe_that_a_child_has},
    {"condition_of_a_reader", condition_of_a_reader},
    {"semaphore_of_a_poller", semaphore_of_a_poller},
    {"pair_of_a_reader", pair_of_a_reader},
    {"pair_of_two", pair_of_two},
    {"conditions_that_do_not_hold", conditions_that_do_not_hold},
    {NULL, NULL},
};
