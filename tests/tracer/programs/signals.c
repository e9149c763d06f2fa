/* SPDX-License-Identifier: MIT */
/* What tracers get wrong about signals; argv[1] chooses. Prints "ok". */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { ALARMS = 3000, EPOLL_PWAIT2 = 441 };

static volatile sig_atomic_t users, alarms;

static void count(int number)
{
    if (number == SIGALRM)
        alarms++;
    else
        users++;
}

static sigset_t only(int number)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    return one;
}

static void nap(void)
{
    struct timespec while_signals_arrive = {0, 20000};
    nanosleep(&while_signals_arrive, NULL);
}

/* A timer that runs out while another signal is delivered: each is delivered once. */
static int timers(void)
{
    struct sigaction action = {.sa_handler = count};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    for (int i = 1; i <= ALARMS; i++) {
        struct itimerval soon = {.it_value = {0, 1 + i % 10}};
        setitimer(ITIMER_REAL, &soon, NULL);
        kill(getpid(), SIGUSR1);
        for (int tries = 0; tries < 50000 && (users < i || alarms < i); tries++)
            nap();
    }
    for (int i = 0; i < 100; i++)
        nap();
    return users == ALARMS && alarms == ALARMS;
}

static int pipe_ends[2];

static void write_byte(int number)
{
    alarms++;
    if (number == SIGALRM && write(pipe_ends[1], "x", 1) != 1)
        _exit(1);
}

static int read_byte(void)
{
    char byte;
    ssize_t got;
    do
        got = read(pipe_ends[0], &byte, 1);
    while (got < 0 && errno == EINTR);
    return got == 1;
}

static void ring_soon(int i)
{
    struct itimerval soon = {.it_value = {0, 1 + i % 40}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

/* A signal that arrives on the way into a call that sleeps: its handler, or the call's end, is what
 * the call waits for. */
static int woken(void)
{
    struct sigaction action = {.sa_handler = write_byte};
    sigset_t alarm = only(SIGALRM), before;
    if (pipe(pipe_ends) != 0)
        return 0;
    for (int i = 0; i < ALARMS; i++) {
        action.sa_flags = i % 2 == 0 ? SA_RESTART : 0;
        sigaction(SIGALRM, &action, NULL);
        ring_soon(i);
        if (!read_byte())
            return 0;
    }
    sigprocmask(SIG_BLOCK, &alarm, &before);
    for (int i = 0; i < ALARMS; i++) {
        ring_soon(i);
        while (alarms <= ALARMS + i) {
            int result = i % 2 == 0 ? sigsuspend(&before) : ppoll(NULL, 0, NULL, &before);
            if (result != -1 || errno != EINTR)
                return 0;
        }
        if (!read_byte())
            return 0;
    }
    return 1;
}

/* What a signal does to a call that sleeps already: SA_RESTART decides. */
static int interrupted(void)
{
    struct itimerval twice = {{0, 30000}, {0, 30000}};
    struct sigaction action = {.sa_handler = write_byte};
    char byte;
    int other[2];
    if (pipe(pipe_ends) != 0 || pipe(other) != 0)
        return 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &twice, NULL);
    if (read(other[0], &byte, 1) != -1 || errno != EINTR || alarms == 0)
        return 0;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    return read_byte() && read(pipe_ends[0], &byte, 1) == 1;
}

static int is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static int is_blocked(int number)
{
    sigset_t blocked;
    return sigprocmask(SIG_BLOCK, NULL, &blocked) == 0 && sigismember(&blocked, number);
}

/* Signals that are ignored or blocked stay so in a program that a child becomes, and after an exec
 * that failed. */
static int ignored(const char *self)
{
    int status;
    sigset_t blocked = only(SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGPIPE, SIG_IGN);
    execl("/no/such/program", "program", NULL);
    raise(SIGPIPE);
    raise(SIGUSR2);
    signal(SIGUSR2, SIG_IGN); /* which drops the one that waits */
    if (!is_blocked(SIGUSR2) || is_blocked(SIGUSR1))
        return 0;
    signal(SIGUSR2, SIG_DFL);
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, "is_ignored", NULL);
        _exit(1);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void end_soon(void)
{
    if (fork() == 0) {
        usleep(20000);
        _exit(0);
    }
}

/* A signal that nobody handles, or that is blocked, ends no call; sigwait sees it nevertheless. */
static int undisturbed(void)
{
    struct timespec pause = {0, 60000000}, none = {0, 0};
    sigset_t child = only(SIGCHLD), before, seen;
    siginfo_t info;
    signal(SIGUSR2, SIG_IGN);
    for (int blocked = 0; blocked < 2; blocked++) {
        if (blocked)
            sigprocmask(SIG_BLOCK, &child, &before);
        end_soon();
        if (clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL) != 0)
            return 0;
        end_soon();
        if (poll(NULL, 0, 60) != 0)
            return 0;
        end_soon();
        if (kill(getpid(), SIGUSR2) != 0 || ppoll(NULL, 0, &pause, NULL) != 0)
            return 0;
    }
    /* One is pending since before, and another comes meanwhile. */
    if (sigwaitinfo(&child, &info) != SIGCHLD || info.si_code != CLD_EXITED)
        return 0;
    end_soon();
    if (sigwaitinfo(&child, &info) != SIGCHLD || info.si_code != CLD_EXITED)
        return 0;
    /* sigsuspend is ended by a handler only, and leaves its argument alone. */
    seen = before;
    sigaddset(&seen, SIGHUP);
    signal(SIGALRM, count);
    struct itimerval later = {{0, 60000}, {0, 60000}}, never = {{0, 0}, {0, 0}};
    end_soon();
    setitimer(ITIMER_REAL, &later, NULL);
    if (sigsuspend(&seen) != -1 || errno != EINTR || alarms == 0 || !sigismember(&seen, SIGHUP))
        return 0;
    setitimer(ITIMER_REAL, &never, NULL);
    /* What is ignored while it waits is gone for good. */
    return sigtimedwait(&child, NULL, &none) == -1 && errno == EAGAIN;
}

