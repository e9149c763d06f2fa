/* SPDX-License-Identifier: MIT */
// A thread that waits for `done` in the way that its argument names. Prints the addresses of its
// words first.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int done;
// 9: the loop says so in each round.
static volatile int mood = 5;
// Not 0: the loop follows a pointer that leads nowhere.
static volatile int follows;
static volatile int word;

static void round_of_yield(void) {
    sched_yield();
    if (mood == 9) puts("nine");
    if (follows) *(volatile int *)8 = 1;
}

static void wait_by_yield(void) {
    while (!done) round_of_yield();
}

static unsigned table[256];

// A round computes for some 50,000 instructions.
static void wait_and_compute(void) {
    while (!done)
        for (unsigned step = 0, place = 1; step < 6000; step++) {
            place = place * 1664525u + 1013904223u;
            table[place >> 24] += place;
        }
}

static void wait_for_pair(void) {
    while (!done || mood != 1) sched_yield();
}

// What comes in is taken, and the own index moved on.
static void wait_for_ring(void) {
    static volatile int items[8], taken;
    for (;;) {
        while (done == follows) sched_yield();
        taken += items[done % 8];
        done = done + 1;
    }
}

// One thing after another.
static void wait_in_turn(void) {
    volatile int *const all[] = {&done, &word};
    for (int at = 0; at < 2; at++) {
        while (!*all[at]) sched_yield();
    }
}

// Again and again; the number of the round is in no word.
static void wait_in_rounds(void) {
    for (unsigned round = 1;; round++) {
        while (!done) round_of_yield();
        done = 0;
        word = (int)round;
    }
}

// An optimistic look: while the lock is taken (`mood` is 1) the thread waits for that, and looks
// again.
static void look_optimistically(void) {
    while (!done) {
        sched_yield();
        while (mood == 1) sched_yield();
    }
}

// A handshake: it says that it saw the word, and waits until that is taken back.
static void shake_hands(void) {
    for (;;) {
        while (!done) sched_yield();
        word = 1;
        while (done) sched_yield();
        word = 0;
    }
}

static void wait_by_sleep(void) {
    while (!done) usleep(1000);
}

static void wait_by_clock(void) {
    struct timespec now;
    while (!done) clock_gettime(CLOCK_MONOTONIC, &now);
}

static void wait_by_poll(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (!done) poll(&input, 1, 10);
}

// Something waits in a socket; with another mood it is read.
static void wait_by_epoll(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) < 0) _exit(2);
    const int waits = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = 77}};
    if (epoll_ctl(waits, EPOLL_CTL_ADD, ends[0], &event) < 0 || write(ends[1], "word", 4) != 4)
        _exit(2);
    while (!done) {
        char text[8];
        if (epoll_wait(waits, &event, 1, 10) == 1 && event.data.u64 != 77) _exit(2);
        if (mood != 5 && read(ends[0], text, sizeof text) == 4 && memcmp(text, "word", 4) != 0)
            _exit(2);
    }
}

// What a path or a descriptor names is asked; an answer that is not the kernel's ends the process
// by a fault.
static void wait_by_path(void) {
    struct stat found, again;
    char byte = 0;
    while (!done) {
        const int missing = access("/no/such/file", F_OK), there = access("/", R_OK);
        const int named = stat("/", &found), opened = fstatat(3, "", &again, AT_EMPTY_PATH);
        const ssize_t got = pread(3, &byte, 1, 0);
        const int right = missing == -1 && there == 0 && named == 0 && S_ISDIR(found.st_mode) &&
                          found.st_ino != 0 && opened == 0 && S_ISREG(again.st_mode) && got == 0;
        if (!right) *(volatile int *)24 = 1;
    }
}

// A regular file is read from its beginning in each round; one that is not there is not opened.
static void wait_by_open(void) {
    char name[64], text[8];
    struct stat found;
    snprintf(name, sizeof name, "/tmp/replica-patient-%d", (int)getpid());
    FILE *file = fopen(name, "w");
    if (file == NULL || fputs("words\n", file) < 0 || fclose(file) != 0) _exit(2);
    while (!done) {
        const int fd = open(name, O_RDONLY | O_CLOEXEC), none = open("/no/such/file", O_RDONLY);
        const ssize_t got = read(fd, text, sizeof text), rest = read(fd, text, sizeof text);
        const off_t end = lseek(fd, 0, SEEK_END);
        const int told = fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && close(fd) == 0;
        const int right = got == 6 && rest == 0 && end == 6 && none == -1 && told;
        const int own = open("/proc/self/stat", O_RDONLY);
        const long id = read(own, text, sizeof text) > 0 ? strtol(text, NULL, 10) : 0;
        if (!right || close(own) != 0 || id != getpid()) *(volatile int *)40 = 1;
    }
}

// Others may read meanwhile.
static void wait_by_lock(void) {
    FILE *file = tmpfile();
    while (!done) {
        struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
        const int got = fcntl(fileno(file), F_SETLK, &lock);
        lock.l_type = F_UNLCK;
        if (got != 0 || fcntl(fileno(file), F_SETLK, &lock) != 0) *(volatile int *)48 = 1;
    }
}

// A child that goes on, and one that there is not.
static void wait_by_child(void) {
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    while (!done) {
        siginfo_t info = {.si_pid = 1};
        const int going = waitpid(child, NULL, WNOHANG), any = waitpid(-1, NULL, WNOHANG);
        const int exited = waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG);
        const int none = waitpid(getpid(), NULL, WNOHANG), why = errno;
        if (going || any || exited || info.si_pid || none != -1 || why != ECHILD)
            *(volatile int *)32 = 1;
    }
}

