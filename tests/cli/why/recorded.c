/* SPDX-License-Identifier: MIT */
/* Hangs with a planted cause, each with a good run: `recorded SCENARIO SETTINGS FIFO WORD`. The
 * file SETTINGS holds a number and WORD is one; 2 is the good one. The FIFO has a byte in it in the
 * good run. The thread that is to blame says so on stdout: `BLAMED tid`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int done, halfway;
static volatile int mode;
static const char *settings, *fifo, *word;
static int channel[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static int jobs;

static void blamed(void)
{
    printf("BLAMED %d\n", (int)syscall(SYS_gettid));
    fflush(stdout);
}

static void wait_for(volatile int *flag)
{
    while (!*flag)
        sched_yield();
}

static void read_settings(void)
{
    char text[16] = "";
    int fd = open(settings, O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) < 0)
        exit(3);
    close(fd);
    mode = atoi(text);
}

static pthread_t start(void *(*run)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL) != 0)
        exit(4);
    return thread;
}

static void *sets_if_configured(void *unused)
{
    blamed();
    if (mode == 2)
        done = 1;
    for (;;)
        pause();
    return unused;
}

/* The worker reads a setting and goes the wrong way. */
static void wrong_setting(void)
{
    read_settings();
    start(sets_if_configured);
    wait_for(&done);
}

static void *opens_its_file(void *unused)
{
    int fd;
    blamed();
    fd = open(mode == 2 ? settings : "/nonexistent/table", O_RDONLY);
    if (fd < 0)
        return unused;
    close(fd);
    done = 1;
    return unused;
}

/* The worker ends on an error. */
static void ended_on_an_error(void)
{
    read_settings();
    start(opens_its_file);
    wait_for(&done);
}

static void *just_sets(void *unused)
{
    done = 1;
    return unused;
}

/* The worker is never started. */
static void never_started(void)
{
    blamed();
    read_settings();
    if (mode > 1)
        start(just_sets);
    wait_for(&done);
}

static void *takes_a_job(void *unused)
{
    pthread_mutex_lock(&lock);
    while (jobs == 0)
        pthread_cond_wait(&arrived, &lock);
    jobs--;
    pthread_mutex_unlock(&lock);
    done = 1;
    return unused;
}

static void *hands_a_job_over(void *unused)
{
    blamed();
    usleep(200000);
    if (mode == 2) {
        pthread_mutex_lock(&lock);
        jobs++;
        pthread_cond_signal(&arrived);
        pthread_mutex_unlock(&lock);
    }
    for (;;)
        pause();
    return unused;
}

/* The worker waits for a job that another thread never hands over. */
static void job_never_sent(void)
{
    read_settings();
    start(takes_a_job);
    start(hands_a_job_over);
    wait_for(&done);
}

static void *reads_the_fifo(void *unused)
{
    char byte;
    int fd = open(fifo, O_RDWR);
    blamed();
    if (fd >= 0 && read(fd, &byte, 1) == 1)
        done = 1;
    return unused;
}

/* The worker is blocked in a call on something from outside. */
static void blocked_in_a_call(void)
{
    start(reads_the_fifo);
    wait_for(&done);
}

static void *passes_it_on(void *unused)
{
    wait_for(&halfway);
    done = 1;
    return unused;
}

static void *sets_halfway(void *unused)
{
    blamed();
    if (mode == 2)
        halfway = 1;
    for (;;)
        pause();
    return unused;
}

/* Main polls what a worker sets after it polled what another one sets. */
static void two_flags(void)
{
    read_settings();
    start(passes_it_on);
    start(sets_halfway);
    wait_for(&done);
}

static void *writes_a_message(void *unused)
{
    blamed();
    usleep(200000);
    if (mode == 2 && write(channel[1], "message", 7) != 7)
        exit(6);
    for (;;)
        pause();
    return unused;
}

static void *reads_a_message(void *unused)
{
    char text[8];
    if (read(channel[0], text, 7) == 7)
        done = 1;
    return unused;
}

/* The worker reads a pipe, and the thread that writes to it goes the wrong way. */
static void message_never_sent(void)
{
    read_settings();
    if (pipe(channel) != 0)
        exit(5);
    start(reads_a_message);
    start(writes_a_message);
    wait_for(&done);
}

static int parse(const char *text)
{
    if (text[0] != '2')
        return -1;
    return 7;
}

static void *parses_its_word(void *unused)
{
    int parsed = parse(word);
    blamed();
    if (parsed < 0)
        return unused;
    done = parsed;
    return unused;
}

/* A function that the worker calls returns an error, for what the command line says. */
static void wrong_word(void)
{
    start(parses_its_word);
    wait_for(&done);
}

static void *keeps_the_lock(void *unused)
{
    blamed();
    pthread_mutex_lock(&lock);
    halfway = 1;
    while (mode != 2)
        pause();
    pthread_mutex_unlock(&lock);
    for (;;)
        pause();
    return unused;
}

static void *needs_the_lock(void *unused)
{
    wait_for(&halfway);
    pthread_mutex_lock(&lock);
    done = 1;
    pthread_mutex_unlock(&lock);
    return unused;
}

/* The worker waits for a lock that another thread keeps. */
static void lock_kept(void)
{
    read_settings();
    start(keeps_the_lock);
    start(needs_the_lock);
    wait_for(&done);
}

static void *joins_a_reader(void *unused)
{
    pthread_join(start(reads_the_fifo), NULL);
    halfway = 1;
    return unused;
}

static void *sets_after_halfway(void *unused)
{
    wait_for(&halfway);
    mode = 5;
    return unused;
}

/* Main polls what depends on a word that depends on the end of a thread that reads. */
static void four_links(void)
{
    start(joins_a_reader);
    start(sets_after_halfway);
    wait_for(&mode);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"wrong_setting", wrong_setting},
    {"ended_on_an_error", ended_on_an_error},
    {"never_started", never_started},
    {"job_never_sent", job_never_sent},
    {"blocked_in_a_call", blocked_in_a_call},
    {"two_flags", two_flags},
    {"message_never_sent", message_never_sent},
    {"wrong_word", wrong_word},
    {"lock_kept", lock_kept},
    {"four_links", four_links},
};

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    settings = argv[2];
    fifo = argv[3];
    word = argv[4];
    for (size_t at = 0; at < sizeof scenarios / sizeof *scenarios; at++)
        if (strcmp(argv[1], scenarios[at].name) == 0) {
            scenarios[at].run();
            return 0;
        }
    return 2;
}