/* The C library's is newer than some that this is built with. */
static int poll_events(int poller, struct epoll_event *event, struct timespec *limit, sigset_t *set)
{
    return (int)syscall(EPOLL_PWAIT2, poller, event, 1, limit, set, _NSIG / 8);
}

/* Signals for a signalfd end no call that waits for descriptors; neither does what is ignored. */
static int descriptors(void)
{
    struct timespec pause = {0, 60000000}, long_pause = {5, 0};
    sigset_t child = only(SIGCHLD), before;
    struct signalfd_siginfo seen;
    struct epoll_event event = {.events = EPOLLIN};
    int poller = epoll_create1(0);
    end_soon();
    if (poll_events(poller, &event, &pause, NULL) != 0)
        return 0;
    sigprocmask(SIG_BLOCK, &child, &before);
    int descriptor = signalfd(-1, &child, SFD_NONBLOCK);
    struct pollfd readable = {.fd = descriptor, .events = POLLIN};
    epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &event);
    for (int call = 0; call < 4; call++) {
        end_soon();
        int ready = call == 0   ? poll(&readable, 1, 5000)
                    : call == 1 ? ppoll(&readable, 1, &long_pause, NULL)
                    : call == 2 ? epoll_wait(poller, &event, 1, 5000)
                                : poll_events(poller, &event, &long_pause, NULL);
        if (ready != 1 || read(descriptor, &seen, sizeof seen) != sizeof seen ||
            seen.ssi_signo != SIGCHLD)
            return 0;
    }
    /* The set that the call is given lets a handler in. */
    close(descriptor);
    signal(SIGCHLD, count);
    end_soon();
    int result = poll_events(poller, &event, &long_pause, &before);
    return result == -1 && errno == EINTR && users == 1;
}

