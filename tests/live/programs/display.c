/* SPDX-License-Identifier: MIT */
/* A flag that lives in many objects: a thread marks each layer as in need of display, another one
 * looks at all of them, and draws and clears those that are. Ends once each of LAYERS was drawn
 * ROUNDS times. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define LAYERS 6
#define ROUNDS 3

struct layer {
    struct layer *next;
    long frame[6];
    volatile int drawn;
    volatile int need_display;
};

static struct layer *layers;

__attribute__((noinline)) static void set_needs_display(struct layer *layer)
{
    layer->need_display = 1;
}

__attribute__((noinline)) static int needs_display(struct layer *layer)
{
    return layer->need_display != 0;
}

__attribute__((noinline)) static void draw(struct layer *layer)
{
    layer->drawn++;
    layer->need_display = 0;
}

static void *application(void *unused)
{
    for (int round = 0; round < ROUNDS; round++)
        for (struct layer *layer = layers; layer; layer = layer->next) {
            set_needs_display(layer);
            while (layer->drawn == round)
                usleep(500);
        }
    return unused;
}

int main(void)
{
    for (int i = 0; i < LAYERS; i++) {
        struct layer *layer = calloc(1, sizeof *layer);
        layer->next = layers;
        layers = layer;
    }
    pthread_t thread;
    pthread_create(&thread, NULL, application, NULL);
    for (int left = LAYERS * ROUNDS; left;) {
        for (struct layer *layer = layers; layer; layer = layer->next)
            if (needs_display(layer)) {
                draw(layer);
                left--;
            }
        usleep(200);
    }
    pthread_join(thread, NULL);
    return 0;
}
