/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Who is recorded: the processes that were asked for and what they start, threads with certain
 * names; and the ids of both, which are those of the recorder's own pid namespace, in records and
 * in `tree`. */
#ifndef FF_TARGET_H
#define FF_TARGET_H

#include "ff_events.h"
#include "ff_task.h"

static long (*const bpf_map_delete_elem)(void *map,
                                         const void *key) = (void *)BPF_FUNC_map_delete_elem;

#define PF_KTHREAD 0x00200000
#define PAGE 4096
#define LIBRARIES (1ULL << 30) /* bytes that hold those of a program that was just started */

struct pt_regs {
    unsigned long orig_ax, ax, di, si, dx, r10, r8, bp, ip, sp;
} KERNEL;

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct ff_events_cpu);
} cpus SECTION(".maps");

/* The processes that are recorded, by id: kept current here by fork and exit. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 65536);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct ff_event_process);
} tree SECTION(".maps");

/* Ids of threads that have ended, and in the high half of their processes, by the kernel's own: a
 * thread has left its namespaces before it gives up its CPU for the last time. Not used in the
 * first pid namespace. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
    MAP_NUMBER(max_entries, 16384);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u64);
} ended SECTION(".maps");

/* Filled in before loading. */
const volatile struct ff_events_config ff_config SECTION(".rodata");

const volatile __u64 ff_names[256] SECTION(".rodata"); /* by letter: the bits that it moves on */

INLINE struct ff_events_cpu *this_cpu(void)
{
    __u32 zero = 0;
    return bpf_map_lookup_elem(&cpus, &zero);
}

/* The asm keeps the compiler from merging loads from a map and from a task: the verifier refuses
 * merged ones. */
INLINE __u64 ids_before_end(struct task_struct *task)
{
    __u32 kernel = task->pid;
    __u64 *found = task->thread_pid ? 0 : bpf_map_lookup_elem(&ended, &kernel);
    __u64 ids = found ? *found : 0;
    asm volatile("" : "+r"(ids));
    return ids;
}

INLINE __u32 elsewhere(__u32 kernel) { return kernel ? kernel | FF_ELSEWHERE : 0; }

INLINE __u32 id_of(struct task_struct *task)
{
    if (!ff_here.level)
        return task->pid;
    __u32 number = number_here(task->thread_pid);
    if (number)
        return number;
    __u32 before = ids_before_end(task);
    return before ? before : elsewhere(task->pid);
}

INLINE __u32 process_of(struct task_struct *task)
{
    if (!ff_here.level)
        return task->tgid;
    __u32 number = number_here(task->group_leader->thread_pid);
    if (number)
        return number;
    __u32 before = ids_before_end(task) >> 32;
    return before ? before : elsewhere(task->tgid);
}

INLINE struct ff_event_process *member(__u32 process)
{
    return process ? bpf_map_lookup_elem(&tree, &process) : 0;
}

INLINE int is_recorded(__u32 process) { return ff_config.everything || member(process); }

/* Whether the thread's name fits one of the patterns, which are followed at once:
 * graph/events/src/names.rs. */
INLINE int is_named(struct task_struct *task)
{
    if (!ff_config.name_ends)
        return 1;
    __u64 state = ff_config.name_begins;
    for (int i = 0; i < FF_NAME_BYTES; i++) {
        __u8 letter = task->comm[i];
        if (!letter)
            break;
        state = (state & ff_names[letter]) << 1 | (state & ff_config.name_repeats);
    }
    return (state & ff_config.name_ends) != 0;
}

INLINE int concerns(struct task_struct *task)
{
    return is_recorded(process_of(task)) && is_named(task);
}

/* The call that a user thread is in and its first argument; 0: none, or it was interrupted in user
 * mode. */
INLINE __u64 call_of(struct task_struct *task)
{
    if (ff_config.syscalls == FF_SYSCALLS_OFF || task->flags & PF_KTHREAD)
        return 0;
    struct pt_regs *registers = bpf_task_pt_regs(task);
    __u64 number = registers->orig_ax;
    if (number >= 0xffff)
        return 0;
    return (number + 1) << FF_CALL_SHIFT | (registers->di & ((1ULL << FF_CALL_SHIFT) - 1));
}

INLINE __u8 state_of(int preempted, __u32 state)
{
    if (preempted || !state)
        return FF_STATE_PREEMPTED;
    if (state & 0x400) /* a thread of the kernel that has no work */
        return FF_STATE_OTHER;
    if (state & 1)
        return FF_STATE_SLEEPS;
    if (state & 2)
        return FF_STATE_DISK;
    if (state & (4 | 8))
        return FF_STATE_STOPPED;
    return state & (0x10 | 0x20 | 0x80) ? FF_STATE_DEAD : FF_STATE_OTHER;
}

/* A recorded process starts another, which is recorded too. Returns whether there was room. */
INLINE int follow(struct ff_event_process *parent, __u32 process)
{
    struct ff_event_process copy = *parent;
    if (!bpf_map_update_elem(&tree, &process, &copy, BPF_ANY))
        return 1;
    struct ff_events_cpu *cpu = this_cpu();
    if (cpu)
        __sync_fetch_and_add(&cpu->not_followed, 1);
    return 0;
}

/* A recorded process begins another program: from its first call on it is known where that has its
 * code, and where libraries will be. The reader tells those more precisely once they are there. */
INLINE void executed(struct ff_event_process *ranges, struct task_struct *task)
{
    struct mm_struct *mm = task->mm;
    if (!mm)
        return;
    ranges->program = mm->start_code;
    ranges->program_bytes = mm->end_code - mm->start_code;
    ranges->libraries = mm->mmap_base - LIBRARIES;
    ranges->libraries_bytes = LIBRARIES;
    ranges->python = 0;
}

/* A thread ends; with it its process, if it is the last one: then 1. */
INLINE int leave(struct task_struct *task, __u32 id, __u32 process)
{
    if (ff_here.level) {
        __u32 kernel = task->pid;
        __u64 ids = id | (__u64)process << 32;
        bpf_map_update_elem(&ended, &kernel, &ids, BPF_ANY); /* the oldest entries make room */
    }
    if (task->signal->live.counter)
        return 0;
    bpf_map_delete_elem(&tree, &process);
    return 1;
}

#endif
