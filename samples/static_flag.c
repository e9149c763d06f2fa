/* SPDX-License-Identifier: MIT */
/* A journal flusher is asked to finish and the main thread burns until it says so. In spin mode
 * somebody closed the journal's descriptor: the flusher's error path returns without a word. */
#include "announce.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int flushed;
static atomic_int records_written;
static int journal = -1;
static int record_count = 50;

struct record {
    size_t length;
    char text[64];
};

static struct record *make_record(int number)
{
    struct record *record = malloc(sizeof *record);
    record->length = (size_t)snprintf(record->text, sizeof record->text, "record %d\n", number);
    return record;
}

static void *flusher(void *unused)
{
    for (int number = 0; number < record_count; number++) {
        struct record *record = make_record(number);
        ssize_t written = write(journal, record->text, record->length);
        free(record);
        if (written < 0)
            return unused;
        atomic_fetch_add(&records_written, 1);
        usleep(4000);
    }
    atomic_store(&flushed, 7);
    return unused;
}

__attribute__((noinline)) static void await_flush(void)
{
    while (atomic_load_explicit(&flushed, memory_order_acquire) == 0)
        ;
}

int main(int argc, char **argv)
{
    int hang = argc > 1 && strcmp(argv[1], "spin") == 0;
    announce_flag(&flushed, sizeof flushed);
    char path[] = "/tmp/journal-XXXXXX";
    journal = mkstemp(path);
    unlink(path);
    if (hang)
        record_count = 5000;
    pthread_t thread;
    pthread_create(&thread, NULL, flusher, NULL);
    if (hang) {
        usleep(60000);
        close(journal);
    }
    await_flush();
    pthread_join(thread, NULL);
    printf("%d records\n", atomic_load(&records_written));
    return 0;
}
