/* SPDX-License-Identifier: MIT */
/* Services in which one request is slow among fast ones, each for another reason. */
#include "service.h"
#include <mqueue.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

static pthread_mutex_t store = PTHREAD_MUTEX_INITIALIZER;
static struct queue jobs, answers, names, pages;
static pthread_barrier_t rounds;

static int scratch(void)
{
    char path[] = "./scratch-XXXXXX";
    int fd = mkstemp(path);
    must(fd >= 0 && !unlink(path));
    return fd;
}

/* compact: a background thread has the store's lock while it packs and writes. */
static void *compactor(void *unused)
{
    is("compactor");
    static char block[65536];
    int fd = scratch();
    ms(500);
    pthread_mutex_lock(&store);
    for (int i = 0; i < 60; i++) {
        burn(7);
        must(write(fd, block, sizeof block) > 0);
        if (i % 10 == 9)
            must(!fsync(fd));
        ms(1);
    }
    pthread_mutex_unlock(&store);
    return unused;
}

static void compact(void)
{
    int requests = clients(60, 9);
    start(compactor, NULL);
    for (int asked; (asked = get(requests)) > 0;) {
        pthread_mutex_lock(&store);
        burn(1.5);
        pthread_mutex_unlock(&store);
        put(requests, asked);
    }
}

/* pool: all workers of a pool have long jobs when a short one comes. */
static void *worker(void *number)
{
    char name[16];
    snprintf(name, sizeof name, "pool-%d", (int)(intptr_t)number);
    is(name);
    for (;;) {
        int job = pop(&jobs);
        if (job == 99)
            burn(450);
        else {
            burn(1);
            push(&answers, job);
        }
    }
    return NULL;
}

static void pool(void)
{
    for (intptr_t i = 0; i < 2; i++)
        start(worker, (void *)i);
    for (int i = 1; i <= 30; i++) {
        if (i == 20)
            for (int report = 0; report < 2; report++)
                push(&jobs, 99);
        push(&jobs, i);
        pop(&answers);
        ms(10);
    }
}

/* resolver: a process that looks up names sleeps over one of them. */
static int lookups;

static void *fetcher(void *unused)
{
    is("fetcher");
    for (;;) {
        int name = pop(&names);
        put(lookups, name);
        get(lookups);
        burn(1);
        push(&pages, name);
    }
    return unused;
}

