/* SPDX-License-Identifier: MIT */
/* Hangs of small services: `service HANG FOLDER` says that it begins, and stands a moment later. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[256];

struct table {
    pthread_mutex_t lock;
    int rows;
};

static struct table table = {PTHREAD_MUTEX_INITIALIZER, 0};
static pthread_mutex_t other_lock = PTHREAD_MUTEX_INITIALIZER;

static void *listen_forever(void *unused)
{
    (void)unused;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int server = socket(AF_INET, SOCK_STREAM, 0);
    bind(server, (struct sockaddr *)&at, sizeof at);
    listen(server, 8);
    for (;;)
        close(accept(server, NULL, NULL));
}

static void *beat(void *unused)
{
    (void)unused;
    for (;;) {
        usleep(200000);
        pthread_mutex_lock(&other_lock);
        pthread_mutex_unlock(&other_lock);
    }
}

static void start(void *(*function)(void *), void *with)
{
    pthread_t thread;
    pthread_create(&thread, NULL, function, with);
    pthread_detach(thread);
}

__attribute__((noinline)) static int load(struct table *into, int rows)
{
    pthread_mutex_lock(&into->lock);
    if (rows < 0)
        return -1;
    into->rows += rows;
    pthread_mutex_unlock(&into->lock);
    return 0;
}

static void *load_each(void *unused)
{
    (void)unused;
    load(&table, 2);
    load(&table, -1);
    struct pollfd nothing = {.fd = 0, .events = POLLIN};
    poll(&nothing, 1, -1);
    return NULL;
}

/* A lock was left locked by an early return; who did it waits for input by now. */
static void left(void)
{
    start(load_each, NULL);
    usleep(300000);
    load(&table, 1);
}

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t pool_free = PTHREAD_COND_INITIALIZER;
static int free_connections = 1;

static void take_connection(void)
{
    pthread_mutex_lock(&pool_lock);
    while (free_connections == 0)
        pthread_cond_wait(&pool_free, &pool_lock);
    free_connections--;
    pthread_mutex_unlock(&pool_lock);
}

static void give_connection(void)
{
    pthread_mutex_lock(&pool_lock);
    free_connections++;
    pthread_cond_signal(&pool_free);
    pthread_mutex_unlock(&pool_lock);
}

static void *query(void *connection)
{
    char answer;
    take_connection();
    write(*(int *)connection, "q", 1);
    read(*(int *)connection, &answer, 1);
    give_connection();
    return NULL;
}

static void lock_file(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/data", folder);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    flock(file, LOCK_EX);
}

static void database(int connection)
{
    char asked;
    read(connection, &asked, 1);
    lock_file();
    write(connection, "a", 1);
    pause();
}

static void backup(void)
{
    lock_file();
    sleep(3600);
}

/* All wait for a connection; who has it waits for a database, and that for a backup's lock. */
static void connections(void)
{
    if (fork() == 0)
        backup();
    usleep(300000);
    static int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    if (fork() == 0) {
        close(pair[0]);
        database(pair[1]);
    }
    close(pair[1]);
    start(listen_forever, NULL);
    start(beat, NULL);
    start(query, &pair[0]);
    usleep(300000);
    take_connection();
}

static int log_pipe[2];

static void *read_log(void *unused)
{
    (void)unused;
    char some[4096];
    for (;;) {
        pthread_mutex_lock(&table.lock);
        ssize_t got = read(log_pipe[0], some, sizeof some);
        pthread_mutex_unlock(&table.lock);
        if (got <= 0)
            return NULL;
        usleep(2000);
    }
}

/* It waits for its child under a lock; who would read the child's output wants the lock. */
static void output(void)
{
    pipe(log_pipe);
    fcntl(log_pipe[0], F_SETFD, FD_CLOEXEC);
    pthread_mutex_lock(&table.lock);
    start(read_log, NULL);
    usleep(200000);
    pid_t child = fork();
    if (child == 0) {
        static char line[1000];
        memset(line, 'x', sizeof line);
        close(log_pipe[0]);
        for (int n = 0; n < 1000; n++)
            write(log_pipe[1], line, sizeof line);
        _exit(0);
    }
    close(log_pipe[1]);
    waitpid(child, NULL, 0);
    pthread_mutex_unlock(&table.lock);
}

static sem_t slots;

static void *slot(void *unused)
{
    (void)unused;
    sem_wait(&slots);
    char byte;
    read(0, &byte, 1);
    sem_post(&slots);
    return NULL;
}

/* A semaphore's slots are taken by threads that read. */
static void semaphore(void)
{
    sem_init(&slots, 0, 2);
    start(slot, NULL);
    start(slot, NULL);
    usleep(300000);
    sem_wait(&slots);
}

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    snprintf(folder, sizeof folder, "%s", words[2]);
    puts("begins");
    fflush(stdout);
    if (strcmp(words[1], "connections") != 0) {
        start(listen_forever, NULL);
        start(beat, NULL);
    }
    if (strcmp(words[1], "left") == 0)
        left();
    else if (strcmp(words[1], "connections") == 0)
        connections();
    else if (strcmp(words[1], "output") == 0)
        output();
    else
        semaphore();
    return 0;
}
