/* SPDX-License-Identifier: MIT */
/* epoll tells for ever of a pipe whose descriptor was closed here while a child still has it; the
   child's end cannot be taken out of the epoll set any more */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
int main(void)
{
    int p[2], s[2], e = epoll_create1(EPOLL_CLOEXEC);
    pipe(p);
    socketpair(AF_UNIX, SOCK_STREAM, 0, s);
    if (fork() == 0) {
        sleep(1000);
        _exit(0);
    }
    struct epoll_event v = {EPOLLOUT, {.fd = p[1]}};
    epoll_ctl(e, EPOLL_CTL_ADD, p[1], &v);
    v.events = EPOLLIN;
    v.data.fd = s[0];
    epoll_ctl(e, EPOLL_CTL_ADD, s[0], &v);
    close(p[1]);
    printf("pid %d\n", getpid());
    fflush(stdout);
    for (;;) {
        int n = epoll_wait(e, &v, 1, -1);
        if (n == 1 && v.data.fd == s[0]) {
            char c;
            if (read(s[0], &c, 1) == 1 && c == 'q')
                return 0;
        } else if (n == 1)
            epoll_ctl(e, EPOLL_CTL_DEL, v.data.fd, NULL);
    }
}