/* Whether children wait to be reaped, and whether their stops are told, is the program's choice. */
static int children(void)
{
    int status;
    signal(SIGCHLD, SIG_IGN);
    end_soon();
    if (wait(NULL) != -1 || errno != ECHILD)
        return 0;
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGCHLD, &action, NULL);
    pid_t child = fork();
    while (child == 0)
        pause();
    kill(child, SIGSTOP);
    if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status) || users != 0)
        return 0;
    kill(child, SIGKILL);
    if (waitpid(child, &status, 0) != child)
        return 0;
    while (users == 0)
        nap();
    return users == 1;
}

static void *nothing(void *unused) { return unused; }

static void *start_often(void *unused)
{
    pid_t parent = getpid(), sender = fork();
    while (sender == 0)
        if (kill(parent, SIGUSR1) != 0 || usleep(50) != 0)
            _exit(1);
    for (int i = 0; i < 80; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, nothing, NULL);
        pthread_join(thread, NULL);
    }
    kill(sender, SIGKILL);
    waitpid(sender, NULL, 0);
    printf("ok\n");
    fflush(stdout);
    _exit(0);
    return unused;
}

/* Signals that reach threads which have just started, as they may once the first one is gone. */
static int newborn(void)
{
    pthread_t thread;
    pid_t child = vfork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    signal(SIGUSR1, count);
    pthread_create(&thread, NULL, start_often, NULL);
    pthread_exit(NULL);
}

/* Blocked signals that came are pending, each once, until they are unblocked or ignored. */
static int pending(void)
{
    sigset_t blocked = only(SIGUSR1), one = only(SIGRTMIN), came;
    sigaddset(&blocked, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    if (sigpending(&came) != 0 || !sigisemptyset(&came))
        return 0;
    kill(getpid(), SIGUSR1);
    pthread_kill(pthread_self(), SIGRTMIN);
    if (sigpending(&came) != 0 || !sigismember(&came, SIGUSR1) || !sigismember(&came, SIGRTMIN) ||
        sigismember(&came, SIGUSR2))
        return 0;
    if (sigwaitinfo(&one, NULL) != SIGRTMIN)
        return 0;
    sigpending(&came);
    if (!sigismember(&came, SIGUSR1) || sigismember(&came, SIGRTMIN))
        return 0;
    signal(SIGUSR1, SIG_IGN);
    sigprocmask(SIG_UNBLOCK, &blocked, NULL);
    sigpending(&came);
    return sigisemptyset(&came);
}

/* What others see of it, a parent that asks for its child among them. */
static int is_ignored_in_proc(int number)
{
    char line[256];
    unsigned long long ignored = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "SigIgn:", 7) == 0)
            ignored = strtoull(line + 7, NULL, 16);
    fclose(status);
    return ignored >> (number - 1) & 1;
}

static void *ignored_and_blocked(void *unused)
{
    struct timespec none = {0, 0};
    sigset_t one = only(SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    for (int i = 0; i < 2; i++) {
        pthread_kill(pthread_self(), SIGUSR1);
        if (sigtimedwait(&one, NULL, &none) != SIGUSR1)
            return unused;
    }
    return sigtimedwait(&one, NULL, &none) == -1 ? NULL : unused;
}

/* The kernel ignores what the program ignores. What is blocked as well waits nevertheless. */
static int unheeded(void)
{
    pthread_t thread;
    void *wrong;
    sigset_t one = only(SIGUSR1);
    for (int i = 1; i <= 2; i++) {
        signal(SIGUSR1, SIG_IGN);
        raise(SIGUSR1);
        if (!is_ignored_in_proc(SIGUSR1) || ignored_and_blocked(&one) != NULL)
            return 0;
        raise(SIGUSR1);
        signal(SIGUSR1, count);
        sigprocmask(SIG_UNBLOCK, &one, NULL);
        raise(SIGUSR1);
        if (is_ignored_in_proc(SIGUSR1) || users != 2 * i)
            return 0;
    }
    signal(SIGUSR1, SIG_IGN);
    pthread_create(&thread, NULL, ignored_and_blocked, &one);
    pthread_join(thread, &wrong);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGUSR2, SIG_DFL);
    return wrong == NULL && is_ignored(SIGUSR1) && !is_ignored_in_proc(SIGUSR2);
}

