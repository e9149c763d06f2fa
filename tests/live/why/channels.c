/* SPDX-License-Identifier: MIT */
/* Hangs over several processes, by pipes and sockets. */
#include "hangs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int input;

static void *read_input(void *unused)
{
    read_one(input);
    return unused;
}

/* main joins the worker, which reads from a process that is stopped. */
static void stopped_peer(const char *folder)
{
    int to[2];
    new_pipe(to);
    pid_t child = fork();
    if (child == 0) {
        close(to[0]);
        raise(SIGSTOP);
        sleep_long();
    }
    close(to[1]);
    input = to[0];
    pthread_t worker = start(read_input, NULL);
    truth("stopped", child, 0);
    pthread_join(worker, NULL);
}

/* The writer is moved into a frozen control group by the test. */
static void frozen_peer(const char *folder)
{
    int to[2];
    new_pipe(to);
    pid_t child = fork();
    if (child == 0) {
        close(to[0]);
        sleep_long();
    }
    close(to[1]);
    settle();
    truth("frozen", child, 0);
    read_one(to[0]);
}

/* The message never comes: its sender reads from a terminal. */
static void unsent_message(const char *folder)
{
    int ends[2];
    new_pair(ends);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        int master = posix_openpt(O_RDWR | O_NOCTTY);
        grantpt(master);
        unlockpt(master);
        read_one(open(ptsname(master), O_RDWR | O_NOCTTY));
    }
    close(ends[1]);
    settle();
    truth("input", child, child);
    read_one(ends[0]);
}

static struct sockaddr_un name_in(const char *folder)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s/s", folder);
    unlink(name.sun_path);
    return name;
}

/* The server sleeps instead of accepting. */
static void unaccepted(const char *folder)
{
    struct sockaddr_un name = name_in(folder);
    pid_t server = fork();
    if (server == 0) {
        int listener = socket(AF_UNIX, SOCK_STREAM, 0);
        bind(listener, (struct sockaddr *)&name, sizeof name);
        listen(listener, 4);
        sleep_long();
    }
    settle();
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(client, (struct sockaddr *)&name, sizeof name) != 0)
        exit(6);
    truth("timer", server, server);
    read_one(client);
}

static void *hold_and_sleep(void *announce)
{
    pthread_mutex_lock(&lock);
    int tid = own_tid();
    if (write(*(int *)announce, &tid, sizeof tid) < 0)
        exit(5);
    sleep_long();
    return NULL;
}

static void *serve(void *connection)
{
    char byte;
    if (read(*(int *)connection, &byte, 1) == 1)
        pthread_mutex_lock(&lock);
    return connection;
}

/* A thread of a TCP server wants the lock of one that sleeps; its main thread accepts others. */
static void tcp_server(const char *folder)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int announce[2], listener = socket(AF_INET, SOCK_STREAM, 0), holder;
    bind(listener, (struct sockaddr *)&at, sizeof at);
    listen(listener, 4);
    getsockname(listener, (struct sockaddr *)&at, &size);
    new_pipe(announce);
    pid_t server = fork();
    if (server == 0) {
        close(announce[0]);
        start(hold_and_sleep, &announce[1]);
        int connection = accept(listener, NULL, NULL);
        start(serve, &connection);
        accept(listener, NULL, NULL);
    }
    close(listener);
    close(announce[1]);
    if (read(announce[0], &holder, sizeof holder) < 0)
        exit(5);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(client, (struct sockaddr *)&at, sizeof at) != 0 || write(client, "?", 1) != 1)
        exit(6);
    settle();
    settle();
    truth("timer", server, holder);
    read_one(client);
}

static void *sleep_beside(void *unused)
{
    sleep_long();
    return unused;
}

/* The server waits for a request that was never sent, its client for the answer; a thread that
 * sleeps beside it has no part in it. */
static void lost_message(const char *folder)
{
    int ends[2];
    new_pair(ends);
    if (fork() == 0) {
        close(ends[0]);
        start(sleep_beside, NULL);
        int all = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        epoll_ctl(all, EPOLL_CTL_ADD, ends[1], &event);
        epoll_wait(all, &event, 1, -1);
    }
    close(ends[1]);
    settle();
    settle();
    truth("deadlock", 0, 0);
    read_one(ends[0]);
}

/* A proxy waits for its client and its server alike; the server is stopped. */
static void proxy(const char *folder)
{
    int front[2], back[2];
    new_pair(front), new_pair(back);
    pid_t server = fork();
    if (server == 0) {
        close(front[0]), close(front[1]), close(back[0]);
        raise(SIGSTOP);
        sleep_long();
    }
    if (fork() == 0) {
        close(front[0]), close(back[1]);
        int both = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        epoll_ctl(both, EPOLL_CTL_ADD, front[1], &event);
        epoll_ctl(both, EPOLL_CTL_ADD, back[0], &event);
        epoll_wait(both, &event, 1, -1);
    }
    close(front[1]), close(back[0]), close(back[1]);
    settle();
    truth("stopped", server, 0);
    read_one(front[0]);
}

