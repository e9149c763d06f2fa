/* SPDX-License-Identifier: MIT */
/* close_range, mended. DynamoRIO 11.90 walks the whole range one descriptor at a time to spare
 * its own: with the usual upper bound of ~0 that takes minutes, or for ever. The range is cut
 * to the descriptors that exist; the application never notices. */
#include <fcntl.h>

#include "ff_client.h"
#include "ff_sys.h"

struct directory_entry {
    uint64_t inode;
    int64_t offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

/* The highest open descriptor in [first, last]; `first` if there is none. */
static uint32_t highest_open(uint32_t first, uint32_t last)
{
    uint32_t highest = first;
    uint64_t buffer[512];
    long directory = ff_syscall3(SYS_open, (long)"/proc/self/fd", O_RDONLY | O_DIRECTORY, 0);
    if (directory < 0)
        return last;
    for (;;) {
        long got = ff_syscall3(SYS_getdents64, directory, (long)buffer, sizeof buffer);
        if (got <= 0)
            break;
        for (long at = 0; at < got;) {
            const struct directory_entry *entry =
                (const struct directory_entry *)((char *)buffer + at);
            uint32_t number = 0;
            for (const char *digit = entry->name; *digit >= '0' && *digit <= '9'; digit++)
                number = number * 10 + (uint32_t)(*digit - '0');
            if (number > highest && number <= last)
                highest = number;
            at += entry->bytes;
        }
    }
    ff_syscall3(SYS_close, directory, 0, 0);
    return highest;
}

void ff_descriptors_enter(void *drcontext, struct ff_thread *thread)
{
    reg_t first = dr_syscall_get_param(drcontext, 0), last = dr_syscall_get_param(drcontext, 1);
    thread->close_range_last = last;
    if ((uint32_t)first <= (uint32_t)last)
        dr_syscall_set_param(drcontext, 1, highest_open((uint32_t)first, (uint32_t)last));
}

void ff_descriptors_exit(void *drcontext, struct ff_thread *thread)
{
    /* The kernel leaves argument registers alone, and compilers count on it. */
    dr_mcontext_t state = {.size = sizeof state, .flags = DR_MC_INTEGER};
    if (dr_get_mcontext(drcontext, &state)) {
        state.xsi = thread->close_range_last;
        dr_set_mcontext(drcontext, &state);
    }
}
