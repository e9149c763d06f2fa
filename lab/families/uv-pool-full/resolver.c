/* SPDX-License-Identifier: MIT */
/* A proxy made with libuv: names are looked up on libuv's pool, and a cache is written there, too.
 * `resolver silent`: no name server answers. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

struct lookup {
    uv_work_t work;
    int server;
    char name[64];
    char address[64];
};

struct flush {
    uv_work_t work;
    uv_sem_t written;
};

static int resolvers[2];
static int open_lookups;

static ssize_t ask_server(struct lookup *one)
{
    send(one->server, one->name, strlen(one->name), MSG_NOSIGNAL);
    return recv(one->server, one->address, sizeof one->address, 0);
}

static void resolve(uv_work_t *work)
{
    struct lookup *one = work->data;
    if (ask_server(one) < 0)
        one->address[0] = 0;
}

static void resolved(uv_work_t *work, int status)
{
    struct lookup *one = work->data;
    open_lookups--;
    printf("%s is %s (%d)\n", one->name, one->address, status);
}

static void write_cache(uv_work_t *work)
{
    struct flush *flush = work->data;
    FILE *file = tmpfile();
    if (file) {
        fputs("cache\n", file);
        fclose(file);
    }
    uv_sem_post(&flush->written);
}

static void on_written(uv_work_t *work, int status)
{
    (void)work;
    (void)status;
}

/* The cache has to be on disk before the proxy goes on. */
static void save(uv_timer_t *timer)
{
    static struct flush flush;
    flush.work.data = &flush;
    uv_sem_init(&flush.written, 0);
    uv_queue_work(timer->loop, &flush.work, write_cache, on_written);
    uv_sem_wait(&flush.written);
    uv_sem_destroy(&flush.written);
}

int main(int count, char **arguments)
{
    static struct lookup all[4];
    int is_silent = count > 1 && strcmp(arguments[1], "silent") == 0;
    socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, resolvers);
    uv_loop_t *loop = uv_default_loop();
    for (int at = 0; at < 4; at++) {
        struct lookup *one = &all[at];
        one->work.data = one;
        one->server = resolvers[0];
        snprintf(one->name, sizeof one->name, "host%d.example", at);
        if (!is_silent)
            send(resolvers[1], "192.0.2.1", 10, 0);
        uv_queue_work(loop, &one->work, resolve, resolved);
        open_lookups++;
    }
    uv_timer_t timer;
    uv_timer_init(loop, &timer);
    uv_timer_start(&timer, save, 200, is_silent ? 0 : 100000000);
    puts("begins");
    fflush(stdout);
    return uv_run(loop, UV_RUN_DEFAULT);
}
