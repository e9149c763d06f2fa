/* SPDX-License-Identifier: MIT */
/* More services in which one request is slow, or never answered, each for another reason. */
#include "service.h"
#include <netinet/in.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/wait.h>

static struct queue jobs, answers;

/* shared: processes share a lock in memory; one process saves a snapshot under it */
struct shared {
    pthread_mutex_t lock;
    sem_t asked, done;
    int value;
};

static struct shared *shared_memory(void)
{
    struct shared *all =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&all->lock, &how);
    sem_init(&all->asked, 1, 0);
    sem_init(&all->done, 1, 0);
    return all;
}

static void shared(void)
{
    struct shared *all = shared_memory();
    static char page[1 << 16];
    if (child("saver")) {
        FILE *file = tmpfile();
        for (int i = 0;; i++) {
            ms(80);
            pthread_mutex_lock(&all->lock);
            for (int part = 0; part < (i == 5 ? 40 : 1); part++) {
                burn(1);
                fwrite(page, sizeof page, 1, file);
                fflush(file);
                if (i == 5)
                    fsync(fileno(file));
                ms(i == 5 ? 10 : 0.1);
            }
            pthread_mutex_unlock(&all->lock);
        }
    }
    for (int i = 0; i < 70; i++) {
        pthread_mutex_lock(&all->lock);
        all->value++;
        burn(1);
        pthread_mutex_unlock(&all->lock);
        ms(8);
    }
}

/* semaphores: a process posts a semaphore in shared memory, once late as its child packs */
static void semaphores(void)
{
    struct shared *all = shared_memory();
    if (child("server"))
        for (int i = 1;; i++) {
            sem_wait(&all->asked);
            if (i == 20) {
                int pid = fork();
                if (!pid) {
                    is("packer");
                    burn(500);
                    _exit(0);
                }
                waitpid(pid, NULL, 0);
            }
            burn(1);
            sem_post(&all->done);
        }
    for (int i = 0; i < 35; i++) {
        sem_post(&all->asked);
        sem_wait(&all->done);
        ms(10);
    }
}

/* sysv: messages of System V; the server retries something five times with sleeps */
static void sysv(void)
{
    struct {
        long type;
        int value;
    } mail = {1, 0};
    int queue = msgget(IPC_PRIVATE, 0600);
    if (child("sysv"))
        for (;;) {
            msgrcv(queue, &mail, sizeof mail.value, 1, 0);
            for (int attempt = 0; attempt < (mail.value == 18 ? 5 : 0); attempt++)
                ms(170);
            mail.type = 2;
            msgsnd(queue, &mail, sizeof mail.value, 0);
        }
    for (int i = 0; i < 30; i++) {
        mail.type = 1;
        mail.value = i;
        msgsnd(queue, &mail, sizeof mail.value, 0);
        msgrcv(queue, &mail, sizeof mail.value, 2, 0);
        ms(11);
    }
    msgctl(queue, IPC_RMID, NULL);
}

/* events: an event loop with several sources; a worker gives its result by an eventfd after reading
 * many small files */
static int ready;
static void *scanner(void *unused)
{
    is("scanner");
    char buffer[4096];
    for (;;) {
        int job = pop(&jobs);
        for (int file = 0; file < (job == 22 ? 15000 : 5); file++) {
            int fd = open("/proc/self/status", O_RDONLY);
            while (read(fd, buffer, sizeof buffer) > 0)
                ;
            close(fd);
        }
        eventfd_write(ready, 1);
    }
    return unused;
}
static void events(void)
{
    int loop = epoll_create1(0), ends[2];
    ready = eventfd(0, 0);
    must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    if (child("ui"))
        for (int i = 1; i < 41; i++) {
            put(ends[1], i);
            get(ends[1]);
            ms(10);
        }
    struct epoll_event one = {.events = EPOLLIN, .data.fd = ready},
                       two = {.events = EPOLLIN, .data.fd = ends[0]}, got;
    epoll_ctl(loop, EPOLL_CTL_ADD, ready, &one);
    epoll_ctl(loop, EPOLL_CTL_ADD, ends[0], &two);
    close(ends[1]);
    start(scanner, NULL);
    for (int last = 0; last < 40;) {
        must(epoll_wait(loop, &got, 1, -1) == 1);
        if (got.data.fd == ready) {
            eventfd_t count;
            eventfd_read(ready, &count);
            put(ends[0], last);
        } else if ((last = get(ends[0])) > 0)
            push(&jobs, last);
        else
            break;
    }
}

