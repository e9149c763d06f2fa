/* SPDX-License-Identifier: MIT */
/* The META stream: what the process runs. Written seldom, under a lock. */
#include <string.h>

#include "ff_client.h"
#include "ff_sys.h"

static struct ff_buffer buffer;
static uint8_t *at;

/* A child made by fork inherits code that only its parent described: with children
 * followed, every record is kept. */
static bool keep;
static uint8_t *kept;
static size_t kept_bytes, kept_capacity;

void ff_meta_init(bool keep_for_children)
{
    keep = keep_for_children;
    ff_buffer_init(&buffer);
    at = buffer.base;
}

/* Room for a whole record: none spans chunks. */
static uint8_t *make_room(size_t bytes)
{
    if (bytes > (size_t)(buffer.end - at)) {
        uint32_t used = (uint32_t)(at - buffer.base);
        ff_buffer_publish(&buffer, used);
        ff_buffer_claim(&buffer, FF_STREAM_META, ff_process_id, 0, used);
        at = buffer.base;
    }
    uint8_t *room = at;
    at += bytes;
    return room;
}

static uint8_t *make_kept_room(size_t bytes)
{
    if (kept_bytes + bytes > kept_capacity) {
        size_t capacity = (kept_bytes + bytes) * 2 + (64u << 10);
        uint8_t *more = dr_raw_mem_alloc(capacity, DR_MEMPROT_READ | DR_MEMPROT_WRITE, NULL);
        if (more == NULL)
            return NULL;
        if (kept != NULL) {
            memcpy(more, kept, kept_bytes);
            dr_raw_mem_free(kept, kept_capacity);
        }
        kept = more;
        kept_capacity = capacity;
    }
    uint8_t *room = kept + kept_bytes;
    kept_bytes += bytes;
    return room;
}

void ff_meta_write(enum ff_meta kind, const struct ff_part *parts, uint32_t part_count)
{
    struct ff_record record = {FF_FLOW_EVENT, (uint16_t)kind, 0};
    for (uint32_t i = 0; i < part_count; i++)
        record.bytes += parts[i].bytes;
    size_t whole = sizeof record + record.bytes + record.bytes % 2;
    ff_lock();
    uint8_t *room = make_room(whole);
    uint8_t *to = room + sizeof record;
    for (uint32_t i = 0; i < part_count; i++) {
        memcpy(to, parts[i].data, parts[i].bytes);
        to += parts[i].bytes;
    }
    /* Last: a record cut short by a kill then has no header. */
    __atomic_signal_fence(__ATOMIC_RELEASE);
    memcpy(room, &record, sizeof record);
    if (keep && kind != FF_META_PROCESS) {
        uint8_t *copy = make_kept_room(whole);
        if (copy != NULL)
            memcpy(copy, room, whole);
    }
    ff_unlock();
}

void ff_meta_note(const char *text)
{
    struct ff_part part = {text, (uint32_t)strlen(text)};
    ff_meta_write(FF_META_NOTE, &part, 1);
}

void ff_meta_process(void)
{
    module_data_t *program = dr_get_main_module();
    const char *path = program != NULL && program->full_path != NULL ? program->full_path : "";
    struct ff_process process = {
        .ts = ff_pool_image_ts(),
        .pid = ff_process_id,
        .parent_pid = (uint32_t)ff_syscall3(SYS_getppid, 0, 0, 0),
        .path_bytes = (uint32_t)strlen(path),
    };
    struct ff_part parts[] = {{&process, sizeof process}, {path, process.path_bytes}};
    ff_meta_write(FF_META_PROCESS, parts, 2);
    if (program != NULL)
        dr_free_module_data(program);
}

void ff_meta_fork(void)
{
    ff_buffer_init(&buffer);
    at = buffer.base;
    ff_meta_process();
    for (size_t from = 0; from < kept_bytes;) {
        struct ff_record record;
        memcpy(&record, kept + from, sizeof record);
        size_t whole = sizeof record + record.bytes + record.bytes % 2;
        uint8_t *room = make_room(whole);
        memcpy(room + sizeof record, kept + from + sizeof record, whole - sizeof record);
        /* Last: the recorder reads META while it grows. */
        __atomic_signal_fence(__ATOMIC_RELEASE);
        memcpy(room, &record, sizeof record);
        from += whole;
    }
}

void ff_meta_flush(void)
{
    ff_lock();
    ff_buffer_publish(&buffer, (uint32_t)(at - buffer.base));
    at = buffer.base;
    ff_unlock();
}
