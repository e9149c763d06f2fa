/* SPDX-License-Identifier: MIT */
/* A thread sleeps for ever in each of many calls, and one polls a word. Whatever returns is
 * printed. Argument: a file whose open never comes back.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <netinet/in.h>

#define HOUR 3600
static const char *slow;
static char folder[] = "/tmp/sleeping-calls-XXXXXX";
static char data[1 << 20];
static volatile int ready;
static int word;
// In memory that is only read the kernel can't note how much of the time is left.
static const struct timespec long_time = {.tv_sec = HOUR};

static char *in_folder(const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

static int empty_pipe(int end)
{
    int ends[2];
    return pipe(ends) == 0 ? ends[end] : -1;
}

static int pair(int kind)
{
    int ends[2];
    return socketpair(AF_UNIX, kind, 0, ends) == 0 ? ends[0] : -1;
}

static int limited(int option)
{
    struct timeval hour = {.tv_sec = HOUR};
    int fd = pair(SOCK_STREAM);
    setsockopt(fd, SOL_SOCKET, option, &hour, sizeof hour);
    return fd;
}

// A connected pair over TCP; the sender's end.
static int tcp(int *other)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&at, size);
    listen(listener, 1);
    getsockname(listener, (struct sockaddr *)&at, &size);
    connect(fd, (struct sockaddr *)&at, size);
    *other = accept(listener, NULL, NULL);
    return fd;
}

static int terminal(int minimum)
{
    struct termios raw;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(master);
    unlockpt(master);
    int fd = open(ptsname(master), O_RDWR | O_NOCTTY);
    tcgetattr(fd, &raw);
    cfmakeraw(&raw);
    raw.c_cc[VMIN] = minimum;
    tcsetattr(fd, TCSANOW, &raw);
    return fd;
}

#define CALL(name, ...)                                                                            \
    static long name(void) { __VA_ARGS__ }
CALL(open_slow, return open(slow, O_RDONLY);)
CALL(stat_slow, return access(slow, R_OK);)
CALL(open_fifo, char *path = in_folder("fifo"); mkfifo(path, 0600); return open(path, O_RDONLY);)
CALL(read_pipe, return read(empty_pipe(0), data, 8);)
CALL(write_pipe, return write(empty_pipe(1), data, sizeof data);)
CALL(write_full, int fd = empty_pipe(1); fcntl(fd, F_SETPIPE_SZ, 4096);
     return write(fd, data, 4096) == 4096 ? write(fd, data, 4096) : -1;)
CALL(send_stream, return send(pair(SOCK_STREAM), data, sizeof data, 0);)
CALL(send_tcp, int other; return send(tcp(&other), malloc(64 << 20), 64 << 20, 0);)
CALL(send_limited, return send(limited(SO_SNDTIMEO), data, sizeof data, 0);)
CALL(recv_stream, return recv(pair(SOCK_STREAM), data, 8, 0);)
CALL(recv_limited, return recv(limited(SO_RCVTIMEO), data, 8, 0);)
CALL(recv_all, int other; int fd = tcp(&other); send(other, "half", 4, 0);
     return recv(fd, data, 8, MSG_WAITALL);)
CALL(recv_many, int ends[2]; socketpair(AF_UNIX, SOCK_DGRAM, 0, ends); send(ends[1], "one", 3, 0);
     struct iovec into = {data, 8}; struct mmsghdr heads[2]; memset(heads, 0, sizeof heads);
     heads[0].msg_hdr.msg_iov = &into; heads[0].msg_hdr.msg_iovlen = 1; heads[1] = heads[0];
     return recvmmsg(ends[0], heads, 2, 0, NULL);)
CALL(accept_any, struct sockaddr_un at = {.sun_family = AF_UNIX};
     int fd = socket(AF_UNIX, SOCK_STREAM, 0);
     bind(fd, (struct sockaddr *)&at, sizeof(sa_family_t)); listen(fd, 1);
     return accept(fd, NULL, NULL);)
CALL(connect_limited, struct sockaddr_un at = {.sun_family = AF_UNIX}; socklen_t size = sizeof at;
     struct timeval hour = {.tv_sec = HOUR}; int fd = socket(AF_UNIX, SOCK_STREAM, 0);
     bind(fd, (struct sockaddr *)&at, sizeof(sa_family_t)); listen(fd, 0);
     getsockname(fd, (struct sockaddr *)&at, &size);
     connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&at, size);
     fd = socket(AF_UNIX, SOCK_STREAM, 0);
     setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &hour, sizeof hour);
     return connect(fd, (struct sockaddr *)&at, size);)
CALL(read_event, return read(eventfd(0, 0), data, 8);)
CALL(write_event, int fd = eventfd(0, 0); unsigned long most = -2ul;
     return write(fd, &most, 8) == 8 ? write(fd, &most, 8) : -1;)
CALL(read_timer, return read(timerfd_create(CLOCK_MONOTONIC, 0), data, 8);)
CALL(read_signal, sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR1);
     return read(signalfd(-1, &set, 0), data, sizeof(struct signalfd_siginfo));)
CALL(read_inotify, return read(inotify_init(), data, sizeof data);)
CALL(read_terminal, return read(terminal(1), data, 1);)
CALL(poll_pipe, struct pollfd one = {empty_pipe(0), POLLIN, 0}; return poll(&one, 1, -1);)
CALL(ppoll_constant, struct pollfd one = {empty_pipe(0), POLLIN, 0};
     return syscall(SYS_ppoll, &one, 1, &long_time, NULL, 8);)
CALL(select_constant, fd_set set; FD_ZERO(&set); int fd = empty_pipe(0); FD_SET(fd, &set);
     return syscall(SYS_pselect6, fd + 1, &set, NULL, NULL, &long_time, NULL);)
CALL(wait_epoll, struct epoll_event one; return epoll_wait(epoll_create1(0), &one, 1, -1);)
CALL(sleep_long, return nanosleep(&long_time, NULL);)
CALL(sleep_clock, return clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, NULL);)
CALL(wait_futex, return syscall(SYS_futex, &word, FUTEX_WAIT, 0, &long_time, NULL, 0);)
CALL(pause_it, return pause();)
CALL(suspend, sigset_t none; sigemptyset(&none); return sigsuspend(&none);)
CALL(wait_signal, sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR2);
     return sigtimedwait(&set, NULL, &long_time);)
CALL(
    wait_child, pid_t child = fork(); if (child == 0) {
        for (;;)
            pause();
    } return waitpid(child, NULL, 0);)
CALL(take_semaphore, struct sembuf take = {0, -1, 0}; int id = semget(IPC_PRIVATE, 1, 0600);
     semctl(id, 0, SETVAL, 0); printf("semaphore %d\n", id); fflush(stdout);
     return semop(id, &take, 1);)
CALL(take_message, int id = msgget(IPC_PRIVATE, 0600); printf("queue %d\n", id); fflush(stdout);
     return msgrcv(id, data, 8, 0, 0);)
CALL(lock_file, char *path = in_folder("lock"); flock(open(path, O_CREAT | O_RDWR, 0600), LOCK_EX);
     return flock(open(path, O_RDWR), LOCK_EX);)
CALL(lock_range, struct flock all = {.l_type = F_WRLCK}; char *path = in_folder("range");
     fcntl(open(path, O_CREAT | O_RDWR, 0600), F_OFD_SETLK, &all);
     return fcntl(open(path, O_RDWR), F_OFD_SETLKW, &all);)
CALL(wait_ring, struct io_uring_params set = {0}; int fd = syscall(SYS_io_uring_setup, 4, &set);
     return fd < 0 ? pause()
                   : syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);)
CALL(
    wait_events, unsigned long context = 0; struct { long x[4]; } one;
    if (syscall(SYS_io_setup, 1, &context) != 0) return pause();
    return syscall(SYS_io_getevents, context, 1, 1, &one, NULL);)
CALL(
    linger, long result; time_t begin;
    /* Beside threads that begin, the kernel at times waits for nothing. No look is so early. */
    do {
        int other, small = 4096;
        struct linger long_one = {1, HOUR};
        int fd = tcp(&other);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &long_one, sizeof long_one);
        /* A buffer of a size that was asked for does not grow. */
        setsockopt(other, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        /* What is on its way to the other end makes room once more. */
        for (int again = 0; again < 20; again++, usleep(20000))
            while (send(fd, data, sizeof data, MSG_DONTWAIT) > 0) {}
        begin = time(NULL);
        result = close(fd);
    } while (time(NULL) == begin);
    return result;)

