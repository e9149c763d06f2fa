/* SPDX-License-Identifier: MIT */
/* Identity of blocks: (pc, code bytes, module). DynamoRIO throws code away and builds it
 * again as it likes (traces, flushes, translation); the same code keeps its number, changed
 * code gets a new one. */
#include <string.h>

#include "ff_client.h"

#include "hashtable.h"

/* Versions of the code at one pc, newest first. */
struct version {
    struct version *older;
    uint64_t hash;
    uint32_t id;
    uint32_t code_bytes;
    uint32_t module;
    uint32_t slot_count;
};

static hashtable_t versions;
static uint32_t last_id;

/* FNV-1a over words is enough: code at one address rarely has a second version. */
static uint64_t hash_code(const uint8_t *code, uint32_t bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < bytes; i++)
        hash = (hash ^ code[i]) * UINT64_C(0x100000001b3);
    return hash;
}

void ff_blocks_init(void) { hashtable_init(&versions, 16, HASH_INTPTR, false); }

uint32_t ff_block_id(app_pc pc, const uint8_t *code, uint32_t code_bytes,
                     uint32_t instruction_count, const struct ff_slot *slots, uint32_t slot_count)
{
    uint64_t hash = hash_code(code, code_bytes);
    ff_lock();
    uint32_t module = ff_module_at(pc);
    struct version *newest = hashtable_lookup(&versions, pc);
    struct version *found = newest;
    while (found != NULL && !(found->hash == hash && found->code_bytes == code_bytes &&
                              found->module == module && found->slot_count == slot_count))
        found = found->older;
    if (found == NULL) {
        found = dr_global_alloc(sizeof *found);
        *found = (struct version){newest, hash, ++last_id, code_bytes, module, slot_count};
        hashtable_add_replace(&versions, pc, found);
        struct ff_block block = {
            .id = found->id,
            .module = module,
            .pc = (uint64_t)pc,
            .code_bytes = code_bytes,
            .instruction_count = (uint16_t)instruction_count,
            .slot_count = (uint16_t)slot_count,
        };
        struct ff_part parts[] = {{&block, sizeof block},
                                  {code, code_bytes},
                                  {slots, slot_count * (uint32_t)sizeof *slots}};
        ff_meta_write(FF_META_BLOCK, parts, 3);
    }
    uint32_t id = found->id;
    ff_unlock();
    return id;
}
