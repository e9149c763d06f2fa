/* SPDX-License-Identifier: MIT */
/* Hangs within one process. */
#include "hangs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, two = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static volatile int tid_of_holder, done;

static void *hold_and_sleep(void *unused)
{
    pthread_mutex_lock(&one);
    tid_of_holder = own_tid();
    sleep_long();
    return unused;
}

static void *take(void *lock)
{
    pthread_mutex_lock(lock);
    return NULL;
}

/* main joins the worker, which wants the lock of one that sleeps; a third thread does the same for
 * ever. */
static void lock_of_a_sleeper(const char *folder)
{
    start(hold_and_sleep, NULL);
    start(take, &one);
    pthread_t worker = start(take, &one);
    truth("timer", getpid(), tid_of_holder);
    pthread_join(worker, NULL);
}

static void *one_then_two(void *unused)
{
    pthread_mutex_lock(&one);
    usleep(300000);
    pthread_mutex_lock(&two);
    return unused;
}

static void *two_then_one(void *unused)
{
    pthread_mutex_lock(&two);
    usleep(300000);
    pthread_mutex_lock(&one);
    return unused;
}

static void *idle(void *unused)
{
    sleep_long();
    return unused;
}

static void ab_ba(const char *folder)
{
    start(idle, NULL);
    pthread_t first = start(one_then_two, NULL);
    start(two_then_one, NULL);
    usleep(300000);
    truth("deadlock", getpid(), 0);
    pthread_join(first, NULL);
}

static void *wait_for_change(void *unused)
{
    pthread_mutex_lock(&one);
    while (!done)
        pthread_cond_wait(&changed, &one);
    return unused;
}

/* The signal came before the wait, and nobody is left to send another. */
static void lost_wakeup(const char *folder)
{
    pthread_cond_signal(&changed);
    pthread_t worker = start(wait_for_change, NULL);
    truth("deadlock", getpid(), 0);
    pthread_join(worker, NULL);
}

static void *beat(void *unused)
{
    for (;;)
        usleep(50000);
    return unused;
}

static void *wait_for_any_change(void *unused)
{
    tid_of_holder = own_tid();
    pthread_mutex_lock(&one);
    pthread_cond_wait(&changed, &one);
    return unused;
}

/* The same, and the thread asks for nothing: any signal would do. */
static void wakeup_before_the_wait(const char *folder)
{
    (void)folder;
    pthread_cond_signal(&changed);
    start(beat, NULL);
    pthread_t worker = start(wait_for_any_change, NULL);
    truth("lost-wakeup", getpid(), tid_of_holder);
    pthread_join(worker, NULL);
}

static struct job {
    struct job *next;
} *jobs;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;

static void *do_jobs(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&one);
    for (;;) {
        while (jobs == NULL)
            pthread_cond_wait(&more, &one);
        jobs = jobs->next;
        pthread_cond_signal(&changed);
    }
    return NULL;
}

static void make_job(void)
{
    pthread_mutex_lock(&one);
    jobs = calloc(1, sizeof *jobs);
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&one);
}

/* The worker is done with the job before main waits for that, which asks for nothing; then it waits
 * for the next one, which main would make. */
static void job_done_before_the_wait(const char *folder)
{
    (void)folder;
    start(do_jobs, NULL);
    for (;;) {
        make_job();
        settle();
        truth("lost-wakeup", getpid(), getpid());
        pthread_mutex_lock(&one);
        pthread_cond_wait(&changed, &one);
        pthread_mutex_unlock(&one);
    }
}

/* main would signal once the worker has ended, which waits for the signal. */
static void signal_behind_the_join(const char *folder)
{
    (void)folder;
    pthread_t worker = start(wait_for_change, NULL);
    truth("deadlock", getpid(), 0);
    pthread_join(worker, NULL);
    pthread_mutex_lock(&one);
    done = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&one);
}