/* relay: main -> proxy -> backend over TCP like sockets; the proxy is busy with the upload of
 * another client */
static void relay(void)
{
    int front[2], up[2];
    must(!socketpair(AF_UNIX, SOCK_STREAM, 0, front) && !socketpair(AF_UNIX, SOCK_STREAM, 0, up));
    if (child("uploader")) {
        ms(300);
        for (int part = 0; part < 60; part++) {
            put(up[1], 1);
            ms(12);
        }
        put(up[1], 2);
        pause();
    }
    if (child("proxy")) {
        struct pollfd look[2] = {{front[1], POLLIN, 0}, {up[0], POLLIN, 0}};
        for (;;) {
            poll(look, 2, -1);
            if (look[1].revents)
                while (get(up[0]) != 2)
                    ;
            if (look[0].revents) {
                int asked = get(front[1]);
                burn(0.5);
                put(front[1], asked);
            }
        }
    }
    for (int i = 1; i < 60; i++) {
        put(front[0], i);
        get(front[0]);
        ms(9);
    }
}

/* joined: main stops a worker and joins it; the worker drains a queue to a slow sink */
static int sink_end;
static void *drain(void *unused)
{
    is("drain");
    for (;;) {
        int item = pop(&jobs);
        put(sink_end, item);
        get(sink_end);
        if (item == 63)
            return unused;
    }
}
static void joined(void)
{
    int ends[2];
    must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    if (child("sink"))
        for (;;) {
            int item = get(ends[1]);
            if (item > 40)
                ms(40);
            put(ends[1], item);
        }
    sink_end = ends[0];
    pthread_t worker = start(drain, NULL);
    for (int i = 1; i < 64; i++) {
        push(&jobs, i);
        burn(1);
        if (i < 40)
            ms(5);
    }
    pthread_join(worker, NULL);
}

/* tables: a reader keeps a read lock while it writes a report; the writer (main) waits */
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static void *report(void *unused)
{
    is("report");
    for (int i = 0;; i++) {
        ms(60);
        pthread_rwlock_rdlock(&table);
        if (i == 6)
            burn(500);
        else
            burn(0.5);
        pthread_rwlock_unlock(&table);
    }
    return unused;
}
static void *viewer(void *unused)
{
    is("viewer");
    for (;;) {
        pthread_rwlock_rdlock(&table);
        burn(0.2);
        pthread_rwlock_unlock(&table);
        ms(5);
    }
    return unused;
}
static void tables(void)
{
    start(report, NULL);
    start(viewer, NULL);
    for (int i = 0; i < 60; i++) {
        pthread_rwlock_wrlock(&table);
        burn(1);
        pthread_rwlock_unlock(&table);
        ms(10);
    }
}

/* died: for ever, cond wait for a job whose worker died */
static void *dies(void *unused)
{
    is("dies");
    for (int i = 0; i < 25; i++) {
        int job = pop(&jobs);
        burn(1);
        push(&answers, job);
    }
    return unused;
}
static void died(void)
{
    start(dies, NULL);
    for (int i = 1;; i++) {
        push(&jobs, i);
        pop(&answers);
        ms(8);
    }
}

/* abba: for ever, as main waits for worker A, which is in a deadlock with worker B */
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, two = PTHREAD_MUTEX_INITIALIZER;
static void *left(void *unused)
{
    is("left");
    for (int i = 1;; i++) {
        int job = pop(&jobs);
        pthread_mutex_lock(&one);
        ms(job == 30 ? 60 : 0.1);
        pthread_mutex_lock(&two);
        pthread_mutex_unlock(&two);
        pthread_mutex_unlock(&one);
        push(&answers, job);
    }
    return unused;
}
static void *right(void *unused)
{
    is("right");
    for (int i = 1;; i++) {
        pthread_mutex_lock(&two);
        ms(20);
        pthread_mutex_lock(&one);
        pthread_mutex_unlock(&one);
        pthread_mutex_unlock(&two);
        ms(1);
    }
    return unused;
}
static void abba(void)
{
    start(left, NULL);
    start(right, NULL);
    for (int i = 1;; i++) {
        push(&jobs, i);
        pop(&answers);
        ms(8);
    }
}

