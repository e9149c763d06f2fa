/* SPDX-License-Identifier: MIT */
/* Services in which one request is slow among fast ones, as operators meet them. */
#include "service.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/stat.h>

static struct queue jobs, answers, idle;

static void serve(int first, int last, double pause)
{
    for (int i = first; i <= last; i++) {
        push(&jobs, i);
        pop(&answers);
        ms(pause);
    }
}

/* disk: of the workers of a pool one stores a large file. */
static void *worker(void *unused)
{
    static char block[1 << 16];
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    must(fd >= 0);
    for (;;) {
        int job = pop(&jobs);
        if (job == 20)
            is("saver");
        for (int i = 0; i < (job == 20 ? 8000 : 1); i++)
            must(write(fd, block, sizeof block) > 0);
        must(!fdatasync(fd));
        push(&answers, job);
    }
    return unused;
}

static void disk(void)
{
    for (int i = 0; i < 3; i++)
        start(worker, NULL);
    serve(1, 40, 15);
}

/* connections: both connections to a database have a report, which it computes. */
static int to_database[2];

static int query(int number)
{
    int own = pop(&idle);
    put(to_database[own], number);
    int answer = get(to_database[own]);
    push(&idle, own);
    return answer;
}

static void *report(void *unused)
{
    is("report");
    ms(400);
    query(99);
    return unused;
}

static void connections(void)
{
    int ends[2][2];
    for (int i = 0; i < 2; i++) {
        must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]));
        to_database[i] = ends[i][0];
    }
    if (child("database"))
        for (;;) {
            struct pollfd both[2] = {{ends[0][1], POLLIN, 0}, {ends[1][1], POLLIN, 0}};
            poll(both, 2, -1);
            for (int i = 0; i < 2; i++)
                if (both[i].revents) {
                    int number = get(both[i].fd);
                    burn(number == 99 ? 400 : 0.5);
                    put(both[i].fd, number);
                }
        }
    push(&idle, 0);
    push(&idle, 1);
    start(report, NULL);
    start(report, NULL);
    for (int i = 1; i <= 60; i++) {
        query(i);
        ms(12);
    }
}

/* export: a reader has a read-write lock while it goes over all; the request is to write. */
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;

static void *lookups(void *unused)
{
    is("lookups");
    for (;;) {
        pthread_rwlock_rdlock(&table);
        burn(0.2);
        pthread_rwlock_unlock(&table);
        ms(3);
    }
    return unused;
}

static void *exporter(void *unused)
{
    is("exporter");
    ms(500);
    pthread_rwlock_rdlock(&table);
    burn(700);
    pthread_rwlock_unlock(&table);
    return unused;
}

static void export(void)
{
    start(lookups, NULL);
    start(exporter, NULL);
    for (int i = 0; i < 80; i++) {
        pthread_rwlock_wrlock(&table);
        burn(0.3);
        pthread_rwlock_unlock(&table);
        ms(10);
    }
}

/* polled: a file's lock is tried each 7 ms; another process has it while it works. */
static void taken(int fd, int kind)
{
    struct flock all = {.l_type = kind, .l_whence = SEEK_SET};
    while (fcntl(fd, F_SETLK, &all))
        ms(7);
}

static void polled(void)
{
    if (child("vacuum")) {
        int fd = open("polled.db", O_RDWR | O_CREAT, 0600);
        ms(500);
        taken(fd, F_WRLCK);
        burn(800);
        taken(fd, F_UNLCK);
        pause();
    }
    int fd = open("polled.db", O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < 90; i++) {
        taken(fd, F_WRLCK);
        must(pwrite(fd, &i, sizeof i, 0) > 0);
        taken(fd, F_UNLCK);
        ms(11);
    }
}

