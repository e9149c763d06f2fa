/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Records who runs, who wakes whom, and what threads wait for. In: scheduler, process, signal,
 * timer and system call tracepoints. Out: struct ff_event records in a ring; per-CPU counts of what
 * found no room.
 *
 * Two things keep it cheap. The call that a thread blocks in is read from its saved registers when
 * it blocks, so nothing runs at the entry of calls that don't ("lazy"). And writing a record wakes
 * nobody: the reader looks by the clock. Which context a wake comes from is in no tracepoint: it is
 * the CPU's __preempt_count, which is found from a run queue's address, as both are per-CPU
 * variables of known offset. */
#include "ff_exchange.h"
#include "ff_file_locks.h"
#include "ff_python.h"
#include "ff_stack.h"

#define PF_IO_WORKER 0x00000010
#define KERNEL_STACK (4 * PAGE)

char ff_license[] SECTION("license") = "Dual MIT/GPL";

struct stack_record {
    struct ff_event event;
    struct scan scan;
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct stack_record);
} scratch SECTION(".maps");

/* A call that waits for a time keeps its timer among its own variables, so no record is needed to
 * tell who armed it.
 */
INLINE int is_own_timer(struct task_struct *task, __u64 timer)
{
    __u64 begin = (__u64)task->stack, end = begin + KERNEL_STACK;
    /* Not to be made one subtraction: verifiers before Linux 6.18 refuse that of the kernel's
     * pointers, and compare them. */
    asm volatile("" : "+r"(end));
    return timer >= begin && timer < end;
}

INLINE __u8 context_now(struct task_struct *current)
{
    if (!ff_config.runqueues || !__builtin_preserve_field_info(current->se.cfs_rq, FIELD_EXISTS))
        return FF_CONTEXT_UNKNOWN;
    /* Read as a number: see is_own_timer(). */
    __u64 rq = 0;
    bpf_probe_read_kernel(&rq, sizeof rq, &current->se.cfs_rq->rq);
    __u32 count = 0;
    const void *place = (const void *)(rq - ff_config.runqueues + ff_config.preempt_count);
    if (!rq || bpf_probe_read_kernel(&count, sizeof count, place))
        return FF_CONTEXT_UNKNOWN;
    if (count & 0x00f00000)
        return FF_CONTEXT_NMI;
    if (count & 0x000f0000)
        return FF_CONTEXT_HARDIRQ;
    return count & 0x100 ? FF_CONTEXT_SOFTIRQ : FF_CONTEXT_TASK;
}

struct copy_record {
    struct ff_event event;
    __u64 ip, sp, bp;
    char bytes[FF_COPY_MOST];
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct copy_record);
} copies SECTION(".maps");

/* The reader finds the callers by unwind tables, which BPF can't read. */
INLINE void copy_stack(struct task_struct *task)
{
    __u32 zero = 0;
    struct copy_record *record = bpf_map_lookup_elem(&copies, &zero);
    struct ff_events_cpu *cpu = this_cpu();
    if (!record || !cpu || !member(process_of(task)))
        return;
    struct pt_regs *registers = bpf_task_pt_regs(task);
    record->ip = registers->ip;
    record->sp = registers->sp;
    record->bp = registers->bp;
    __u64 count = copy_user_stack(record->bytes, record->sp, ff_config.copy_bytes);
    if (!count || count > FF_COPY_MOST)
        return;
    fill(&record->event, count_record(cpu), FF_EVENT_STACK_COPY, 0, id_of(task), count);
    __u64 head = sizeof *record - FF_COPY_MOST;
    if (bpf_ringbuf_output(&events, record, head + count, BPF_RB_NO_WAKEUP))
        __sync_fetch_and_add(&cpu->lost, 1);
}