/* The reader of a full pipe waits for its own input. */
static void full_pipe(const char *folder)
{
    char *path = new_fifo(folder);
    int to[2];
    new_pipe(to);
    pid_t reader = fork();
    if (reader == 0) {
        close(to[1]);
        read_one(open(path, O_RDWR));
    }
    close(to[0]);
    settle();
    truth("input", reader, reader);
    static char page[4096];
    for (;;)
        if (write(to[1], page, sizeof page) < 0)
            exit(6);
}

/* The reader has a FIFO open by both ends, twice, and nobody else has: others can open it. */
static void own_fifo(const char *folder)
{
    int fd = open(new_fifo(folder), O_RDWR);
    if (dup(fd) < 0)
        exit(6);
    truth("input", getpid(), getpid());
    read_one(fd);
}

/* The writer has ended, and the reader keeps the write end open itself. */
static void dead_peer(const char *folder)
{
    int to[2];
    new_pipe(to);
    if (fork() == 0)
        _exit(1);
    settle();
    truth("ended", getpid(), 0);
    read_one(to[0]);
}

/* Each waits for the other's answer. */
static void circle_of_pipes(const char *folder)
{
    int there[2], back[2];
    new_pipe(there), new_pipe(back);
    if (fork() == 0) {
        close(there[1]), close(back[0]);
        read_one(there[0]);
    }
    close(there[0]), close(back[1]);
    settle();
    truth("deadlock", 0, 0);
    read_one(back[0]);
}

/* No call blocks: read answers EAGAIN, again and again. */
static void asks_pipe(const char *folder)
{
    int to[2];
    char byte;
    if (pipe2(to, O_NONBLOCK) != 0)
        exit(5);
    pid_t child = fork();
    if (child == 0) {
        close(to[0]);
        raise(SIGSTOP);
    }
    close(to[1]);
    settle();
    truth("stopped", child, 0);
    while (read(to[0], &byte, 1) < 0)
        usleep(1000);
}

static volatile sig_atomic_t stop;

static void ask_to_stop(int number) { stop = number; }

/* Only the handler of a signal writes the word that it tests beside the poll. */
static void polls_peer(const char *folder)
{
    (void)folder;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        exit(5);
    signal(SIGTERM, ask_to_stop);
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        raise(SIGSTOP);
    }
    close(pair[1]);
    struct pollfd entry = {.fd = pair[0], .events = POLLIN};
    settle();
    truth("stopped", child, 0);
    while (!stop && poll(&entry, 1, 20) == 0)
        ;
}

static void asks_child(const char *folder)
{
    pid_t child = fork();
    if (child == 0)
        raise(SIGSTOP);
    settle();
    truth("stopped", child, 0);
    while (waitpid(child, NULL, WNOHANG) == 0)
        usleep(1000);
}

/* The message is sent once somebody types. */
static void message_queue(const char *folder)
{
    (void)folder;
    char name[64];
    snprintf(name, sizeof name, "/ff-hangs-%d", getpid());
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, NULL);
    mq_unlink(name);
    pid_t child = fork();
    if (child == 0) {
        int master = posix_openpt(O_RDWR | O_NOCTTY);
        grantpt(master);
        unlockpt(master);
        read_one(open(ptsname(master), O_RDWR | O_NOCTTY));
        mq_send(queue, "x", 1, 0);
    }
    settle();
    truth("input", child, child);
    char message[8192];
    if (mq_receive(queue, message, sizeof message, NULL) < 0)
        exit(4);
}

/* A program has filled its terminal, and the one that shows it waits for its end. */
static void unread_terminal(const char *folder)
{
    (void)folder;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(master);
    unlockpt(master);
    pid_t child = fork();
    if (child == 0) {
        int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
        close(master);
        while (write(terminal, "x", 1) == 1)
            ;
        exit(4);
    }
    settle();
    truth("deadlock", 0, 0);
    waitpid(child, NULL, 0);
}

static void *works_in_vain(void *unused)
{
    pthread_mutex_lock(&lock);
    return unused;
}

/* A server with a pool was started in the background, and has a pipe as its output. */
static void output_of_a_daemon(const char *folder)
{
    (void)folder;
    int to[2];
    new_pipe(to);
    pid_t child = fork();
    if (child == 0) {
        close(to[0]);
        dup2(to[1], 1);
        close(to[1]);
        pthread_mutex_lock(&lock);
        start(works_in_vain, NULL);
        start(works_in_vain, NULL);
        int listening = socket(AF_INET, SOCK_STREAM, 0);
        listen(listening, 1);
        accept(listening, NULL, NULL);
    }
    close(to[1]);
    usleep(600000);
    truth("input", child, child);
    read_one(to[0]);
}

const struct scenario in_channels[] = {
    {"stopped_peer", stopped_peer},
    {"frozen_peer", frozen_peer},
    {"unsent_message", unsent_message},
    {"unaccepted", unaccepted},
    {"tcp_server", tcp_server},
    {"lost_message", lost_message},
    {"proxy", proxy},
    {"full_pipe", full_pipe},
    {"own_fifo", own_fifo},
    {"dead_peer", dead_peer},
    {"circle_of_pipes", circle_of_pipes},
    {"asks_pipe", asks_pipe},
    {"polls_peer", polls_peer},
    {"asks_child", asks_child},
    {"message_queue", message_queue},
    {"unread_terminal", unread_terminal},
    {"output_of_a_daemon", output_of_a_daemon},
    {NULL, NULL},
};
