/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <truth.h>

static char message[1 << 24];

static void talk(int fd)
{
    size_t sent = 0, taken = 0;
    while (sent < sizeof message)
        sent += (size_t)write(fd, message, sizeof message);
    while (taken < sizeof message)
        taken += (size_t)read(fd, message, sizeof message);
}

static void connect_tcp(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1))
        _exit(2);
    getsockname(listener, (struct sockaddr *)&address, &size);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends[0], (struct sockaddr *)&address, size))
        _exit(3);
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
}

int main(int count, char **words)
{
    int ends[2];
    if (count > 1 && strcmp(words[1], "tcp") == 0)
        connect_tcp(ends);
    else if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 4;
    pid_t other = fork();
    close(ends[other == 0 ? 1 : 0]);
    if (other == 0) {
        LAB_ROLE("other");
        talk(ends[0]);
        _exit(0);
    }
    usleep(300000);
    LAB_ROLE("waiter");
    LAB_READY();
    talk(ends[1]);
    return 0;
}
