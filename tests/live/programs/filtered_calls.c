/* SPDX-License-Identifier: MIT */
/* A thread polls a word, the main thread sleeps with a limit of time. A filter of system calls ends
 * the process at any call that is not listed, such as restart_syscall. Argument: poll or sleep.
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ALLOW(number)                                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static volatile int flag;

static void *spin(void *unused)
{
    while (!flag)
        __builtin_ia32_pause();
    return unused;
}

int main(int count, char **words)
{
    struct sock_filter list[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write),
        ALLOW(SYS_poll),
        ALLOW(SYS_clock_nanosleep),
        ALLOW(SYS_exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof list / sizeof *list, list};
    struct timespec long_time = {1000, 0};
    pthread_t thread;
    pthread_create(&thread, NULL, spin, NULL);
    sleep(1);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter))
        return 77;
    if (write(1, "ready\n", 6) != 6)
        return 1;
    if (count > 1 && !strcmp(words[1], "poll"))
        poll(NULL, 0, 1000000);
    else
        clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, NULL);
    return 3;
}
