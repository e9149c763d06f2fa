/* SPDX-License-Identifier: MIT */
/* A stand-in for a tracer: speaks include/ff_protocol.h as one thread of one
 * process. usage: writer POOL MODE COUNT */
#include "ff_protocol.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct ff_shm_header *pool;
static unsigned char *base;

struct stream {
    struct ff_chunk *chunk;
    unsigned char *at, *end;
    uint64_t seq, pos;
    uint32_t kind;
};

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void wake(uint32_t *word) {
    atomic_fetch_add((_Atomic uint32_t *)word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE, 64, NULL);
}

static void open_chunk(struct stream *s) {
    struct ff_chunk *chunks = (struct ff_chunk *)(base + pool->descriptor_offset);
    for (;;) {
        uint32_t seen = atomic_load((_Atomic uint32_t *)&pool->free_doorbell);
        for (uint32_t i = 0; i < pool->chunk_count && pool->live_count < pool->live_limit; i++) {
            uint32_t expected = FF_CHUNK_FREE;
            if (!atomic_compare_exchange_strong((_Atomic uint32_t *)&chunks[i].state, &expected,
                                                FF_CHUNK_OWNED))
                continue;
            atomic_fetch_add((_Atomic uint32_t *)&pool->live_count, 1);
            s->chunk = &chunks[i];
            s->chunk->stream = s->kind;
            s->chunk->pid = (uint32_t)getpid();
            s->chunk->tid = s->kind == FF_STREAM_META ? 0 : (uint32_t)getpid();
            s->chunk->seq = s->seq++;
            s->chunk->start_pos = s->pos;
            s->chunk->ts_open = now();
            s->chunk->ts_full = 0;
            s->at = base + pool->data_offset + (uint64_t)i * pool->chunk_bytes;
            s->end = s->at + pool->chunk_bytes;
            return;
        }
        if (pool->recorder_gone)
            exit(9);
        struct timespec wait = {1, 0};
        syscall(SYS_futex, &pool->free_doorbell, FUTEX_WAIT, seen, &wait);
    }
}

static void put(struct stream *s, const void *bytes, size_t size);

/* Says who we are, as the header tells: the pid that the recorder answers with. */
static uint32_t introduce(int fd) {
    struct ff_introduction *table = (struct ff_introduction *)(pool + 1);
    uint32_t number = atomic_fetch_add((_Atomic uint32_t *)&pool->introduced, 1) + 1;
    struct flock lock = {.l_type = F_WRLCK,
                         .l_whence = SEEK_SET,
                         .l_start = (off_t)(FF_LOCK_BASE + number),
                         .l_len = 1};
    if (fcntl(fd, F_SETLK, &lock) != 0)
        exit(5);
    struct ff_introduction *place = &table[number % FF_INTRODUCTIONS];
    atomic_store((_Atomic uint32_t *)&place->number, number);
    wake(&pool->full_doorbell);
    while (atomic_load((_Atomic uint32_t *)&place->pid) == 0)
        usleep(1000);
    return place->pid;
}

/* A chunk of flow that says it is of that process, and is never given back. */
static void claim_for(uint32_t pid) {
    struct stream flow = {.kind = FF_STREAM_FLOW};
    uint16_t id = 1;
    put(&flow, &id, 2);
    flow.chunk->pid = pid;
    flow.chunk->tid = pid;
}

static void close_chunk(struct stream *s) {
    unsigned char *start = s->end - pool->chunk_bytes;
    s->chunk->used = (uint32_t)(s->at - start);
    s->pos += s->chunk->used;
    s->chunk->ts_full = now();
    atomic_store((_Atomic uint32_t *)&s->chunk->state, FF_CHUNK_FULL);
    wake(&pool->full_doorbell);
    s->chunk = NULL;
}

static void put(struct stream *s, const void *bytes, size_t size) {
    if (s->chunk && s->at + size > s->end)
        close_chunk(s);
    if (!s->chunk)
        open_chunk(s);
    memcpy(s->at, bytes, size);
    s->at += size;
}

static void record(struct stream *s, uint16_t kind, const void *payload, uint32_t size) {
    unsigned char bytes[256] = {0};
    struct ff_record header = {FF_FLOW_EVENT, kind, size};
    memcpy(bytes, &header, sizeof header);
    memcpy(bytes + sizeof header, payload, size);
    put(s, bytes, sizeof header + size + size % 2);
}

int main(int argc, char **argv) {
    const char *mode = argv[2];
    long count = argc > 3 ? atol(argv[3]) : 0;
    int fd = open(argv[1], O_RDWR);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        return 3;
    base = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pool = (struct ff_shm_header *)base;
    if (pool->magic != FF_SHM_MAGIC || pool->version != FF_PROTOCOL_VERSION)
        return 4;
    struct stream meta = {.kind = FF_STREAM_META}, flow = {.kind = FF_STREAM_FLOW};
    struct ff_process process = {now(), (uint32_t)getpid(), (uint32_t)getppid(), 0, 0};
    int is_child = 0;
    if ((!strcmp(mode, "family") || !strcmp(mode, "child")) && (is_child = fork() == 0)) {
        if (introduce(fd) != (uint32_t)getpid())
            return 6;
        process.pid = (uint32_t)getpid();
    }
    record(&meta, FF_META_PROCESS, &process, sizeof process);
    if (!strcmp(mode, "child") && !is_child)
        pause();
    if (is_child)
        record(&meta, FF_META_NOTE, "left", 4);
    if (!strncmp(mode, "claim", 5))
        claim_for((uint32_t)count);
    if (!strcmp(mode, "claim-all")) {
        claim_for(1);
        claim_for(UINT32_MAX);
    }
    for (uint32_t id = 1; id <= 8; id++) {
        struct {
            struct ff_block block;
            unsigned char code[1];
        } block = {{id, 0, 0x1000 + id, 1, 1, 0}, {0x90}};
        record(&meta, FF_META_BLOCK, &block, sizeof(struct ff_block) + 1);
    }
    struct ff_thread_start start = {(uint32_t)getpid(), 0, now(), 0, 0, 0x1001};
    record(&flow, FF_EVENT_THREAD_START, &start, sizeof start);
    int forever = !strcmp(mode, "spin"), slow = !strcmp(mode, "slow") || !strcmp(mode, "family");
    slow = slow || !strcmp(mode, "child") || !strncmp(mode, "claim", 5);
    for (long i = 0; forever || slow || i < count; i++) {
        uint16_t id = (uint16_t)(1 + i % 3);
        if (!strcmp(mode, "flood"))
            id = (uint16_t)(1 + (i * 2654435761u >> 13) % 8);
        put(&flow, &id, 2);
        if (slow && i % 64 == 0)
            usleep(1000);
        if (forever && pool->stop) {
            usleep(1000);
        }
    }
    if (!strcmp(mode, "kill"))
        kill(getpid(), SIGKILL);
    struct ff_thread_exit gone = {now(), 0};
    record(&flow, FF_EVENT_THREAD_EXIT, &gone, sizeof gone);
    close_chunk(&flow);
    close_chunk(&meta);
    return 7;
}
