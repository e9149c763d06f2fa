/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Who has the lock of a file that a thread asks for, is refused, and asks for later again: nobody
 * ends its waits in between. The kernel's lists name the process; which of its threads took a lock
 * of the file last is kept here. */
#ifndef FF_FILE_LOCKS_H
#define FF_FILE_LOCKS_H

#include "ff_exchange.h"

#define FF_AGAIN 11
#define FF_WRITE_LOCK 1
#define FF_NO_LOCK 2
#define FF_LOCKS_MOST 16 /* of one file that are looked at */
#define FF_SOON 1000000  /* ns: who asks without a pause is told of once in that time */

struct list_head {
    struct list_head *next;
} KERNEL;
struct file_lock_context {
    struct list_head flc_flock, flc_posix;
} KERNEL;
struct file_lock_core {
    struct list_head flc_list;
    __u8 flc_type;
    int flc_pid;
} KERNEL;
/* The fields of `c` are the lock's own before Linux 6.9. */
struct file_lock {
    struct file_lock_core c;
    struct list_head fl_list;
    __u8 fl_type;
    unsigned int fl_pid;
    __s64 fl_start, fl_end;
} KERNEL;

struct lock {
    __s64 start, end;
    __u32 process; /* by the kernel's id */
    __u8 type;
};

struct locked {
    __u64 inode;
    __u64 process; /* the same */
};

struct locker {
    __u32 thread, process;
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
    MAP_NUMBER(max_entries, 4096);
    MAP_TYPE(key, struct locked);
    MAP_TYPE(value, struct locker);
} lockers SECTION(".maps");

INLINE void read_lock(struct lock *to, const struct file_lock *lock)
{
    if (__builtin_preserve_field_info(lock->fl_pid, FIELD_EXISTS)) {
        FETCH(&to->type, lock, fl_type);
        FETCH(&to->process, lock, fl_pid);
    } else {
        FETCH(&to->type, lock, c.flc_type);
        FETCH(&to->process, lock, c.flc_pid);
    }
    FETCH(&to->start, lock, fl_start);
    FETCH(&to->end, lock, fl_end);
}

INLINE const struct file_lock *lock_at(const struct list_head *node)
{
    const struct file_lock *lock = 0;
    if (__builtin_preserve_field_info(lock->fl_pid, FIELD_EXISTS))
        return (const void *)node - __builtin_preserve_field_info(lock->fl_list, FIELD_OFFSET);
    return (const void *)node - __builtin_preserve_field_info(lock->c.flc_list, FIELD_OFFSET);
}

/* The process whose lock is in the way; 0: none that is named. (A lock of an open file is not.) */
INLINE __u32 in_the_way(const struct list_head *list, const struct lock *wanted)
{
    const struct list_head *node = 0;
    FETCH(&node, list, next);
    for (int i = 0; i < FF_LOCKS_MOST && node && node != list; i++) {
        struct lock held = {};
        read_lock(&held, lock_at(node));
        if ((held.type == FF_WRITE_LOCK || wanted->type == FF_WRITE_LOCK) &&
            held.start <= wanted->end && wanted->start <= held.end && (__s32)held.process > 0 &&
            held.process != wanted->process)
            return held.process;
        FETCH(&node, node, next);
    }
    return 0;
}

INLINE int file_lock(const struct inode *inode, const struct file_lock *lock, __s32 result,
                     int is_whole)
{
    struct task_struct *current = bpf_get_current_task_btf();
    struct lock wanted = {};
    if (!inode || !lock) /* to the verifier they may be missing */
        return 0;
    read_lock(&wanted, lock);
    if (!result && wanted.type != FF_NO_LOCK) {
        struct locked key = {(__u64)inode, current->tgid};
        struct locker locker = {id_of(current), process_of(current)};
        bpf_map_update_elem(&lockers, &key, &locker, BPF_ANY);
        return 0;
    }
    struct ff_events_cpu *cpu = this_cpu();
    if (result != -FF_AGAIN || !cpu || !concerns(current))
        return 0;
    __u64 now = bpf_ktime_get_ns();
    if (now - cpu->refused < FF_SOON)
        return 0;
    const struct file_lock_context *all = 0;
    FETCH(&all, inode, i_flctx);
    if (!all)
        return 0;
    wanted.process = current->tgid;
    __u32 process = in_the_way(is_whole ? &all->flc_flock : &all->flc_posix, &wanted);
    if (!process)
        return 0;
    cpu->refused = now;
    struct locked key = {(__u64)inode, process};
    struct locker *found = bpf_map_lookup_elem(&lockers, &key);
    if (found)
        record1(FF_EVENT_REFUSED, 0, id_of(current), found->thread, found->process);
    else
        record1(FF_EVENT_REFUSED, 0, id_of(current), 0,
                ff_here.level ? elsewhere(process) : process);
    return 0;
}

SECTION("tp_btf/posix_lock_inode")
int ff_posix_lock_inode(__u64 *context)
{
    return file_lock((void *)context[0], (void *)context[1], context[2], 0);
}

SECTION("tp_btf/flock_lock_inode")
int ff_flock_lock_inode(__u64 *context)
{
    return file_lock((void *)context[0], (void *)context[1], context[2], 1);
}

#endif
