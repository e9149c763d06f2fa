/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/resource.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>
#include <errno.h>
static volatile uint64_t sink;
static void name(const char *n) { prctl(PR_SET_NAME, n); }
static void ms(int n) { usleep(n * 1000); }
static void burn(int n)
{
    struct timespec t;
    uint64_t e = 0, a;
    do {
        for (int i = 0; i < 20000; i++)
            sink += i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        a = t.tv_sec * 1000ull + t.tv_nsec / 1000000;
        if (!e)
            e = a + n;
    } while (a < e);
}
static int take(int fd)
{
    char c;
    return read(fd, &c, 1) == 1 ? c : -1;
}
static void give(int fd, char c)
{
    if (write(fd, &c, 1) != 1)
        abort();
}
static pthread_t go(void *(*f)(void *), void *a)
{
    pthread_t t;
    if (pthread_create(&t, NULL, f, a))
        abort();
    return t;
}
static int pp[2][2];
static void *pinger(void *o)
{
    int k = o != NULL;
    name(k ? "pong" : "ping");
    for (;;) {
        usleep(500);
        give(pp[!k][1], 1);
        take(pp[k][0]);
    }
}
static void *tick(void *u)
{
    name("ticktock");
    for (;;) {
        poll(NULL, 0, 10);
    }
    return u;
}
static void *anim(void *u)
{
    name("animator");
    for (;;) {
        burn(6);
        usleep(10000);
    }
    return u;
}
static void crowd(void)
{
    if (pipe(pp[0]) || pipe(pp[1]))
        abort();
    go(pinger, NULL);
    go(pinger, pp);
    go(tick, NULL);
    go(anim, NULL);
}
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, m2 = PTHREAD_MUTEX_INITIALIZER,
                       m3 = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c1 = PTHREAD_COND_INITIALIZER, c2 = PTHREAD_COND_INITIALIZER;
