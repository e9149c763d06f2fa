/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The kernel's tasks as far as our programs look into them, and their ids as the process that
 * loaded the programs sees them. A task has one id in each pid namespace from its own outwards to
 * the first one; struct pid.numbers holds them by depth. */
#ifndef FF_TASK_H
#define FF_TASK_H

#include "ff_bpf.h"

#define KERNEL __attribute__((preserve_access_index))
#define FIELD_OFFSET 0
#define FIELD_EXISTS 2
#define FF_NAME_BYTES 16

struct pid_namespace;
struct upid {
    int nr;
    struct pid_namespace *ns;
};
struct pid {
    unsigned int level;
    struct upid numbers[1];
} KERNEL;
struct rq {
    int unused;
} KERNEL;
struct cfs_rq {
    struct rq *rq;
} KERNEL;
struct sched_entity {
    struct cfs_rq *cfs_rq;
} KERNEL;
typedef struct {
    int counter;
} KERNEL atomic_t;
struct signal_struct {
    atomic_t live; /* threads */
} KERNEL;
struct mm_struct {
    unsigned long start_code, end_code;
    unsigned long mmap_base; /* libraries lie below it */
} KERNEL;
struct files_struct;
struct thread_struct {
    unsigned long fsbase;
} KERNEL;
struct task_struct {
    int pid, tgid, prio, exit_code, on_cpu;
    unsigned int flags, __state;
    struct signal_struct *signal;
    struct mm_struct *mm;
    struct files_struct *files;
    struct sched_entity se;
    void *stack;
    char comm[FF_NAME_BYTES];
    struct pid *thread_pid; /* null once it has ended */
    struct task_struct *group_leader;
    struct thread_struct thread;
} KERNEL;

/* Our pid namespace, and its depth; 0: the first one, whose ids the kernel keeps in each task. */
struct {
    struct pid_namespace *ns;
    __u32 level;
    __u32 reserved;
} ff_here;

/* Run once by the loader, in its own context, before anything is attached. */
SECTION("raw_tp/ff_find_namespace")
int ff_find_namespace(void *context)
{
    struct task_struct *current = bpf_get_current_task_btf();
    struct pid *pid = current->thread_pid;
    struct upid own = {};
    __u32 level = pid->level;
    const void *numbers =
        (const void *)pid + __builtin_preserve_field_info(pid->numbers, FIELD_OFFSET);
    if (bpf_probe_read_kernel(&own, sizeof own, numbers + level * sizeof own))
        return 1;
    ff_here.ns = own.ns;
    ff_here.level = level;
    return !own.ns;
}

/* The id in our pid namespace; 0: it can't be seen from there. Only for ff_here.level > 0. */
INLINE __u32 number_here(struct pid *pid)
{
    struct upid ours = {};
    __u32 level = ff_here.level;
    if (!pid || pid->level < level)
        return 0;
    const void *numbers =
        (const void *)pid + __builtin_preserve_field_info(pid->numbers, FIELD_OFFSET);
    if (bpf_probe_read_kernel(&ours, sizeof ours, numbers + level * sizeof ours))
        return 0;
    return ours.ns == ff_here.ns ? ours.nr : 0;
}

#endif