INLINE void record_stack(struct task_struct *task)
{
    if (!ff_config.stack_words || task->flags & PF_KTHREAD)
        return;
    __u32 process = process_of(task);
    struct ff_event_process *ranges = member(process);
    if (ranges && ranges->python)
        record_python(task, process);
    if (ff_config.copy_bytes) {
        copy_stack(task);
        return;
    }
    __u32 zero = 0;
    struct stack_record *record = bpf_map_lookup_elem(&scratch, &zero);
    struct ff_events_cpu *cpu = this_cpu();
    if (!ranges || !record || !cpu)
        return;
    __u64 count = scan_stack(task, ranges, &record->scan, ff_config.stack_words - 1);
    if (!count)
        return;
    fill(&record->event, count_record(cpu), FF_EVENT_STACK, 0, id_of(task), count);
    if (bpf_ringbuf_output(&events, record, sizeof record->event + count * 8, BPF_RB_NO_WAKEUP))
        __sync_fetch_and_add(&cpu->lost, 1);
}

/* Where in the kernel a thread waits: its call does not say what for, and a page fault is none. */
INLINE void record_kernel_stack(struct task_struct *task)
{
    __u32 zero = 0;
    struct stack_record *record = bpf_map_lookup_elem(&scratch, &zero);
    struct ff_events_cpu *cpu = this_cpu();
    if (!record || !cpu || task->flags & PF_KTHREAD || !member(process_of(task)))
        return;
    __u64 bytes = bpf_get_task_stack(task, record->scan.words, sizeof record->scan.words, 0);
    if (!bytes || bytes > sizeof record->scan.words) /* a negative one is an error */
        return;
    fill(&record->event, count_record(cpu), FF_EVENT_KERNEL, 0, id_of(task), bytes / 8);
    if (bpf_ringbuf_output(&events, record, sizeof record->event + bytes, BPF_RB_NO_WAKEUP))
        __sync_fetch_and_add(&cpu->lost, 1);
}

INLINE int record_switch(int preempted, struct task_struct *prev, struct task_struct *next,
                         __u32 state)
{
    if (!concerns(prev) && !concerns(next))
        return 0;
    __u8 flags = state_of(preempted, state);
    __u64 call =
        preempted ? 0 : call_of(prev); /* one that could go on yields if it gives way by itself */
    if (call)
        record1(FF_EVENT_SWITCH, flags, id_of(prev), id_of(next), call);
    else
        record0(FF_EVENT_SWITCH, flags, id_of(prev), id_of(next));
    if (flags == FF_STATE_DISK)
        record_kernel_stack(prev);
    if (call && flags != FF_STATE_PREEMPTED)
        record_stack(prev);
    return 0;
}

#include "ff_switch.h"

SECTION("tp_btf/sched_waking")
int ff_sched_waking(__u64 *context)
{
    struct task_struct *woken = (void *)context[0];
    struct task_struct *current = bpf_get_current_task_btf();
    if (!concerns(woken) && !concerns(current))
        return 0;
    __u8 flags = context_now(current);
    struct ff_events_cpu *cpu = this_cpu();
    if (cpu && cpu->timer && (flags == FF_CONTEXT_HARDIRQ || flags == FF_CONTEXT_SOFTIRQ)) {
        flags = FF_CONTEXT_TIMEOUT;
        if (!is_own_timer(woken, cpu->timer)) {
            flags = FF_CONTEXT_TIMER;
            record1(FF_EVENT_FIRE, 0, id_of(current), id_of(woken), cpu->timer);
        }
    }
    __u64 call = call_of(current) >> FF_CALL_SHIFT;
    __u64 packed = call | (__u64)(__u8)woken->prio << 32 | (__u64)(__u8)current->prio << 40;
    record1(FF_EVENT_WAKING, flags, id_of(current), id_of(woken), packed);
    if (call && flags == FF_CONTEXT_TASK)
        record_stack(current);
    return 0;
}

SECTION("tp_btf/signal_generate")
int ff_signal_generate(__u64 *context)
{
    __u32 number = context[0];
    struct task_struct *target = (void *)context[2];
    __u32 result = context[4];
    struct task_struct *current = bpf_get_current_task_btf();
    if (concerns(target) || concerns(current))
        record1(FF_EVENT_SIGNAL, context_now(current), id_of(current), id_of(target),
                number | (__u64)result << 32);
    return 0;
}

