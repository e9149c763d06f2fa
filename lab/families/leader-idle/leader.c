/* SPDX-License-Identifier: MIT */
#include "truth.h"
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

static pthread_mutex_t lead = PTHREAD_MUTEX_INITIALIZER;
static int listener;

static void *serve(void *unused)
{
    char request[100];
    for (;;) {
        pthread_mutex_lock(&lead);
        int client = accept(listener, NULL, NULL);
        pthread_mutex_unlock(&lead);
        ssize_t length;
        while ((length = read(client, request, sizeof request)) > 0)
            if (write(client, request, (size_t)length) < 0)
                break;
        close(client);
    }
    return unused;
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    pthread_t pool[4];
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 9))
        return 1;
    for (int count = 0; count < 4; count++)
        pthread_create(&pool[count], NULL, serve, NULL);
    LAB_ROLE("waiter");
    usleep(300000);
    LAB_READY();
    pthread_join(pool[0], NULL);
}
