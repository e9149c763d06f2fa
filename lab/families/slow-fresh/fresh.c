/* SPDX-License-Identifier: MIT */
/* More services in which one request is slow among fast ones, as operators meet them. */
#include "service.h"
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>

static struct queue jobs, answers;

static void serve(int last, double pause)
{
    for (int i = 1; i <= last; i++) {
        push(&jobs, i);
        pop(&answers);
        ms(pause);
    }
}

/* spool: a lock file is tried with longer and longer pauses; another program keeps it. */
static void spool(void)
{
    if (child("keeper")) {
        int fd = open("spool.lock", O_RDWR | O_CREAT, 0600);
        ms(600);
        must(!flock(fd, LOCK_EX));
        for (int i = 0; i < 90; i++) {
            must(pwrite(fd, &i, sizeof i, 4096 * i) > 0);
            ms(10);
        }
        must(!flock(fd, LOCK_UN));
        pause();
    }
    int fd = open("spool.lock", O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < 90; i++) {
        for (double pause = 1; flock(fd, LOCK_EX | LOCK_NB); pause = pause < 50 ? pause * 2 : 50)
            ms(pause);
        burn(0.2);
        must(!flock(fd, LOCK_UN));
        ms(13);
    }
}

/* slowloris: a server takes one connection after the other, and one of them says nothing. */
static int connection(const struct sockaddr_un *at)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    must(fd >= 0 && !connect(fd, (const struct sockaddr *)at, sizeof *at));
    return fd;
}

static void slowloris(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/socket", getenv("LAB_RUN"));
    int own = socket(AF_UNIX, SOCK_STREAM, 0);
    must(!bind(own, (struct sockaddr *)&at, sizeof at) && !listen(own, 9));
    if (child("server"))
        for (;;) {
            int fd = accept(own, NULL, NULL), number = get(fd);
            burn(0.3);
            if (number > 0)
                put(fd, number);
            close(fd);
        }
    if (child("crawler")) {
        ms(500);
        int fd = connection(&at);
        ms(900);
        put(fd, 1);
        pause();
    }
    for (int i = 1; i <= 90; i++) {
        int fd = connection(&at);
        put(fd, i);
        get(fd);
        close(fd);
        ms(11);
    }
}

/* commit: the thread that commits for all syncs a file that has much to write. */
static void *journal(void *unused)
{
    is("journal");
    static char block[1 << 16];
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    for (;;) {
        int job = pop(&jobs);
        must(pwrite(fd, block, sizeof block, 0) > 0);
        must(job != 30 || !fallocate(fd, 0, 0, 900 << 20));
        for (off_t at = 0; job == 30 && at < 900 << 20; at += sizeof block)
            must(pwrite(fd, block, sizeof block, at) > 0);
        must(!fsync(fd));
        push(&answers, job);
    }
    return unused;
}

static void commit(void)
{
    start(journal, NULL);
    serve(45, 14);
}

/* paused: the control group of the worker is frozen for a while, as a container is paused. */
static void paused(void)
{
    const char *make = "cd /sys/fs/cgroup; [ -d freezer ] && cd freezer; mkdir -p lab-slow-fresh;"
                       "echo $PPID > lab-slow-fresh/cgroup.procs";
    const char *stop = "cd /sys/fs/cgroup; if [ -d freezer ]; then cd freezer/lab-slow-fresh;"
                       "echo FROZEN > freezer.state; sleep 0.9; echo THAWED > freezer.state; else "
                       "cd lab-slow-fresh; echo 1 > cgroup.freeze; sleep 0.9; echo 0 > "
                       "cgroup.freeze; fi";
    int ends[2];
    must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    if (child("worker")) {
        must(!system(make));
        put(ends[1], 0);
        for (int job; (job = get(ends[1])) > 0;) {
            burn(0.5);
            put(ends[1], job);
        }
    }
    get(ends[0]);
    if (child("operator")) {
        ms(500);
        must(!system(stop));
        pause();
    }
    for (int i = 1; i <= 90; i++) {
        put(ends[0], i);
        get(ends[0]);
        ms(12);
    }
}

/* pages: a worker looks at pages of a file that are no longer in memory. */
static void *searcher(void *unused)
{
    is("searcher");
    size_t size = 600u << 20;
    int fd = open("pages.bin", O_RDONLY);
    char *pages = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    must(pages != MAP_FAILED && !madvise(pages, size, MADV_RANDOM));
    must(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    uint64_t at = 1;
    for (;;) {
        int job = pop(&jobs);
        for (int i = 0; i < (job == 30 ? 9000 : 3); i++) {
            at = at * 6364136223846793005u + 1442695040888963407u;
            sink += pages[(at >> 33) % size];
        }
        push(&answers, job);
    }
    return unused;
}

static void pages(void)
{
    start(searcher, NULL);
    serve(60, 12);
}

/* circle: two threads ask each other, and each waits for the answer. */
static struct queue to_left, to_right;

static void *right(void *unused)
{
    is("right");
    for (;;) {
        int job = pop(&to_right);
        if (job == 40) {
            push(&to_left, 77);
            pop(&to_right);
        }
        push(&to_left, job);
    }
    return unused;
}

static void *left(void *unused)
{
    is("left");
    for (;;) {
        int job = pop(&jobs);
        push(&to_right, job);
        while (pop(&to_left) != job)
            ;
        push(&answers, job);
    }
    return unused;
}

static void circle(void)
{
    start(left, NULL);
    start(right, NULL);
    serve(60, 12);
}

/* report: a job of some parts each half a second, as always; nothing is wrong. */
static void reports(void)
{
    for (int i = 0; i < 5; i++) {
        for (int part = 0; part < 12; part++) {
            burn(3);
            ms(2);
        }
        ms(440);
    }
}

static const struct scene scenes[] = {
    {"spool", spool}, {"slowloris", slowloris}, {"commit", commit},   {"paused", paused},
    {"pages", pages}, {"circle", circle},       {"reports", reports},
};

int main(int count, char **words)
{
    return count == 2 ? play(scenes, sizeof scenes / sizeof *scenes, words[1]) : 2;
}