// One that has ended is still there to be taken.
static void wait_beside_zombie(void) {
    siginfo_t info;
    const pid_t child = fork();
    if (child == 0) _exit(3);
    waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
    while (!done) sched_yield();
    while (waitpid(child, NULL, WNOHANG) == child) sched_yield();
}

// The input is a file at its end.
static void wait_by_read(void) {
    char byte;
    while (!done && read(3, &byte, 1) == 0) sched_yield();
}

// Memory that the program had before, and that it gives back in each round.
static void wait_by_giving_back(void) {
    const size_t size = 8192;
    const int rights = PROT_READ | PROT_WRITE, sort = MAP_PRIVATE | MAP_ANONYMOUS;
    volatile char *own = mmap(NULL, size, rights, sort, -1, 0);
    while (!done) {
        own[0] = own[size - 1] = 1;
        const int told = madvise((void *)own, size, MADV_DONTNEED);
        if (told != 0 || own[0] != 0 || own[size - 1] != 0) *(volatile int *)48 = 1;
    }
}

static void wait_by_futex(void) {
    struct timespec time = {.tv_nsec = 1000000};
    while (!done) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0);
}

static void wait_with_vector(void) {
    double given = 1234.5, kept;
    __asm__ volatile("movsd %0, %%xmm7" ::"m"(given) : "xmm7");
    while (!done) {
        __asm__ volatile("pause; movsd %%xmm7, %0" : "=m"(kept)::"memory");
        if (memcmp(&kept, &given, sizeof kept) != 0) *(volatile int *)16 = 1;
    }
}

static void wait_blocked(void) {
    char byte;
    while (!done && read(0, &byte, 1) != 0) continue;
}

// From here on nothing spins: the thread waits, and then writes.
static void write_after_read(void) {
    char byte;
    if (read(0, &byte, 1) > 0) done = 1;
    for (;;) pause();
}

static void write_at_end(void) {
    char line[4096];
    while (read(0, line, sizeof line) > 0) continue;
    done = 7;
    for (;;) pause();
}

static void write_nothing_new(void) {
    char byte;
    read(0, &byte, 1);
    done = 0;
    mood = 6;
    for (;;) pause();
}

static void write_after_work(void) {
    volatile unsigned long work = 0;
    char byte;
    read(0, &byte, 1);
    for (unsigned long round = 0; round < 100000000; round++) work += round;
    done = (int)(work != 0);
    for (;;) pause();
}

static void write_when_woken(void) {
    while (word == 0) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    done = 3;
    for (;;) pause();
}

static void write_after_poll(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    poll(&input, 1, -1);
    if ((input.revents & POLLIN) && read(0, &byte, 1) == 1) done = 4;
    for (;;) pause();
}

// Nobody opens the other end.
static void write_after_open(void) {
    char name[64], line[64];
    snprintf(name, sizeof name, "/tmp/replica-fifo-%d", (int)getpid());
    if (mkfifo(name, 0600) != 0) _exit(2);
    FILE *fifo = fopen(name, "r");
    while (fifo != NULL && fgets(line, sizeof line, fifo) != NULL) word++;
    done = word;
    for (;;) pause();
}

static void work_for_ever(void) {
    volatile unsigned long work = 0;
    char byte;
    read(0, &byte, 1);
    for (;;) work++;
}

static void count_for_ever(void) {
    for (;;) follows++;
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    FILE *empty = tmpfile();
    if (empty == NULL || dup2(fileno(empty), 3) != 3) return 2;
    printf("%p %p %p %p\n", (void *)&done, (void *)&mood, (void *)&follows, (void *)&word);
    fflush(stdout);
    if (strcmp(way, "yield") == 0) wait_by_yield();
    if (strcmp(way, "long") == 0) wait_and_compute();
    if (strcmp(way, "pair") == 0) wait_for_pair();
    if (strcmp(way, "ring") == 0) wait_for_ring();
    if (strcmp(way, "turns") == 0) wait_in_turn();
    if (strcmp(way, "rounds") == 0) wait_in_rounds();
    if (strcmp(way, "optimist") == 0) look_optimistically();
    if (strcmp(way, "hands") == 0) shake_hands();
    if (strcmp(way, "sleep") == 0) wait_by_sleep();
    if (strcmp(way, "clock") == 0) wait_by_clock();
    if (strcmp(way, "poll") == 0) wait_by_poll();
    if (strcmp(way, "epoll") == 0) wait_by_epoll();
    if (strcmp(way, "read") == 0) wait_by_read();
    if (strcmp(way, "futex") == 0) wait_by_futex();
    if (strcmp(way, "path") == 0) wait_by_path();
    if (strcmp(way, "open") == 0) wait_by_open();
    if (strcmp(way, "locks") == 0) wait_by_lock();
    if (strcmp(way, "gives") == 0) wait_by_giving_back();
    if (strcmp(way, "child") == 0) wait_by_child();
    if (strcmp(way, "zombie") == 0) wait_beside_zombie();
    if (strcmp(way, "vector") == 0) wait_with_vector();
    if (strcmp(way, "block") == 0) wait_blocked();
    if (strcmp(way, "reads") == 0) write_after_read();
    if (strcmp(way, "ends") == 0) write_at_end();
    if (strcmp(way, "same") == 0) write_nothing_new();
    if (strcmp(way, "works") == 0) write_after_work();
    if (strcmp(way, "woken") == 0) write_when_woken();
    if (strcmp(way, "polls") == 0) write_after_poll();
    if (strcmp(way, "opens") == 0) write_after_open();
    if (strcmp(way, "computes") == 0) work_for_ever();
    if (strcmp(way, "counts") == 0) count_for_ever();
    puts("left");
    return 0;
}
