/* SPDX-License-Identifier: MIT */
/* Services in which one request is slow among fast ones, each for another reason. */
#include "service.h"
#include <netinet/in.h>
#include <netinet/tcp.h>

/* frozen: a process is stopped, as a keeper does that spares the processor, and let go on */
static void frozen(void)
{
    int ends[2];
    must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pid_t parent = getpid(), helper = fork();
    must(helper >= 0);
    if (!helper) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        is("helper");
        for (int asked; (asked = get(ends[1])) >= 0;) {
            burn(2);
            put(ends[1], asked);
        }
        _exit(0);
    }
    if (child("keeper")) {
        ms(700);
        kill(helper, SIGSTOP);
        ms(500);
        kill(helper, SIGCONT);
        for (;;)
            pause();
    }
    for (int i = 0; i < 120; i++) {
        put(ends[0], i);
        get(ends[0]);
        ms(10);
    }
}

/* nagle: one request is sent in two parts, and the second waits until the first is acknowledged */
static void nagle(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    must(!bind(listener, (struct sockaddr *)&at, size) && !listen(listener, 5));
    must(!getsockname(listener, (struct sockaddr *)&at, &size));
    if (child("server"))
        for (int fd = accept(listener, NULL, NULL), part; (part = get(fd)) >= 0;)
            if (part % 2) {
                burn(0.5);
                put(fd, part);
            }
    int fd = socket(AF_INET, SOCK_STREAM, 0), is_slow = 0;
    must(!connect(fd, (struct sockaddr *)&at, size));
    for (int i = 0; i < 200; i++) {
        unsigned char whole[2] = {0, 1};
        is_slow = i == 150;
        must(write(fd, whole, is_slow ? 1 : 2) > 0);
        if (is_slow)
            must(write(fd, whole + 1, 1) == 1);
        get(fd);
        ms(4);
    }
}

int main(int count, char **words)
{
    static const struct scene scenes[] = {{"frozen", frozen}, {"nagle", nagle}};
    must(count == 2);
    return play(scenes, sizeof scenes / sizeof *scenes, words[1]);
}
