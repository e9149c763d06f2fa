/* SPDX-License-Identifier: MIT */
/* The client's side of the shared-memory pool (include/ff_protocol.h). */
#ifndef FF_POOL_H
#define FF_POOL_H

#include <stdint.h>

#include "dr_api.h"
#include "ff_protocol.h"

/* Bytes behind each chunk that fault: how a full chunk is noticed. */
#define FF_GUARD_BYTES 4096

/* Where a thread (or the process, for META) writes. `chunk` is NULL when nothing is
 * recorded: before the first claim, and for good once nobody reads any more. */
struct ff_buffer {
    struct ff_chunk *chunk;
    uint8_t *base;
    uint8_t *end; /* first byte of the guard */
    uint64_t seq; /* of the next chunk */
    uint64_t start_pos;
};

/* Opens and maps the pool. On failure `*why` says what is wrong. */
bool ff_pool_open(const char *path, const char **why);

/* Forgets everything shared: a process that is not recorded writes to scratch memory. */
void ff_pool_leave(void);

/* False: nothing that is written will be read. */
bool ff_pool_is_open(void);

enum ff_level ff_pool_level(void);

/* The pid of this process, which calls itself `own_pid`, in the recorder's pid namespace. Asks the
 * recorder; `own_pid` if that does not answer. */
uint32_t ff_pool_introduce(uint32_t own_pid);

/* When this image of the process began: the key of its streams. `ff_pool_fork`: begins anew. */
uint64_t ff_pool_image_ts(void);
void ff_pool_fork(void);

/* Nothing claimed yet; the first write at `ff_pool_nowhere()` faults. */
void ff_buffer_init(struct ff_buffer *buffer);
uint8_t *ff_pool_nowhere(void);

/* Does `address` lie in the guard behind the buffer, or nowhere? */
bool ff_buffer_is_guard(const struct ff_buffer *buffer, const uint8_t *address);

/* Hands the chunk over with `used` bytes in it; the buffer is then as if unclaimed. */
void ff_buffer_publish(struct ff_buffer *buffer, uint32_t used);

/* Takes a new chunk, waiting for the recorder; when nobody reads, scratch memory, and
 * `used` bytes count as lost. */
void ff_buffer_claim(struct ff_buffer *buffer, enum ff_stream stream, uint32_t pid, uint32_t tid,
                     uint32_t used);

/* For VALUES: hands the chunk over and takes a new one if there is one at once; else its
 * content is lost and it is begun again. */
void ff_buffer_renew(struct ff_buffer *buffer, enum ff_stream stream, uint32_t pid, uint32_t tid,
                     uint32_t used);

#endif