static void resolver(void)
{
    int ends[2];
    must(!socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    if (child("resolver"))
        for (int name; (name = get(ends[1])) > 0;) {
            ms(name == 17 ? 900 : 1);
            put(ends[1], name);
        }
    lookups = ends[0];
    start(fetcher, NULL);
    for (int i = 1; i <= 30; i++) {
        push(&names, i);
        pop(&pages);
        ms(12);
    }
}

/* logpipe: the process that reads the log works on an old part of it, and the pipe is full. */
static void logpipe(void)
{
    int ends[2];
    must(!pipe(ends));
    static char line[4096];
    if (child("logger")) {
        int fd = scratch();
        close(ends[1]);
        for (int i = 0; read(ends[0], line, sizeof line) > 0; i++) {
            must(write(fd, line, sizeof line) > 0);
            for (int part = 0; i == 100 && part < 50; part++) {
                burn(9);
                must(write(fd, line, sizeof line) > 0);
                must(!fdatasync(fd));
            }
        }
        _exit(0);
    }
    for (int i = 0; i < 300; i++) {
        burn(1);
        must(write(ends[1], line, sizeof line) > 0);
        ms(3);
    }
}

/* straggler: of the threads of a barrier one does a round in many small pieces. */
static void *solver(void *number)
{
    int own = (intptr_t)number;
    is(own == 2 ? "straggler" : "solver");
    for (int i = 0; i < 40; i++) {
        for (int part = 0; part < (own == 2 && i == 25 ? 150 : 1); part++) {
            burn(2);
            ms(1);
        }
        pthread_barrier_wait(&rounds);
    }
    return NULL;
}

static void straggler(void)
{
    pthread_barrier_init(&rounds, NULL, 4);
    for (intptr_t i = 1; i < 4; i++)
        start(solver, (void *)i);
    for (int i = 0; i < 40; i++) {
        burn(2);
        pthread_barrier_wait(&rounds);
    }
}

/* convoy: many sessions take the lock for a while each, one after the other. */
static void *session(void *number)
{
    char name[16];
    snprintf(name, sizeof name, "session-%d", (int)(intptr_t)number);
    is(name);
    int fd = scratch();
    char row[512] = {0};
    ms(400);
    for (int i = 0; i < 10; i++) {
        pthread_mutex_lock(&store);
        burn(6);
        must(write(fd, row, sizeof row) > 0 && !fdatasync(fd));
        ms(9);
        pthread_mutex_unlock(&store);
    }
    return NULL;
}

static void convoy(void)
{
    for (intptr_t i = 0; i < 4; i++)
        start(session, (void *)i);
    for (int i = 0; i < 40; i++) {
        pthread_mutex_lock(&store);
        burn(1);
        pthread_mutex_unlock(&store);
        ms(11);
    }
}

/* pacer: a thread that gives the beat sleeps for seconds in place of milliseconds. */
static void *pacer(void *unused)
{
    is("pacer");
    for (int i = 1;; i++) {
        ms(i == 30 ? 1200 : 12);
        push(&jobs, i);
    }
    return unused;
}

static void pace(void)
{
    start(pacer, NULL);
    for (int i = 0; i < 60; i++) {
        pop(&jobs);
        burn(2);
    }
}

/* batcher: a server keeps answers back until a batch is full or a time is over. */
static void batcher(void)
{
    int ends[2];
    must(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
    if (child("batcher"))
        for (;;) {
            int held = 0;
            struct pollfd look = {ends[1], POLLIN, 0};
            while (held < 4 && poll(&look, 1, held ? 600 : -1) > 0) {
                get(ends[1]);
                held++;
            }
            burn(0.5);
            put(ends[1], held);
        }
    for (int i = 0; i < 25; i++) {
        for (int asked = 0; asked < (i == 18 ? 3 : 4); asked++)
            put(ends[0], i);
        get(ends[0]);
        ms(12);
    }
}

/* refused: a client tries again and again until the server, which starts slowly, listens. */
static void refused(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "./socket-%d", (int)getpid());
    if (child("daemon")) {
        burn(900);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        must(!bind(fd, (struct sockaddr *)&at, sizeof at) && !listen(fd, 5));
        int peer = accept(fd, NULL, NULL);
        for (int asked; (asked = get(peer)) > 0;)
            put(peer, asked);
        _exit(0);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    while (connect(fd, (struct sockaddr *)&at, sizeof at))
        ms(60);
    unlink(at.sun_path);
    for (int i = 1; i < 30; i++) {
        put(fd, i);
        get(fd);
        ms(10);
    }
}

/* faults: a thread reads a mapped file whose pages are not in memory. */
static void *indexer(void *unused)
{
    is("indexer");
    int fd = open("pages.bin", O_RDONLY);
    struct stat about;
    must(fd >= 0 && !fstat(fd, &about));
    size_t size = about.st_size;
    for (;;) {
        int job = pop(&jobs);
        if (job == 25) {
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            char *all = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
            must(all != MAP_FAILED && !madvise(all, size, MADV_RANDOM));
            for (uint64_t at = 0, i = 0; i < 9000; i++, at = (at + 7919 * 4096) % size)
                sink += all[at];
            munmap(all, size);
        } else
            burn(1);
        push(&answers, job);
    }
    return unused;
}

static void faults(void)
{
    start(indexer, NULL);
    for (int i = 1; i <= 40; i++) {
        push(&jobs, i);
        pop(&answers);
        ms(8);
    }
}

/* signalled: a process tells by a signal that it is done, once much later. */
static void signalled(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int ends[2];
    must(!pipe(ends));
    pid_t parent = getpid();
    if (child("renderer"))
        for (int job; (job = get(ends[0])) > 0;) {
            for (int tile = 0; tile < (job == 22 ? 90 : 1); tile++) {
                burn(5);
                ms(2);
            }
            kill(parent, SIGUSR1);
        }
    for (int i = 1; i <= 30; i++) {
        put(ends[1], i);
        sigwaitinfo(&set, NULL);
        ms(9);
    }
}

/* stages: four processes in a row, of which one needs long for one block. */
static void stages(void)
{
    static const char *const names[] = {"reader", "decode", "transcode", "mux"};
    int in = -1;
    for (int stage = 0; stage < 4; stage++) {
        int ends[2];
        must(!pipe(ends));
        if (child(names[stage])) {
            close(ends[0]);
            for (int i = 1; i <= 60; i++) {
                int block = in < 0 ? i : get(in);
                if (block < 0)
                    break;
                for (int part = 0; part < (stage == 2 && block == 40 ? 220 : 1); part++) {
                    burn(1.5);
                    ms(1);
                }
                put(ends[1], block);
            }
            _exit(0);
        }
        close(ends[1]);
        if (in >= 0)
            close(in);
        in = ends[0];
    }
    while (get(in) > 0)
        burn(0.5);
}

/* backup: for ever, as a process sleeps with the lock of a file. */
static int done;

static void *syncer(void *unused)
{
    is("syncer");
    int fd = open("./state.lock", O_RDWR | O_CREAT, 0600);
    for (;;) {
        pop(&jobs);
        must(!flock(fd, LOCK_EX));
        burn(1);
        must(!flock(fd, LOCK_UN));
        must(eventfd_write(done, 1) == 0);
    }
    return unused;
}

static void backup(void)
{
    eventfd_t count;
    done = eventfd(0, 0);
    if (child("backup")) {
        ms(600);
        int fd = open("./state.lock", O_RDWR | O_CREAT, 0600);
        must(!flock(fd, LOCK_EX));
        pause();
    }
    start(syncer, NULL);
    for (int i = 1;; i++) {
        push(&jobs, i);
        must(!eventfd_read(done, &count));
        ms(10);
    }
}

/* remote: for ever, as the other side sends no more credits. */
static int credits;

static void *acker(void *unused)
{
    is("acker");
    for (int more; (more = get(credits)) > 0;)
        push(&answers, more);
    return unused;
}

static void remote(void)
{
    int ends[2];
    must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    if (child("remote"))
        for (int i = 1;; i++) {
            get(ends[1]);
            if (i == 40)
                sigsuspend(&(sigset_t){0});
            put(ends[1], 1);
        }
    credits = ends[0];
    start(acker, NULL);
    for (int i = 1;; i++) {
        put(credits, 1);
        pop(&answers);
        ms(7);
    }
}

/* mailer: for ever, as a queue of messages is full, whose reader waits for a silent host. */
static void mailer(void)
{
    char name[32];
    snprintf(name, sizeof name, "/mail-%d", (int)getpid());
    struct mq_attr attributes = {.mq_maxmsg = 5, .mq_msgsize = 8};
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, &attributes);
    must(queue >= 0 && !mq_unlink(name));
    int ends[2];
    must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    if (child("host"))
        for (int i = 1;; i++) {
            get(ends[1]);
            if (i == 50)
                pause();
            put(ends[1], 1);
        }
    if (child("mailer"))
        for (char mail[8];;) {
            must(mq_receive(queue, mail, sizeof mail, NULL) >= 0);
            put(ends[0], 1);
            get(ends[0]);
            burn(0.5);
        }
    for (int i = 1;; i++) {
        must(!mq_send(queue, "mail", 4, 0));
        ms(8);
    }
}

/* Four in which nothing is unusual. */
static void steady(void)
{
    int requests = clients(150, 4);
    unsigned seed = 7;
    for (int asked; (asked = get(requests)) > 0;) {
        pthread_mutex_lock(&store);
        burn(0.5 + rand_r(&seed) % 4);
        pthread_mutex_unlock(&store);
        put(requests, asked);
    }
}

static void *even(void *unused)
{
    is("solver");
    for (int i = 0; i < 100; i++) {
        burn(3);
        pthread_barrier_wait(&rounds);
    }
    return unused;
}

static void evenly(void)
{
    pthread_barrier_init(&rounds, NULL, 3);
    start(even, NULL);
    start(even, NULL);
    for (int i = 0; i < 100; i++) {
        burn(2 + i % 3);
        pthread_barrier_wait(&rounds);
    }
}

static void frames(void)
{
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec each = {{0, 16666667}, {0, 16666667}};
    uint64_t expired;
    must(!timerfd_settime(timer, 0, &each, NULL));
    for (int i = 0; i < 120; i++) {
        must(read(timer, &expired, 8) == 8);
        burn(1 + i % 2);
    }
}

static void beats(void)
{
    int ends[2], poller = epoll_create1(0);
    must(!socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    if (child("peer"))
        for (int i = 0;; i++) {
            ms(230 + i % 3 * 15);
            put(ends[1], 1);
        }
    struct epoll_event event = {.events = EPOLLIN};
    must(!epoll_ctl(poller, EPOLL_CTL_ADD, ends[0], &event));
    for (int i = 0; i < 12; i++) {
        must(epoll_wait(poller, &event, 1, -1) == 1);
        get(ends[0]);
        burn(1);
    }
}

int main(int count, char **words)
{
    static const struct scene scenes[] = {
        {"compact", compact}, {"pool", pool},           {"resolver", resolver},
        {"logpipe", logpipe}, {"straggler", straggler}, {"convoy", convoy},
        {"pace", pace},       {"batcher", batcher},     {"refused", refused},
        {"faults", faults},   {"signalled", signalled}, {"stages", stages},
        {"backup", backup},   {"remote", remote},       {"mailer", mailer},
        {"steady", steady},   {"evenly", evenly},       {"frames", frames},
        {"beats", beats},
    };
    must(count == 2);
    return play(scenes, sizeof scenes / sizeof *scenes, words[1]);
}