SECTION("tp_btf/hrtimer_start")
int ff_hrtimer_start(__u64 *context)
{
    __u64 timer = context[0];
    struct task_struct *current = bpf_get_current_task_btf();
    if (is_own_timer(current, timer) || current->flags & PF_KTHREAD || !concerns(current))
        return 0;
    if (context_now(current) == FF_CONTEXT_TASK && call_of(current))
        record1(FF_EVENT_ARM, 0, id_of(current), 0, timer);
    return 0;
}

SECTION("tp_btf/hrtimer_expire_entry")
int ff_hrtimer_expire_entry(__u64 *context)
{
    struct ff_events_cpu *cpu = this_cpu();
    if (cpu)
        cpu->timer = context[0];
    return 0;
}

SECTION("tp_btf/hrtimer_expire_exit")
int ff_hrtimer_expire_exit(void *context)
{
    struct ff_events_cpu *cpu = this_cpu();
    if (cpu)
        cpu->timer = 0;
    return 0;
}

/* io_uring requests, by their address. Kernels without these tracepoints do not tell. */
INLINE int record_request(__u8 kind, __u64 request)
{
    struct task_struct *current = bpf_get_current_task_btf();
    if (request && concerns(current))
        record1(kind, 0, id_of(current), 0, request);
    return 0;
}

SECTION("tp_btf/io_uring_submit_req")
int ff_io_uring_submit_req(__u64 *context) { return record_request(FF_EVENT_SUBMIT, context[0]); }

SECTION("tp_btf/io_uring_complete")
int ff_io_uring_complete(__u64 *context) { return record_request(FF_EVENT_COMPLETE, context[1]); }

INLINE __u64 low_name(struct task_struct *task) { return *(__u64 *)&task->comm[0]; }

INLINE __u64 high_name(struct task_struct *task) { return *(__u64 *)&task->comm[8]; }

SECTION("tp_btf/sched_process_fork")
int ff_sched_process_fork(__u64 *context)
{
    struct task_struct *parent = (void *)context[0], *child = (void *)context[1];
    __u32 process = process_of(child), parent_process = process_of(parent);
    __u8 flags = 0;
    struct ff_event_process *ranges = member(parent_process);
    if (!ranges && !ff_config.everything)
        return 0;
    if (ranges && process != parent_process) {
        if (!follow(ranges, process))
            flags = FF_FORK_NOT_FOLLOWED;
        inherit_python(ranges, parent_process, process);
    }
    record3(FF_EVENT_FORK, flags, id_of(parent), id_of(child),
            process | (__u64)parent_process << 32, low_name(child), high_name(child));
    return 0;
}

/* Threads in which io_uring waits are the process's, but it did not start them: the kernel tells of
 * no fork. */
SECTION("tp_btf/task_newtask")
int ff_task_newtask(__u64 *context)
{
    struct task_struct *child = (void *)context[0];
    struct task_struct *current = bpf_get_current_task_btf();
    if (!(child->flags & PF_IO_WORKER))
        return 0;
    __u32 process = process_of(child);
    if (is_recorded(process))
        record3(FF_EVENT_FORK, 0, id_of(current), id_of(child), process | (__u64)process << 32,
                low_name(child), high_name(child));
    return 0;
}

SECTION("tp_btf/sched_process_exec")
int ff_sched_process_exec(__u64 *context)
{
    struct task_struct *task = (void *)context[0];
    __u32 id = id_of(task), process = process_of(task), old = context[1];
    if (ff_here.level) /* the kernel tells its own id only, and the task has the new one by now */
        old = old == task->pid ? id : 0;
    struct ff_event_process *ranges = member(process);
    if (ranges)
        executed(ranges, task);
    if (is_recorded(process))
        record3(FF_EVENT_EXEC, 0, id, 0, process | (__u64)old << 32, low_name(task),
                high_name(task));
    return 0;
}

