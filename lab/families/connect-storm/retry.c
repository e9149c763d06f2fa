/* SPDX-License-Identifier: MIT */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <truth.h>

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, size))
        return 2;
    getsockname(listener, (struct sockaddr *)&address, &size);
    close(listener);
    LAB_ROLE("waiter");
    LAB_READY();
    for (;;) {
        int client = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(client, (struct sockaddr *)&address, size) == 0)
            return 0;
        close(client);
        usleep(1000);
    }
}