/* names: a server of names drops two datagrams, and the asker's patience is 300 ms. */
static void names(void)
{
    int server = socket(AF_INET, SOCK_DGRAM, 0), own = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    must(!bind(server, (struct sockaddr *)&at, size));
    must(!getsockname(server, (struct sockaddr *)&at, &size));
    if (child("dns"))
        for (int dropped = 0;;) {
            struct sockaddr_in from;
            char name;
            must(recvfrom(server, &name, 1, 0, (struct sockaddr *)&from, &size) == 1);
            if (name != 30 || dropped++ == 2)
                sendto(server, &name, 1, 0, (struct sockaddr *)&from, size);
        }
    for (char name = 0; name < 60; name++) {
        struct pollfd answer = {own, POLLIN, 0};
        do
            sendto(own, &name, 1, 0, (struct sockaddr *)&at, size);
        while (!poll(&answer, 1, 300));
        get(own);
        ms(10);
    }
}

/* throttled: the control group of the worker has a tenth of a processor. */
static void throttled(void)
{
    const char *make = "cd /sys/fs/cgroup; if [ -d cpu ]; then d=cpu/lab-slow-field; mkdir -p $d;"
                       "echo 10000 > $d/cpu.cfs_quota_us; else d=lab-slow-field; mkdir -p $d;"
                       "echo '10000 100000' > $d/cpu.max; fi; echo $PPID > $d/cgroup.procs";
    int ends[2];
    must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    if (child("worker")) {
        must(!system(make));
        put(ends[1], 0);
        for (int job; (job = get(ends[1])) > 0;) {
            burn(job == 25 ? 100 : 0.2);
            put(ends[1], job);
        }
    }
    get(ends[0]);
    for (int i = 1; i <= 60; i++) {
        put(ends[0], i);
        get(ends[0]);
        ms(12);
    }
}

/* retries: the thread that sends backs off longer and longer, and starts again from there. */
static void *sender(void *unused)
{
    is("sender");
    for (;;) {
        int job = pop(&jobs);
        for (double pause = 2; job == 25 && pause < 600; pause *= 2)
            ms(pause);
        burn(0.3);
        push(&answers, job);
    }
    return unused;
}

static void retries(void)
{
    start(sender, NULL);
    serve(1, 60, 12);
}

/* events: one server of eight connections works on the request of another. */
static void events(void)
{
    int ends[8][2], events = epoll_create1(0);
    for (int i = 0; i < 8; i++) {
        must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]));
        struct epoll_event in = {.events = EPOLLIN, .data.fd = ends[i][1]};
        epoll_ctl(events, EPOLL_CTL_ADD, ends[i][1], &in);
    }
    if (child("server"))
        for (struct epoll_event in; epoll_wait(events, &in, 1, -1) == 1;) {
            int number = get(in.data.fd);
            burn(number == 77 ? 600 : 0.4);
            put(in.data.fd, number);
        }
    for (int i = 1; i < 8; i++)
        if (child("others"))
            for (int round = 0;; round++) {
                put(ends[i][0], i == 5 && round == 20 ? 77 : 1);
                get(ends[i][0]);
                ms(25 + i);
            }
    for (int i = 0; i < 80; i++) {
        put(ends[0][0], 1);
        get(ends[0][0]);
        ms(10);
    }
}

/* even: requests of a pool take from 4 to 16 ms, and nothing is wrong. */
static void *evenly(void *unused)
{
    is("pool");
    for (;;) {
        int job = pop(&jobs);
        burn(4 + job * 7 % 13);
        push(&answers, job);
    }
    return unused;
}

static void even(void)
{
    start(evenly, NULL);
    start(evenly, NULL);
    serve(1, 130, 9);
}

static const struct scene scenes[] = {
    {"disk", disk},   {"connections", connections}, {"export", export},   {"polled", polled},
    {"names", names}, {"throttled", throttled},     {"retries", retries}, {"events", events},
    {"even", even},
};

int main(int count, char **words)
{
    return count == 2 ? play(scenes, sizeof scenes / sizeof *scenes, words[1]) : 2;
}
