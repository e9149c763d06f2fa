/* SPDX-License-Identifier: MIT */
/* Threads count finished tiles and the main thread waits for the total. In spin mode one tile's
 * file is missing and its thread leaves by the error path, which forgets to count. */
#include "announce.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TILES 12

static long finished_tiles;
static int total_tiles = TILES;
static const char *tile_path[TILES];

static void *render(void *argument)
{
    for (int tile = (int)(long)argument; tile < TILES; tile += 3) {
        int file = open(tile_path[tile], O_RDONLY);
        if (file < 0)
            continue;
        unsigned char *pixels = malloc(4096);
        ssize_t size = read(file, pixels, 4096);
        for (ssize_t i = 0; i < size; i++)
            pixels[i] = (unsigned char)(pixels[i] * 3 + i);
        free(pixels);
        close(file);
        usleep(40000);
        __atomic_fetch_add(&finished_tiles, 1, __ATOMIC_ACQ_REL);
    }
    return NULL;
}

__attribute__((noinline)) static void wait_for_tiles(void)
{
    while (__atomic_load_n(&finished_tiles, __ATOMIC_ACQUIRE) < total_tiles)
        sched_yield();
}

int main(int argc, char **argv)
{
    int hang = argc > 1 && strcmp(argv[1], "spin") == 0;
    announce_flag(&finished_tiles, sizeof finished_tiles);
    for (int tile = 0; tile < TILES; tile++)
        tile_path[tile] = hang && tile == 7 ? "/nonexistent/tile" : "/proc/self/exe";
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, render, (void *)i);
    wait_for_tiles();
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
