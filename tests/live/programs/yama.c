/* SPDX-License-Identifier: MIT */
/* Runs a command as under Yama, which few test machines have: yama SCOPE COMMAND.. A seccomp
 * filter asks this process about each ptrace and each file of /proc for which the kernel would ask
 * Yama. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCOPE_FILE "/proc/sys/kernel/yama/ptrace_scope"
#define MOST 64

static int scope;
/* Who may be traced by whom, as prctl said; -1: by anybody. */
static struct {
    int pid, by;
} said[MOST];
static int count;

static int status_of(int pid, const char *field)
{
    char path[64], line[256];
    int number = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, field, strlen(field)) == 0)
            number = atoi(line + strlen(field));
    if (file != NULL)
        fclose(file);
    return number;
}

static int descends(int pid, int from)
{
    for (; pid > 0; pid = status_of(pid, "PPid:"))
        if (pid == from)
            return 1;
    return 0;
}

static int may_attach(int caller, int target)
{
    caller = status_of(caller, "Tgid:");
    target = status_of(target, "Tgid:");
    if (scope == 0 || target == 0 || caller == target)
        return 1;
    int allowed = descends(target, caller);
    for (int at = 0; at < count; at++)
        allowed |= said[at].pid == target && (said[at].by < 0 || descends(caller, said[at].by));
    return scope == 1 && allowed;
}

/* The file that is opened; its process where the kernel asks Yama, else 0. */
static int guarded(const char *path)
{
    int pid, tid, length = 0;
    if (sscanf(path, "/proc/%d/task/%d/%n", &pid, &tid, &length) < 2 || length == 0)
        if (sscanf(path, "/proc/%d/%n", &pid, &length) < 1 || length == 0)
            return 0;
    const char *name = path + length;
    int is_asked = !strcmp(name, "mem") || !strcmp(name, "syscall") || !strcmp(name, "stack");
    return is_asked ? pid : 0;
}

static void answer(int listener)
{
    struct seccomp_notif asked = {0};
    struct seccomp_notif_resp reply = {0};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0)
        return;
    reply.id = asked.id;
    reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    __u64 *args = asked.data.args;
    int caller = asked.pid, error = 0;
    if (asked.data.nr == SYS_ptrace) {
        if (args[0] == PTRACE_ATTACH || args[0] == PTRACE_SEIZE)
            error = may_attach(caller, args[1]) ? 0 : EPERM;
        else if (args[0] == PTRACE_TRACEME && scope == 3)
            error = EPERM;
    } else if (asked.data.nr == SYS_prctl) {
        if (count < MOST) {
            said[count].pid = status_of(caller, "Tgid:");
            said[count++].by = args[1];
        }
        reply.flags = 0;
    } else if (asked.data.nr == SYS_openat) {
        char path[256] = "", memory[64];
        snprintf(memory, sizeof memory, "/proc/%d/mem", caller);
        int fd = open(memory, O_RDONLY);
        if (fd < 0 || pread(fd, path, sizeof path - 1, args[1]) <= 0)
            path[0] = 0;
        close(fd);
        int target = guarded(path);
        if (target != 0)
            error = may_attach(caller, target) ? 0 : EACCES;
        if (strcmp(path, SCOPE_FILE) == 0) {
            int file = memfd_create("scope", 0);
            dprintf(file, "%d\n", scope);
            lseek(file, 0, SEEK_SET);
            struct seccomp_notif_addfd given = {.id = asked.id,
                                                .flags = SECCOMP_ADDFD_FLAG_SEND,
                                                .srcfd = file,
                                                .newfd_flags = O_CLOEXEC};
            ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &given);
            close(file);
            return;
        }
    } else {
        error = may_attach(caller, args[0]) ? 0 : EPERM;
    }
    if (error != 0) {
        reply.flags = 0;
        reply.error = -error;
    }
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply);
}

static int filtered(void)
{
#define ASK(number)                                                                                \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),                                             \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ASK(SYS_ptrace),
        ASK(SYS_process_vm_readv),
        ASK(SYS_process_vm_writev),
        ASK(SYS_openat),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        ASK(PR_SET_PTRACER),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                   &program);
}

int main(int argc, char **argv)
{
    int told[2], status, number;
    if (argc < 3 || pipe2(told, O_CLOEXEC) != 0)
        return 99;
    scope = atoi(argv[1]);
    pid_t child = fork();
    if (child == 0) {
        number = filtered();
        if (write(told[1], &number, sizeof number) != sizeof number)
            _exit(98);
        raise(SIGSTOP); /* until the listener is taken */
        execvp(argv[2], argv + 2);
        _exit(98);
    }
    if (read(told[0], &number, sizeof number) != sizeof number || number < 0)
        return 99;
    int handle = syscall(SYS_pidfd_open, child, 0);
    int listener = syscall(SYS_pidfd_getfd, handle, number, 0);
    if (listener < 0 || waitpid(child, &status, WUNTRACED) != child)
        return 99;
    struct pollfd ready[] = {{listener, POLLIN, 0}, {handle, POLLIN, 0}};
    signal(SIGINT, SIG_IGN);
    kill(child, SIGCONT);
    for (;;) {
        poll(ready, 2, -1);
        if (ready[0].revents & POLLIN)
            answer(listener);
        else if (ready[1].revents != 0)
            break;
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
}