static void *signal_at_a_word(void *path)
{
    char word[8] = "";
    int fd = open(path, O_RDWR);
    while (strcmp(word, "go now\n") != 0)
        if (read(fd, word, sizeof word - 1) <= 0)
            return NULL;
    pthread_mutex_lock(&one);
    done = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&one);
    return NULL;
}

/* The same, and another thread would signal as soon as it has read a certain word. */
static void signal_behind_the_join_beside_a_reader(const char *folder)
{
    start(signal_at_a_word, new_fifo(folder));
    signal_behind_the_join(folder);
}

/* The heartbeat thread could signal, but it never does. */
static void lost_wakeup_beside_a_heartbeat(const char *folder)
{
    start(beat, NULL);
    pthread_t worker = start(wait_for_change, NULL);
    truth("unknown", 0, 0);
    pthread_join(worker, NULL);
}

static void *wait_again_and_again(void *unused)
{
    static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    pthread_mutex_lock(&own);
    for (;;) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1;
        pthread_cond_timedwait(&never, &own, &until);
    }
    return unused;
}

/* The same, of a thread that waits for a condition of its own, a second at a time. */
static void lost_wakeup_beside_a_limited_wait(const char *folder)
{
    (void)folder;
    start(wait_again_and_again, NULL);
    pthread_t worker = start(wait_for_change, NULL);
    truth("unknown", 0, 0);
    pthread_join(worker, NULL);
}

/* Two threads may signal, and nothing says which one was to. */
static void any_of_two(const char *folder)
{
    start(idle, NULL);
    start(idle, NULL);
    truth("unknown", 0, 0);
    wait_for_change(NULL);
}

static void *read_fifo(void *path)
{
    tid_of_holder = own_tid();
    int fd = open(path, O_RDWR);
    read_one(fd);
    done = 1;
    return NULL;
}

/* A pool of two waits for work that the reader of a FIFO would hand out. */
static void starved_pool(const char *folder)
{
    char *path = new_fifo(folder);
    start(read_fifo, path);
    pthread_t first = start(wait_for_change, NULL);
    start(wait_for_change, NULL);
    truth("input", getpid(), tid_of_holder);
    pthread_join(first, NULL);
}

static void *poll_done(void *unused)
{
    while (!done)
        ;
    return unused;
}

static void polled_flag(const char *folder)
{
    char *path = new_fifo(folder);
    start(read_fifo, path);
    pthread_t worker = start(poll_done, NULL);
    truth("input", getpid(), tid_of_holder);
    pthread_join(worker, NULL);
}

static void *write_late(void *unused)
{
    tid_of_holder = own_tid();
    usleep(500000);
    done = 1;
    return unused;
}

/* Its writer is held by a debugger. */
static void held_writer(const char *folder)
{
    (void)folder;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    start(write_late, NULL);
    pid_t held = tid_of_holder;
    if (fork() == 0) {
        ptrace(PTRACE_SEIZE, held, NULL, NULL);
        ptrace(PTRACE_INTERRUPT, held, NULL, NULL);
        sleep_long();
    }
    usleep(800000);
    pthread_t worker = start(poll_done, NULL);
    truth("stopped", getpid(), held);
    pthread_join(worker, NULL);
}

static void *write_table(void *unused)
{
    pthread_rwlock_wrlock(&table);
    tid_of_holder = own_tid();
    sleep_long();
    return unused;
}

static void read_table(const char *folder)
{
    start(idle, NULL);
    start(write_table, NULL);
    truth("timer", getpid(), tid_of_holder);
    pthread_rwlock_rdlock(&table);
}

static void pin(int processor, int policy)
{
    cpu_set_t set;
    struct sched_param none = {0};
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof set, &set);
    sched_setscheduler(0, policy, &none);
}

static void *compute_with_lock(void *unused)
{
    pthread_mutex_lock(&one);
    pin(0, SCHED_IDLE);
    for (volatile unsigned long count = 0; count < 1ul << 60; count++)
        ;
    return unused;
}