/* inherited: for ever, as a grandchild keeps the write end; main reads till EOF */
static void inherited(void)
{
    int ends[2];
    must(!pipe(ends));
    if (child("tool")) {
        for (int i = 1; i < 30; i++) {
            put(ends[1], i);
            ms(9);
        }
        if (!fork()) {
            is("keeper");
            for (;;)
                pause();
        }
        _exit(0);
    }
    close(ends[1]);
    while (get(ends[0]) > 0)
        burn(0.3);
}

/* deaf: a server of names drops one question, and the answer comes from the second server */
static int datagrams(struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t size = sizeof *at;
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    must(!bind(fd, (struct sockaddr *)at, size) && !getsockname(fd, (struct sockaddr *)at, &size));
    return fd;
}

static void answers_names(const char *role, int fd, int deaf_to)
{
    if (!child(role))
        return;
    for (unsigned char name;;) {
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        must(recvfrom(fd, &name, 1, 0, (struct sockaddr *)&from, &size) == 1);
        burn(0.3);
        if (name != deaf_to)
            must(sendto(fd, &name, 1, 0, (struct sockaddr *)&from, size) == 1);
    }
}

static void deaf(void)
{
    struct sockaddr_in own, servers[2];
    int first = datagrams(&servers[0]), second = datagrams(&servers[1]);
    answers_names("names", first, 25);
    answers_names("backup", second, -1);
    close(first);
    close(second);
    int fd = datagrams(&own);
    for (unsigned char name = 1; name < 40; name++) {
        struct pollfd look = {fd, POLLIN, 0};
        for (int server = 0;; server++) {
            must(sendto(fd, &name, 1, 0, (struct sockaddr *)&servers[server], sizeof own) == 1);
            if (poll(&look, 1, 700) == 1)
                break;
        }
        get(fd);
        ms(9);
    }
}

/* hundreds: a server of TCP with a thread for each connection; one request of hundreds makes it
 * look through a large file */
static void *handler(void *end)
{
    int fd = (intptr_t)end, asked = get(fd) << 8;
    asked |= get(fd);
    int table = open("/proc/self/exe", O_RDONLY);
    if (asked == 300)
        is("handler");
    char row[64];
    for (int i = 0; i < (asked == 300 ? 600000 : 20); i++)
        must(pread(table, row, sizeof row, i * 64 % 4096) == sizeof row);
    close(table);
    put(fd, 1);
    close(fd);
    return NULL;
}

static void hundreds(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    must(!bind(listener, (struct sockaddr *)&at, size) && !listen(listener, 50));
    must(!getsockname(listener, (struct sockaddr *)&at, &size));
    if (child("server"))
        for (;;)
            pthread_detach(start(handler, (void *)(intptr_t)accept(listener, NULL, NULL)));
    for (int i = 1; i <= 400; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        must(!connect(fd, (struct sockaddr *)&at, size));
        put(fd, i >> 8);
        put(fd, i & 255);
        get(fd);
        close(fd);
        ms(2);
    }
}

/* Two in which nothing is unusual. */
static void *consumer(void *unused)
{
    is("consumer");
    for (;;) {
        int job = pop(&jobs);
        burn(job % 7);
        push(&answers, job);
    }
    return unused;
}
static void steadyq(void)
{
    start(consumer, NULL);
    for (int i = 0; i < 100; i++) {
        push(&jobs, i);
        pop(&answers);
        if (i % 10 == 0)
            ms(15);
    }
}
static void forks(void)
{
    for (int i = 0; i < 40; i++) {
        int pid = fork();
        if (!pid) {
            is("job");
            burn(10 + i % 4 * 5);
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
}

int main(int count, char **words)
{
    static const struct scene scenes[] = {
        {"shared", shared}, {"semaphores", semaphores}, {"sysv", sysv},       {"events", events},
        {"relay", relay},   {"joined", joined},         {"tables", tables},   {"died", died},
        {"abba", abba},     {"inherited", inherited},   {"steadyq", steadyq}, {"forks", forks},
        {"deaf", deaf},     {"hundreds", hundreds},
    };
    must(count == 2);
    return play(scenes, sizeof scenes / sizeof *scenes, words[1]);
}