static int want, done;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static sem_t sem;
static int a[2], b[2], d[2], e[2];
static int file;
static void *loader(void *u)
{
    name("loader");
    char buf[4096];
    for (;;) {
        pthread_mutex_lock(&m);
        while (want == done)
            pthread_cond_wait(&c1, &m);
        int r = want;
        pthread_mutex_unlock(&m);
        if (r == 15)
            for (int i = 0; i < 200000; i++) {
                if (pread(file, buf, 4096, (i * 7919ll % 2000) * 4096) < 0)
                    abort();
                if (i % 16 == 0)
                    usleep(60);
                if (i > 12000)
                    break;
            }
        else
            ms(2);
        pthread_mutex_lock(&m);
        done = r;
        pthread_cond_signal(&c2);
        pthread_mutex_unlock(&m);
    }
    return u;
}
static void reads(void)
{
    file = open("big.bin", O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, 2000 * 4096))
        abort();
    go(loader, NULL);
    name("viewer");
    for (int i = 1; i <= 20; i++) {
        pthread_mutex_lock(&m);
        want = i;
        pthread_cond_signal(&c1);
        while (done != i)
            pthread_cond_wait(&c2, &m);
        pthread_mutex_unlock(&m);
        ms(10);
    }
}
static void *keeper(void *u)
{
    name("keeper");
    for (;;) {
        int r = take(d[0]);
        usleep(100);
        give(e[1], r);
    }
    return u;
}
static void *worker(void *u)
{
    name("clerk");
    for (;;) {
        int r = take(a[0]);
        if (r == 12)
            for (int i = 0; i < 2500; i++) {
                give(d[1], 1);
                take(e[0]);
            }
        else
            ms(2);
        give(b[1], r);
    }
    return u;
}
static void rounds(void)
{
    go(keeper, NULL);
    go(worker, NULL);
    name("frontman");
    for (int i = 1; i <= 20; i++) {
        give(a[1], i);
        take(b[0]);
        ms(5);
    }
}
static void *compactor(void *u)
{
    name("compactor");
    for (int i = 0;; i++) {
        ms(20);
        pthread_rwlock_wrlock(&rw);
        ms(i == 10 ? 700 : 1);
        pthread_rwlock_unlock(&rw);
    }
    return u;
}
static void rwl(void)
{
    go(compactor, NULL);
    name("reader");
    for (int i = 0; i < 700; i++) {
        pthread_rwlock_rdlock(&rw);
        usleep(300);
        pthread_rwlock_unlock(&rw);
        usleep(2000);
    }
}
static void *autosave(void *u)
{
    name("autosave");
    for (int i = 0;; i++) {
        ms(30);
        pthread_mutex_lock(&m);
        burn(i == 8 ? 450 : 1);
        pthread_mutex_unlock(&m);
    }
    return u;
}
static void paced(void)
{
    go(autosave, NULL);
    name("render");
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    for (int f = 0; f < 200; f++) {
        pthread_mutex_lock(&m);
        usleep(100);
        pthread_mutex_unlock(&m);
        burn(2);
        t.tv_nsec += 16000000;
        if (t.tv_nsec >= 1000000000) {
            t.tv_nsec -= 1000000000;
            t.tv_sec++;
        }
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
}
static sem_t ask;
static void *feeder(void *u)
{
    name("feeder");
    for (int i = 0;; i++) {
        sem_wait(&ask);
        burn(i == 9 ? 500 : 2);
        sem_post(&sem);
    }
    return u;
}
static void *greeter(void *u)
{
    name("greeter");
    for (;;) {
        ms(3);
        pthread_mutex_lock(&m2);
        usleep(10);
        pthread_mutex_unlock(&m2);
    }
    return u;
}
static void sems(void)
{
    sem_init(&sem, 0, 0);
    sem_init(&ask, 0, 0);
    go(feeder, NULL);
    go(greeter, NULL);
    name("eater");
    for (int i = 0; i < 15; i++) {
        sem_post(&ask);
        sem_wait(&sem);
        pthread_mutex_lock(&m2);
        pthread_mutex_unlock(&m2);
        ms(4);
    }
}
static void stopped(void)
{
    int p[2], q[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, p) || pipe(q))
        abort();
    pid_t k = fork();
    if (!k) {
        name("backend");
        for (int r; (r = take(p[1])) > 0;) {
            ms(2);
            give(p[1], r);
        }
        _exit(0);
    }
    pid_t z = fork();
    if (!z) {
        name("bully");
        take(q[0]);
        kill(k, SIGSTOP);
        give(p[1] == -1 ? 0 : q[1], 2);
        ms(700);
        kill(k, SIGCONT);
        _exit(0);
    }
    name("asker");
    printf("main %d\nbackend %d\n", getpid(), k);
    fflush(stdout);
    for (int i = 1; i <= 20; i++) {
        if (i == 13) {
            give(q[1], 1);
            ms(30);
        }
        give(p[0], i);
        take(p[0]);
        ms(4);
    }
    kill(k, 9);
}
static pthread_mutex_t l[3] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                               PTHREAD_MUTEX_INITIALIZER};
static void *ring(void *u)
{
    int i = (int)(intptr_t)u;
    const char *n[] = {"sales", "depot", "ledger"};
    name(n[i]);
    for (int r = 0; r < 8; r++) {
        pthread_mutex_lock(&l[i]);
        usleep(300);
        pthread_mutex_unlock(&l[i]);
        ms(2 + i);
    }
    pthread_mutex_lock(&l[i]);
    ms(60);
    pthread_mutex_lock(&l[(i + 1) % 3]);
    return u;
}
static void ring3(void)
{
    for (long i = 0; i < 3; i++)
        go(ring, (void *)i);
    name("desk");
    for (;;) {
        pthread_mutex_lock(&l[1]);
        usleep(200);
        pthread_mutex_unlock(&l[1]);
        ms(5);
    }
}
static void *hog(void *u)
{
    name("hog");
    setpriority(PRIO_PROCESS, syscall(SYS_gettid), 0);
    for (;;)
        burn(50);
    return u;
}
static int starve_on;
static void *slow(void *u)
{
    name("lowprio");
    for (;;) {
        int r = take(a[0]);
        if (r == 9)
            setpriority(PRIO_PROCESS, syscall(SYS_gettid), 19);
        burn(r == 9 ? 25 : 1);
        if (r == 9)
            break;
        give(b[1], r);
    }
    give(b[1], 9);
    return u;
}
static void starve(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    go(slow, NULL);
    name("uimain");
    for (int i = 1; i <= 9; i++) {
        if (i == 9) {
            go(hog, NULL);
            go(hog, NULL);
        }
        give(a[1], i);
        take(b[0]);
        ms(4);
    }
}
static void *committer(void *u)
{
    name("journal");
    for (int i = 0;; i++) {
        ms(10);
        pthread_mutex_lock(&m);
        char x[512] = {0};
        for (int k = 0; k < (i == 9 ? 900 : 1); k++) {
            if (write(file, x, 512) != 512)
                abort();
            fsync(file);
            if (i == 9 && k > 30) {
                struct timespec t;
                clock_gettime(CLOCK_MONOTONIC, &t);
                static time_t s;
                static long ns;
                if (!s) {
                    s = t.tv_sec;
                    ns = t.tv_nsec;
                }
                if ((t.tv_sec - s) * 1000 + (t.tv_nsec - ns) / 1000000 > 600)
                    break;
            }
        }
        pthread_mutex_unlock(&m);
    }
    return u;
}
static void jour(void)
{
    file = open("journal.bin", O_RDWR | O_CREAT, 0600);
    go(committer, NULL);
    name("mailer");
    for (int i = 0; i < 150; i++) {
        pthread_mutex_lock(&m);
        usleep(100);
        pthread_mutex_unlock(&m);
        ms(6);
    }
}
int main(int n, char **v)
{
    name("boss");
    if (pipe(a) || pipe(b) || pipe(d) || pipe(e))
        abort();
    if (strcmp(v[1], "starve"))
        crowd();
    ms(200);
#define M(x, f)                                                                                    \
    if (!strcmp(v[1], x))                                                                          \
        f();
    M("reads", reads)
    M("rounds", rounds) M("rwlock", rwl) M("paced", paced) M("sem", sems) M("stopped", stopped)
        M("ring3", ring3) M("starve", starve) M("journal", jour) _exit(0);
}