static void *hog(void *unused)
{
    tid_of_holder = own_tid();
    pin(0, SCHED_OTHER);
    for (volatile unsigned long count = 0;; count++)
        ;
    return unused;
}

/* The lock's owner is ready to run, and another has its processor. */
static void starved(const char *folder)
{
    start(hog, NULL);
    start(compute_with_lock, NULL);
    truth("computes", 0, 0);
    pthread_mutex_lock(&one);
}

static void unarmed_timer(const char *folder)
{
    start(idle, NULL);
    struct pollfd wait = {.fd = timerfd_create(CLOCK_MONOTONIC, 0), .events = POLLIN};
    truth("timer", getpid(), getpid());
    poll(&wait, 1, -1);
}

static void blocked_signal(const char *folder)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    kill(getpid(), SIGUSR1);
    truth("input", getpid(), getpid());
    pause();
}

static void *end_with_lock(void *unused)
{
    tid_of_holder = own_tid();
    pthread_mutex_lock(&one);
    return unused;
}

static void owner_ended(const char *folder)
{
    start(idle, NULL);
    pthread_join(start(end_with_lock, NULL), NULL);
    truth("ended", getpid(), tid_of_holder);
    pthread_mutex_lock(&one);
}

__attribute__((noinline)) static int add_rows(int rows)
{
    pthread_mutex_lock(&one);
    if (rows < 0)
        return -1; /* it leaves the lock locked */
    done += rows;
    pthread_mutex_unlock(&one);
    return 0;
}

static void *add_each(void *unused)
{
    tid_of_holder = own_tid();
    if (add_rows(1) == 0 && add_rows(-1) < 0)
        pause();
    return unused;
}

static void *add_again(void *unused)
{
    for (;;) {
        pause();
        add_rows(1);
    }
    return unused;
}

/* A lock was left locked by a function that is over; who called that waits for a signal by now.
 * Another thread takes the lock and gives it back whenever a signal comes. */
static void left_locked(const char *folder)
{
    start(add_each, NULL);
    start(add_again, NULL);
    truth("left-locked", getpid(), tid_of_holder);
    add_rows(1);
}

static void *signals_what_is_typed(void *unused)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(master);
    unlockpt(master);
    tid_of_holder = own_tid();
    read_one(open(ptsname(master), O_RDWR | O_NOCTTY));
    kill(getpid(), SIGUSR1);
    return unused;
}

static void signal_of_a_thread(const char *folder)
{
    (void)folder;
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    start(signals_what_is_typed, NULL);
    truth("input", getpid(), tid_of_holder);
    int number;
    sigwait(&mask, &number);
}

const struct scenario in_threads[] = {
    {"lock_of_a_sleeper", lock_of_a_sleeper},
    {"ab_ba", ab_ba},
    {"lost_wakeup", lost_wakeup},
    {"wakeup_before_the_wait", wakeup_before_the_wait},
    {"job_done_before_the_wait", job_done_before_the_wait},
    {"signal_behind_the_join", signal_behind_the_join},
    {"signal_behind_the_join_beside_a_reader", signal_behind_the_join_beside_a_reader},
    {"lost_wakeup_beside_a_heartbeat", lost_wakeup_beside_a_heartbeat},
    {"lost_wakeup_beside_a_limited_wait", lost_wakeup_beside_a_limited_wait},
    {"any_of_two", any_of_two},
    {"starved_pool", starved_pool},
    {"polled_flag", polled_flag},
    {"held_writer", held_writer},
    {"read_table", read_table},
    {"starved", starved},
    {"unarmed_timer", unarmed_timer},
    {"blocked_signal", blocked_signal},
    {"owner_ended", owner_ended},
    {"left_locked", left_locked},
    {"signal_of_a_thread", signal_of_a_thread},
    {NULL, NULL},
};