SECTION("tp_btf/sched_process_exit")
int ff_sched_process_exit(__u64 *context)
{
    struct task_struct *task = (void *)context[0];
    __u32 process = process_of(task);
    if (!is_recorded(process))
        return 0;
    __u32 id = id_of(task);
    record1(FF_EVENT_EXIT, 0, id, 0, process | (__u64)(__u32)task->exit_code << 32);
    if (leave(task, id, process))
        bpf_map_delete_elem(&pythons, &process);
    return 0;
}

SECTION("tp_btf/task_rename")
int ff_task_rename(__u64 *context)
{
    struct task_struct *task = (void *)context[0];
    const char *name = (const void *)context[1];
    if (!is_recorded(process_of(task)))
        return 0;
    __u64 words[2] = {0, 0};
    bpf_probe_read_kernel(words, sizeof words, name);
    struct task_struct *current = bpf_get_current_task_btf();
    record2(FF_EVENT_RENAME, 0, id_of(current), id_of(task), words[0], words[1]);
    return 0;
}

/* Calls whose second and third arguments tell what is waited for, for how long, or whom it
 * concerns. */
INLINE int is_wide(__u64 number)
{
    switch (number) {
    case 7:   /* poll */
    case 62:  /* kill */
    case 200: /* tkill */
    case 202: /* futex */
    case 232: /* epoll_wait */
    case 233: /* epoll_ctl */
    case 234: /* tgkill */
    case 281: /* epoll_pwait */
    case 286: /* timerfd_settime */
    case 271: /* ppoll */
        return 1;
    }
    return 0;
}

/* A look by the clock at what runs costs other threads nothing. It shows where a thread that
 * computes spends its time. If no other thread can run, sched_yield returns without a switch, so no
 * event tells of it; a thread that does little else is found in it. */
SECTION("perf_event")
int ff_clock(void *context)
{
    enum { SCHED_YIELD = 24 };
    struct task_struct *current = bpf_get_current_task_btf();
    if (current->flags & PF_KTHREAD || !current->pid || !concerns(current))
        return 0;
    __u64 call = call_of(current);
    if (ff_config.syscalls == FF_SYSCALLS_LAZY && call >> FF_CALL_SHIFT == SCHED_YIELD + 1)
        record0(FF_EVENT_YIELD, 0, id_of(current), 0);
    if (!member(process_of(current)))
        return 0;
    struct pt_regs *registers = bpf_task_pt_regs(current);
    record2(FF_EVENT_SAMPLE, 0, id_of(current), 0, call, registers->ip);
    record_stack(current);
    return 0;
}

SECTION("tp_btf/sys_enter")
int ff_sys_enter(__u64 *context)
{
    struct pt_regs *registers = (void *)context[0];
    __u64 number = context[1];
    struct task_struct *current = bpf_get_current_task_btf();
    if (number >= 0xffff || !member(process_of(current)) || !is_named(current))
        return 0;
    if (is_wide(number)) {
        __u64 w0 = (number + 1) << FF_CALL_SHIFT | (registers->di & ((1ULL << FF_CALL_SHIFT) - 1));
        record2(FF_EVENT_ENTER_WIDE, 0, id_of(current), registers->si, w0, registers->dx);
    } else
        record_call(FF_EVENT_ENTER, FF_EVENT_ENTER_SHORT, id_of(current), number, registers->di);
    return 0;
}

SECTION("tp_btf/sys_exit")
int ff_sys_exit(__u64 *context)
{
    struct pt_regs *registers = (void *)context[0];
    __u64 result = context[1];
    struct task_struct *current = bpf_get_current_task_btf();
    __u64 number = registers->orig_ax;
    if (number >= 0xffff || !member(process_of(current)) || !is_named(current))
        return 0;
    record_call(FF_EVENT_EXIT_CALL, FF_EVENT_EXIT_CALL_SHORT, id_of(current), number, result);
    return 0;
}