/* Blocked signals that came before an exec are pending after it, as they were sent. */
static int handed_on(const char *self)
{
    sigset_t blocked = only(SIGUSR1);
    sigaddset(&blocked, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    kill(getpid(), SIGUSR1);
    for (int i = 1; i <= 2; i++)
        sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i});
    execl("/no/such/program", "program", NULL);
    execl(self, self, "got", NULL);
    return 0;
}

static int got(void)
{
    sigset_t came;
    siginfo_t info;
    struct timespec none = {0, 0};
    if (sigpending(&came) != 0 || !sigismember(&came, SIGUSR1) || !sigismember(&came, SIGRTMIN) ||
        sigismember(&came, SIGUSR2))
        return 0;
    if (sigtimedwait(&came, &info, &none) != SIGUSR1 || info.si_code != SI_USER)
        return 0;
    for (int i = 1; i <= 2; i++)
        if (sigtimedwait(&came, &info, &none) != SIGRTMIN || info.si_code != SI_QUEUE ||
            info.si_int != i)
            return 0;
    return sigtimedwait(&came, &info, &none) == -1;
}

static volatile int stop, strange;

static void look(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (number == SIGTRAP) {
        users++;
        strange += registers[REG_RIP] != registers[REG_RAX];
    } else if (info->si_code == SI_TKILL) {
        alarms++;
        strange += registers[REG_RIP] == 0;
    }
}

/* A breakpoint leaves the address behind it, here in rax, with loads around it. */
static void *trap_often(void *unused)
{
    for (int i = 0; i < ALARMS; i++)
        __asm__ volatile("jmp 1f\n"
                         "1: lea 2f(%%rip), %%rax\n sub $0xa0, %%rsp\n mov %%rax, (%%rsp)\n"
                         "mov 0x10(%%rsp), %%rcx\n mov %%rcx, 8(%%rsp)\n mov $8, %%r12\n int3\n"
                         "2: jmp 3f\n nop\n"
                         "3: add $0xa0, %%rsp"
                         ::: "rax", "rcx", "r12", "memory", "cc");
    stop = 1;
    return unused;
}

/* Handlers see where the program was when it trapped, or when another thread sent it a signal that
 * is a fault's otherwise. */
static int trapped(void)
{
    pthread_t thread;
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    sigaction(SIGFPE, &action, NULL);
    pthread_create(&thread, NULL, trap_often, NULL);
    while (!stop) {
        pthread_kill(thread, SIGFPE);
        nap();
    }
    pthread_join(thread, NULL);
    return users == ALARMS && alarms > 0 && strange == 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "is_ignored") == 0)
        return is_ignored(SIGPIPE) && is_ignored_in_proc(SIGPIPE) && !is_ignored(SIGUSR1) &&
                       !is_ignored_in_proc(SIGUSR1) && is_blocked(SIGUSR2) &&
                       !is_blocked(SIGUSR1) && raise(SIGUSR2) == 0
                   ? 0
                   : 1;
    int ok = strcmp(what, "timers") == 0        ? timers()
             : strcmp(what, "woken") == 0       ? woken()
             : strcmp(what, "interrupted") == 0 ? interrupted()
             : strcmp(what, "undisturbed") == 0 ? undisturbed()
             : strcmp(what, "ignored") == 0     ? ignored(argv[0])
             : strcmp(what, "newborn") == 0     ? newborn()
             : strcmp(what, "pending") == 0     ? pending()
             : strcmp(what, "unheeded") == 0    ? unheeded()
             : strcmp(what, "handed_on") == 0   ? handed_on(argv[0])
             : strcmp(what, "got") == 0         ? got()
             : strcmp(what, "descriptors") == 0 ? descriptors()
             : strcmp(what, "children") == 0    ? children()
             : strcmp(what, "trapped") == 0     ? trapped()
                                                : 0;
    printf(ok ? "ok\n" : "wrong\n");
    return ok ? 0 : 1;
}
