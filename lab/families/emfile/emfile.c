/* SPDX-License-Identifier: MIT */
/* an event loop that has no descriptor left to accept with (epoll, level-triggered) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <errno.h>
int main(void)
{
    struct sockaddr_un a = {AF_UNIX, ""};
    sprintf(a.sun_path + 1, "flag-emfile-%d", getpid());
    int l = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), c = socket(AF_UNIX, SOCK_STREAM, 0),
        e = epoll_create1(0);
    bind(l, (void *)&a, sizeof a);
    listen(l, 8);
    connect(c, (void *)&a, sizeof a);
    struct rlimit r = {6, 6};
    setrlimit(RLIMIT_NOFILE, &r);
    while (dup(1) >= 0)
        ;
    struct epoll_event v = {EPOLLIN, {.fd = l}};
    epoll_ctl(e, EPOLL_CTL_ADD, l, &v);
    printf("pid %d\n", getpid());
    fflush(stdout);
    static long errors;
    for (;;) {
        int n = epoll_wait(e, &v, 1, -1);
        for (int i = 0; i < n; i++) {
            int fd = accept(v.data.fd, 0, 0);
            if (fd < 0) {
                errors++;
                continue;
            }
            close(fd);
        }
    }
}
