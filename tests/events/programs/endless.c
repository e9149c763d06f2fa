/* SPDX-License-Identifier: MIT */
/* Waits that never end: main waits for the culprit in one known way, until an alarm ends it all,
 *   after the seconds that the third word tells, else after four. Prints `main TID`, `culprit TID`
 *   and, of a deadlock, `other TID`.
 *
 * deadlock: main waits for the end of a thread; two threads wait for each other's lock.
 * unix, tcp: for the answer of a process that has read the request, and sleeps.
 * backlog: of one that listens, and never accepts.
 * child: for the end of a process. file: for its lock on a file, whose name is the next word.
 * writer: for a thread that holds a read-write lock for writing. */
#include "crowd.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>

enum { SECONDS = 4, PAUSE_US = 50000 };

static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_barrier_t together;

static void *cross(void *which)
{
    int own = which != NULL;
    tell(own ? "culprit" : "other");
    pthread_mutex_lock(&locks[own]);
    pthread_barrier_wait(&together);
    usleep(PAUSE_US);
    pthread_mutex_lock(&locks[!own]);
    return NULL;
}

static void deadlock(void)
{
    pthread_t threads[2];
    pthread_barrier_init(&together, NULL, 2);
    if (pthread_create(&threads[0], NULL, cross, NULL) ||
        pthread_create(&threads[1], NULL, cross, &together))
        abort();
    pthread_join(threads[0], NULL);
}

/* In the process that owes what main waits for. It ends with main. */
static void sleep_for_ever(void)
{
    tell("culprit");
    for (;;)
        pause();
}

static void *writes(void *lock)
{
    pthread_rwlock_wrlock(lock);
    pthread_barrier_wait(&together);
    sleep_for_ever();
    return NULL;
}

static void behind_a_writer(void)
{
    static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    pthread_t thread;
    pthread_barrier_init(&together, NULL, 2);
    if (pthread_create(&thread, NULL, writes, &lock))
        abort();
    pthread_barrier_wait(&together);
    pthread_rwlock_rdlock(&lock);
}

static int is_culprit(void)
{
    if (fork())
        return 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return 1;
}

static void ask(int connection)
{
    char byte = 1;
    if (write(connection, &byte, 1) != 1 || read(connection, &byte, 1) == 1)
        abort();
}

static void hear(int connection)
{
    char byte;
    if (read(connection, &byte, 1) != 1)
        abort();
    sleep_for_ever();
}

static void over_unix_socket(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        abort();
    int ours = is_culprit();
    close(ends[!ours]);
    if (ours)
        hear(ends[1]);
    ask(ends[0]);
}

static void over_loopback(int accepts)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listening = socket(AF_INET, SOCK_STREAM, 0), connection = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listening, (void *)&at, length) || listen(listening, 1) ||
        getsockname(listening, (void *)&at, &length))
        abort();
    if (is_culprit()) {
        close(connection);
        if (accepts)
            hear(accept(listening, NULL, NULL));
        sleep_for_ever();
    }
    close(listening);
    if (connect(connection, (void *)&at, length))
        abort();
    ask(connection);
}

static void for_file(const char *name)
{
    if (is_culprit()) {
        if (flock(open(name, O_RDWR | O_CREAT, 0600), LOCK_EX))
            abort();
        sleep_for_ever();
    }
    usleep(4 * PAUSE_US);
    flock(open(name, O_RDWR), LOCK_EX);
}

int main(int count, char **words)
{
    const char *mode = count > 1 ? words[1] : "";
    tell("main");
    come_together();
    alarm(count > 3 ? atoi(words[3]) : SECONDS);
    if (!strcmp(mode, "deadlock"))
        deadlock();
    else if (!strcmp(mode, "writer"))
        behind_a_writer();
    else if (!strcmp(mode, "unix"))
        over_unix_socket();
    else if (!strcmp(mode, "tcp") || !strcmp(mode, "backlog"))
        over_loopback(!strcmp(mode, "tcp"));
    else if (!strcmp(mode, "file") && count > 2)
        for_file(words[2]);
    else if (!strcmp(mode, "child")) {
        if (is_culprit())
            sleep_for_ever();
        wait(NULL);
    }
    return 2;
}
