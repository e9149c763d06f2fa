/* SPDX-License-Identifier: MIT */
/* Chunks are mapped when first used, into one reserved stretch of addresses in which each
 * is followed by a page that faults. Claiming is lock-free: threads of several processes
 * and the recorder share nothing but the words of the pool. */
#include "ff_pool.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>

#include "dr_api.h"
#include "ff_sys.h"

static struct ff_shm_header *header;
static struct ff_chunk *chunks;
static file_t pool_file = INVALID_FILE;
static uint32_t chunk_bytes = 1u << 20;
static uint8_t *data_area; /* chunk i at i * (chunk_bytes + FF_GUARD_BYTES) */
static uint8_t *nowhere;   /* two pages that always fault */
static unsigned char *chunk_mapped;
static uint64_t image_ts;

#define FF_LOAD(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)

static bool is_error(long result) { return result < 0 && result > -4096; }

static void *map(void *at, size_t bytes, int prot, int flags, int fd, uint64_t offset)
{
    long result = ff_syscall6(SYS_mmap, (long)at, (long)bytes, prot, flags, fd, (long)offset);
    return is_error(result) ? NULL : (void *)result;
}

static size_t stride(void) { return (size_t)chunk_bytes + FF_GUARD_BYTES; }

bool ff_pool_open(const char *path, const char **why)
{
    image_ts = ff_now();
    nowhere = map(NULL, 2 * FF_GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
    *why = "no address space is left";
    if (nowhere == NULL)
        return false;
    *why = "the pool file cannot be opened";
    pool_file = dr_open_file(path, DR_FILE_READ | DR_FILE_WRITE_APPEND);
    if (pool_file == INVALID_FILE)
        return false;
    *why = "the pool file cannot be mapped";
    struct ff_shm_header *first = map(NULL, sizeof *first, PROT_READ, MAP_SHARED, pool_file, 0);
    if (first == NULL)
        return false;
    uint64_t head_bytes = first->data_offset;
    *why = "the pool file is not of this version of flagfinder";
    if (first->magic != FF_SHM_MAGIC || first->version != FF_PROTOCOL_VERSION)
        return false;
    *why = "no address space is left for the pool";
    header = map(NULL, head_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool_file, 0);
    if (header == NULL)
        return false;
    chunks = (struct ff_chunk *)((uint8_t *)header + header->descriptor_offset);
    chunk_bytes = header->chunk_bytes;
    data_area = map(NULL, stride() * header->chunk_count, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    chunk_mapped =
        map(NULL, header->chunk_count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data_area != NULL && chunk_mapped != NULL;
}

void ff_pool_leave(void)
{
    if (header != NULL)
        ff_syscall3(SYS_munmap, (long)header, (long)header->data_offset, 0);
    header = NULL;
}

bool ff_pool_is_open(void) { return header != NULL; }

enum ff_level ff_pool_level(void)
{
    return header != NULL && header->level == FF_LEVEL_VALUES ? FF_LEVEL_VALUES : FF_LEVEL_FLOW;
}

uint64_t ff_pool_image_ts(void) { return image_ts; }

void ff_pool_fork(void) { image_ts = ff_now(); }

uint8_t *ff_pool_nowhere(void) { return nowhere; }

void ff_buffer_init(struct ff_buffer *buffer)
{
    buffer->chunk = NULL;
    buffer->base = nowhere;
    buffer->end = nowhere;
    buffer->seq = 0;
    buffer->start_pos = 0;
}

bool ff_buffer_is_guard(const struct ff_buffer *buffer, const uint8_t *address)
{
    return address >= buffer->end && address < buffer->end + FF_GUARD_BYTES;
}

static void ring(void)
{
    __atomic_add_fetch(&header->full_doorbell, 1, __ATOMIC_RELEASE);
    ff_syscall3(SYS_futex, (long)&header->full_doorbell, FUTEX_WAKE, 1);
}

static bool is_anyone_reading(void)
{
    if (header == NULL || FF_LOAD(header->stop) != 0 || FF_LOAD(header->recorder_gone) != 0)
        return false;
    return (FF_LOAD(header->recorder_alive) & FF_ALIVE) != 0;
}

static struct ff_introduction *free_place(uint32_t number)
{
    struct ff_introduction *table = (struct ff_introduction *)(header + 1);
    for (uint32_t i = 0; i < FF_INTRODUCTIONS; i++) {
        struct ff_introduction *place = &table[(number + i) % FF_INTRODUCTIONS];
        uint32_t expected = 0;
        if (__atomic_compare_exchange_n(&place->number, &expected, number, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return place;
    }
    return NULL;
}

uint32_t ff_pool_introduce(uint32_t own_pid)
{
    enum { TRIES = 20 };
    if (header == NULL || FF_LOAD(header->answers) == 0)
        return own_pid;
    uint32_t number = __atomic_add_fetch(&header->introduced, 1, __ATOMIC_ACQ_REL), pid = 0;
    struct flock lock = {.l_type = F_WRLCK,
                         .l_whence = SEEK_SET,
                         .l_start = (off_t)(FF_LOCK_BASE + number),
                         .l_len = 1};
    if (ff_syscall3(SYS_fcntl, pool_file, F_SETLK, (long)&lock) != 0)
        return own_pid;
    struct ff_introduction *place = free_place(number);
    if (place == NULL)
        return own_pid;
    ring();
    /* A stopped recorder must not stop the program for good. */
    for (int i = 0; i < TRIES && (pid = FF_LOAD(place->pid)) == 0 && is_anyone_reading(); i++) {
        struct timespec patience = {0, 100000000};
        ff_syscall6(SYS_futex, (long)&place->pid, FUTEX_WAIT, 0, (long)&patience, 0, 0);
    }
    __atomic_store_n(&place->pid, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&place->number, 0, __ATOMIC_RELEASE);
    return pid == 0 || pid == FF_PID_UNKNOWN ? own_pid : pid;
}

/* One more live chunk, if the limit allows. `spare`: not from what is kept for flow. */
static bool enter_live(bool spare)
{
    uint32_t live = FF_LOAD(header->live_count), limit = FF_LOAD(header->live_limit);
    if (spare)
        limit -= limit / FF_FLOW_SHARE;
    while (live < limit) {
        if (__atomic_compare_exchange_n(&header->live_count, &live, live + 1, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return true;
    }
    return false;
}

static int64_t take_free_chunk(void)
{
    for (uint32_t i = 0; i < header->chunk_count; i++) {
        uint32_t expected = FF_CHUNK_FREE;
        if (FF_LOAD(chunks[i].state) == FF_CHUNK_FREE &&
            __atomic_compare_exchange_n(&chunks[i].state, &expected, FF_CHUNK_OWNED, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return i;
    }
    return -1;
}

static uint8_t *chunk_address(uint32_t index)
{
    uint8_t *at = data_area + stride() * index;
    if (!__atomic_load_n(&chunk_mapped[index], __ATOMIC_ACQUIRE)) {
        uint64_t offset = header->data_offset + (uint64_t)index * chunk_bytes;
        if (map(at, chunk_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pool_file,
                offset) == NULL)
            return NULL;
        __atomic_store_n(&chunk_mapped[index], 1, __ATOMIC_RELEASE);
    }
    return at;
}

static void describe(struct ff_buffer *buffer, enum ff_stream stream, uint32_t pid, uint32_t tid)
{
    struct ff_chunk *chunk = buffer->chunk;
    chunk->stream = stream;
    chunk->pid = pid;
    chunk->tid = tid;
    chunk->seq = buffer->seq++;
    chunk->start_pos = buffer->start_pos;
    chunk->ts_open = ff_now();
    chunk->ts_full = 0;
    chunk->used = 0;
    chunk->regs_valid = 0;
    chunk->image_ts = image_ts;
}

/* False: there is no chunk now. */
static bool try_claim(struct ff_buffer *buffer, bool spare)
{
    if (!enter_live(spare))
        return false;
    int64_t index = take_free_chunk();
    uint8_t *at = index < 0 ? NULL : chunk_address((uint32_t)index);
    if (at == NULL) {
        if (index >= 0)
            __atomic_store_n(&chunks[index].state, FF_CHUNK_FREE, __ATOMIC_RELEASE);
        __atomic_sub_fetch(&header->live_count, 1, __ATOMIC_ACQ_REL);
        return false;
    }
    buffer->chunk = &chunks[index];
    buffer->base = at;
    buffer->end = at + chunk_bytes;
    return true;
}

/* Memory that nobody reads, written again and again. Kept if there already. */
static void use_scratch(struct ff_buffer *buffer)
{
    if (buffer->chunk == NULL && buffer->base != nowhere)
        return;
    uint8_t *at =
        map(NULL, stride(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == NULL || map(at, chunk_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == NULL) {
        dr_fprintf(STDERR, "flagfinder: out of memory in the traced program.\n");
        dr_abort();
    }
    buffer->chunk = NULL;
    buffer->base = at;
    buffer->end = at + chunk_bytes;
}

void ff_buffer_publish(struct ff_buffer *buffer, uint32_t used)
{
    struct ff_chunk *chunk = buffer->chunk;
    if (chunk == NULL)
        return;
    chunk->used = used;
    chunk->ts_full = ff_now();
    buffer->start_pos += used;
    buffer->chunk = NULL;
    buffer->base = nowhere;
    buffer->end = nowhere;
    __atomic_store_n(&chunk->state, FF_CHUNK_FULL, __ATOMIC_RELEASE);
    ring();
}

void ff_buffer_claim(struct ff_buffer *buffer, enum ff_stream stream, uint32_t pid, uint32_t tid,
                     uint32_t used)
{
    while (is_anyone_reading()) {
        uint32_t bell = FF_LOAD(header->free_doorbell);
        if (try_claim(buffer, false)) {
            describe(buffer, stream, pid, tid);
            return;
        }
        struct timespec patience = {0, 100000000};
        ff_syscall6(SYS_futex, (long)&header->free_doorbell, FUTEX_WAIT, bell, (long)&patience, 0,
                    0);
    }
    if (header != NULL && buffer->chunk == NULL && buffer->base != nowhere)
        __atomic_add_fetch(&header->dropped_flow_bytes, used, __ATOMIC_RELAXED);
    buffer->start_pos += used;
    use_scratch(buffer);
}

void ff_buffer_renew(struct ff_buffer *buffer, enum ff_stream stream, uint32_t pid, uint32_t tid,
                     uint32_t used)
{
    struct ff_buffer fresh = *buffer;
    if (!is_anyone_reading()) {
        use_scratch(buffer);
    } else if (try_claim(&fresh, buffer->chunk != NULL)) {
        ff_buffer_publish(buffer, used);
        fresh.start_pos = buffer->start_pos;
        *buffer = fresh;
        describe(buffer, stream, pid, tid);
    } else if (buffer->chunk != NULL) {
        __atomic_add_fetch(&header->dropped_value_chunks, 1, __ATOMIC_RELAXED);
        describe(buffer, stream, pid, tid);
    } else {
        ff_buffer_claim(buffer, stream, pid, tid, 0);
    }
}