#define EACH(call) {#call, call}
static const struct {
    const char *name;
    long (*call)(void);
} calls[] = {
    EACH(open_slow),      EACH(stat_slow),    EACH(open_fifo),       EACH(read_pipe),
    EACH(write_pipe),     EACH(write_full),   EACH(send_stream),     EACH(send_tcp),
    EACH(send_limited),   EACH(recv_stream),  EACH(recv_limited),    EACH(recv_all),
    EACH(recv_many),      EACH(accept_any),   EACH(connect_limited), EACH(read_event),
    EACH(write_event),    EACH(read_timer),   EACH(read_signal),     EACH(read_inotify),
    EACH(read_terminal),  EACH(poll_pipe),    EACH(ppoll_constant),  EACH(select_constant),
    EACH(wait_epoll),     EACH(sleep_long),   EACH(sleep_clock),     EACH(wait_futex),
    EACH(pause_it),       EACH(suspend),      EACH(wait_signal),     EACH(wait_child),
    EACH(take_semaphore), EACH(take_message), EACH(lock_file),       EACH(lock_range),
    EACH(wait_ring),      EACH(wait_events),  EACH(linger),
};

static void *sleeps(void *number)
{
    size_t at = (size_t)number;
    pthread_setname_np(pthread_self(), calls[at].name);
    errno = 0;
    long result = calls[at].call();
    printf("returned %s %ld %s\n", calls[at].name, result,
           result < 0 ? strerrorname_np(errno) : "");
    fflush(stdout);
    for (;;)
        pause();
    return number;
}

int main(int argc, char **argv)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (argc < 2 || mkdtemp(folder) == NULL)
        return 1;
    slow = argv[1];
    printf("folder %s\n", folder);
    fflush(stdout);
    for (size_t number = 0; number < sizeof calls / sizeof *calls; number++) {
        pthread_t thread;
        pthread_create(&thread, NULL, sleeps, (void *)number);
    }
    while (!ready)
        sched_yield();
    return 0;
}
