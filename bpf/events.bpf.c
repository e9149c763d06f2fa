/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Records who runs, who wakes whom, and what threads wait for. In: scheduler, process, signal, timer and system call
 * tracepoints. Out: struct ff_event records in a ring; per-CPU counts of what found no room.
 *
 * Two things keep it cheap. The call that a thread blocks in is read from its saved registers when it blocks, so
 * nothing runs at the entry of calls that don't ("lazy"). And writing a record wakes nobody: the reader looks by the
 * clock. Which context a wake comes from is in no tracepoint: it is the CPU's __preempt_count, which is found from a
 * run queue's address, as both are per-CPU variables of known offset.
 *
 * Ids of threads and processes are those of the recorder's own pid namespace, in records and in `tree`. */
#include "ff_events.h"
#include "ff_task.h"

static long (*const bpf_ringbuf_output)(void *ring, void *data, __u64 size,
                                        __u64 flags) = (void *)BPF_FUNC_ringbuf_output;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_delete_elem;

#define PF_IO_WORKER 0x00000010
#define PF_KTHREAD 0x00200000
#define PAGE 4096
#define KERNEL_STACK (4 * PAGE)

struct pt_regs {
    unsigned long orig_ax, ax, di, si, dx, ip, sp;
} KERNEL;

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_RINGBUF);
    MAP_NUMBER(max_entries, 64 << 20);
} events SECTION(".maps");

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
    MAP_TYPE(value, struct ff_event_ranges);
} tree SECTION(".maps");

/* Ids of threads that have ended, and in the high half of their processes, by the kernel's own: a thread has left its
 * namespaces before it gives up its CPU for the last time. Not used in the first pid namespace. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
    MAP_NUMBER(max_entries, 16384);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u64);
} ended SECTION(".maps");

struct stack_record {
    struct ff_event event;
    __u64 words[FF_STACK_MOST];
    __u64 seen[FF_STACK_WORDS];
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct stack_record);
} scratch SECTION(".maps");

/* Filled in before loading. */
const volatile struct ff_events_config ff_config SECTION(".rodata");

const volatile __u64 ff_names[256] SECTION(".rodata"); /* by letter: the bits that it moves on */

char ff_license[] SECTION("license") = "Dual MIT/GPL";

INLINE struct ff_events_cpu *this_cpu(void)
{
    __u32 zero = 0;
    return bpf_map_lookup_elem(&cpus, &zero);
}

struct record1 {
    struct ff_event event;
    __u64 w0;
};
struct record2 {
    struct ff_event event;
    __u64 w0, w1;
};
struct record3 {
    struct ff_event event;
    __u64 w0, w1, w2;
};

INLINE void fill(struct ff_event *event, __u64 sequence, __u8 kind, __u8 flags, __u32 a, __u32 b)
{
    event->ts = bpf_ktime_get_ns();
    event->sequence = sequence;
    event->cpu = bpf_get_smp_processor_id();
    event->kind = kind;
    event->flags = flags;
    event->a = a;
    event->b = b;
}

/* Atomic: an interrupt may record between any two instructions. */
INLINE __u64 count_record(struct ff_events_cpu *cpu) { return __sync_fetch_and_add(&cpu->sequence, 1); }

INLINE void *reserve(__u64 bytes, __u8 kind, __u8 flags, __u32 a, __u32 b)
{
    struct ff_events_cpu *cpu = this_cpu();
    if (!cpu)
        return 0;
    __u64 sequence = count_record(cpu);
    struct ff_event *event = bpf_ringbuf_reserve(&events, bytes, 0);
    if (!event) {
        __sync_fetch_and_add(&cpu->lost, 1);
        return 0;
    }
    fill(event, sequence, kind, flags, a, b);
    return event;
}

#define SUBMIT(record) bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP)

INLINE void record0(__u8 kind, __u8 flags, __u32 a, __u32 b)
{
    struct ff_event *record = reserve(sizeof *record, kind, flags, a, b);
    if (record)
        SUBMIT(record);
}

INLINE void record1(__u8 kind, __u8 flags, __u32 a, __u32 b, __u64 w0)
{
    struct record1 *record = reserve(sizeof *record, kind, flags, a, b);
    if (!record)
        return;
    record->w0 = w0;
    SUBMIT(record);
}

INLINE void record2(__u8 kind, __u8 flags, __u32 a, __u32 b, __u64 w0, __u64 w1)
{
    struct record2 *record = reserve(sizeof *record, kind, flags, a, b);
    if (!record)
        return;
    record->w0 = w0;
    record->w1 = w1;
    SUBMIT(record);
}

INLINE void record3(__u8 kind, __u8 flags, __u32 a, __u32 b, __u64 w0, __u64 w1, __u64 w2)
{
    struct record3 *record = reserve(sizeof *record, kind, flags, a, b);
    if (!record)
        return;
    record->w0 = w0;
    record->w1 = w1;
    record->w2 = w2;
    SUBMIT(record);
}

/* The asm keeps the compiler from joining loads from a map and from a task: the verifier wants them apart. */
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

INLINE struct ff_event_ranges *member(__u32 process) { return process ? bpf_map_lookup_elem(&tree, &process) : 0; }

INLINE int is_recorded(__u32 process) { return ff_config.everything || member(process); }

/* Whether the thread's name fits one of the patterns, which are followed at once: core/events/src/names.rs. */
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

INLINE int concerns(struct task_struct *task) { return is_recorded(process_of(task)) && is_named(task); }

/* The call that a user thread is in and its first argument; 0: none, or it was interrupted in user mode. */
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

/* What a call returns or is given, where it fits in a record without words. */
INLINE void record_call(__u8 kind, __u8 short_kind, __u32 a, __u64 number, __u64 value)
{
    __u64 most = 1ULL << (FF_SHORT_SHIFT - 1);
    if (number < FF_SHORT_NUMBERS && value + most < 2 * most)
        record0(short_kind, number, a, number >> 8 << FF_SHORT_SHIFT | (value & (2 * most - 1)));
    else
        record1(kind, 0, a, 0, (number + 1) << FF_CALL_SHIFT | (value & ((1ULL << FF_CALL_SHIFT) - 1)));
}

/* Calls that wait for a time have their timer among their own variables, and it is known without a record who armed it.
 */
INLINE int is_own_timer(struct task_struct *task, __u64 timer) { return timer - (__u64)task->stack < KERNEL_STACK; }

INLINE __u8 context_now(struct task_struct *current)
{
    if (!ff_config.runqueues || !__builtin_preserve_field_info(current->se.cfs_rq, FIELD_EXISTS))
        return FF_CONTEXT_UNKNOWN;
    struct cfs_rq *queue = current->se.cfs_rq;
    __u64 rq = queue ? (__u64)queue->rq : 0;
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

/* 1 when `from` <= value < `from` + bytes. BPF has no instruction for the result of a comparison, and each branch would
 * double the ways that the verifier follows: so it is arithmetic, which the empty asm hides from the compiler. */
INLINE __u64 is_within(__u64 value, __u64 from, __u64 bytes)
{
    __u64 distance = value - from;
    __u64 sign = ~distance & (distance - bytes);
    asm volatile("" : "+r"(sign));
    return sign >> 63;
}

/* Keeps those words of the user stack that lie in code. */
INLINE void record_stack(struct task_struct *task)
{
    if (!ff_config.stack_words || task->flags & PF_KTHREAD)
        return;
    struct ff_event_ranges *ranges = member(process_of(task));
    __u32 zero = 0;
    struct stack_record *record = bpf_map_lookup_elem(&scratch, &zero);
    struct ff_events_cpu *cpu = this_cpu();
    if (!ranges || !record || !cpu)
        return;
    struct pt_regs *registers = bpf_task_pt_regs(task);
    __u64 sp = registers->sp;
    if (bpf_probe_read_user(record->seen, sizeof record->seen, (const void *)sp)) {
        __u64 bytes = PAGE - (sp & (PAGE - 1));
        for (int i = 0; i < FF_STACK_WORDS; i++)
            record->seen[i] = 0;
        if (bytes < sizeof record->seen && bpf_probe_read_user(record->seen, bytes, (const void *)sp))
            return;
    }
    __u64 program = ranges->program, program_bytes = ranges->program_bytes;
    __u64 libraries = ranges->libraries;
    __u64 libraries_bytes = ff_config.program_only ? 0 : ranges->libraries_bytes;
    __u64 most = ff_config.stack_words - 1;
    record->words[0] = registers->ip;
    __u64 count = 1;
    for (int i = 0; i < FF_STACK_WORDS; i++) {
        __u64 word = record->seen[i];
        __u64 is_code = is_within(word, program, program_bytes) | is_within(word, libraries, libraries_bytes);
        record->words[count & (FF_STACK_MOST - 1)] = word;
        count += is_code & is_within(count, 0, most + 1);
    }
    count &= FF_STACK_MOST - 1;
    fill(&record->event, count_record(cpu), FF_EVENT_STACK, 0, id_of(task), count);
    if (bpf_ringbuf_output(&events, record, sizeof record->event + count * 8, BPF_RB_NO_WAKEUP))
        __sync_fetch_and_add(&cpu->lost, 1);
}

INLINE __u8 state_of(int preempted, __u32 state)
{
    if (preempted || !state)
        return FF_STATE_PREEMPTED;
    if (state & 0x400) /* a kernel thread without work */
        return FF_STATE_OTHER;
    if (state & 1)
        return FF_STATE_SLEEPS;
    if (state & 2)
        return FF_STATE_DISK;
    if (state & (4 | 8))
        return FF_STATE_STOPPED;
    return state & (0x10 | 0x20 | 0x80) ? FF_STATE_DEAD : FF_STATE_OTHER;
}

INLINE int record_switch(int preempted, struct task_struct *prev, struct task_struct *next, __u32 state)
{
    if (!concerns(prev) && !concerns(next))
        return 0;
    __u8 flags = state_of(preempted, state);
    __u64 call = preempted ? 0 : call_of(prev); /* one that could go on and gives way by itself yields */
    if (call)
        record1(FF_EVENT_SWITCH, flags, id_of(prev), id_of(next), call);
    else
        record0(FF_EVENT_SWITCH, flags, id_of(prev), id_of(next));
    if (call && flags != FF_STATE_PREEMPTED)
        record_stack(prev);
    return 0;
}

/* The tracepoint's arguments differ between kernels; core/events/src/switch.rs loads one of these three. */
SECTION("tp_btf/sched_switch")
int ff_sched_switch(__u64 *context)
{
    return record_switch(context[0], (void *)context[1], (void *)context[2], context[3]);
}

SECTION("tp_btf/sched_switch")
int ff_sched_switch_state_second(__u64 *context)
{
    return record_switch(context[0], (void *)context[2], (void *)context[3], context[1]);
}

/* Without the state it is read where another CPU may just be changing it: a thread that is woken at this very moment
 * seems to have been preempted. */
SECTION("tp_btf/sched_switch")
int ff_sched_switch_stateless(__u64 *context)
{
    struct task_struct *prev = (void *)context[1];
    return record_switch(context[0], prev, (void *)context[2], prev->__state);
}

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
        record1(FF_EVENT_SIGNAL, context_now(current), id_of(current), id_of(target), number | (__u64)result << 32);
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
    struct ff_event_ranges *ranges = member(parent_process);
    if (!ranges && !ff_config.everything)
        return 0;
    if (ranges && process != parent_process) {
        struct ff_event_ranges copy = *ranges;
        if (bpf_map_update_elem(&tree, &process, &copy, BPF_ANY)) {
            struct ff_events_cpu *cpu = this_cpu();
            if (cpu)
                __sync_fetch_and_add(&cpu->not_followed, 1);
            flags = FF_FORK_NOT_FOLLOWED;
        }
    }
    record3(FF_EVENT_FORK, flags, id_of(parent), id_of(child), process | (__u64)parent_process << 32, low_name(child),
            high_name(child));
    return 0;
}

/* Threads in which io_uring waits are the process's, but it did not start them: the kernel tells of no fork. */
SECTION("tp_btf/task_newtask")
int ff_task_newtask(__u64 *context)
{
    struct task_struct *child = (void *)context[0];
    struct task_struct *current = bpf_get_current_task_btf();
    if (!(child->flags & PF_IO_WORKER))
        return 0;
    __u32 process = process_of(child);
    if (is_recorded(process))
        record3(FF_EVENT_FORK, 0, id_of(current), id_of(child), process | (__u64)process << 32, low_name(child),
                high_name(child));
    return 0;
}

SECTION("tp_btf/sched_process_exec")
int ff_sched_process_exec(__u64 *context)
{
    struct task_struct *task = (void *)context[0];
    __u32 id = id_of(task), process = process_of(task), old = context[1];
    if (ff_here.level) /* the kernel tells its own id only, and the task has the new one by now */
        old = old == task->pid ? id : 0;
    if (is_recorded(process))
        record3(FF_EVENT_EXEC, 0, id, 0, process | (__u64)old << 32, low_name(task), high_name(task));
    return 0;
}

SECTION("tp_btf/sched_process_exit")
int ff_sched_process_exit(__u64 *context)
{
    struct task_struct *task = (void *)context[0];
    __u32 process = process_of(task);
    if (!is_recorded(process))
        return 0;
    if (ff_here.level) {
        __u32 kernel = task->pid;
        __u64 ids = id_of(task) | (__u64)process << 32;
        bpf_map_update_elem(&ended, &kernel, &ids, BPF_ANY); /* the oldest make room */
    }
    record1(FF_EVENT_EXIT, 0, id_of(task), 0, process | (__u64)(__u32)task->exit_code << 32);
    if (task->signal->live.counter == 0)
        bpf_map_delete_elem(&tree, &process);
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

/* Calls whose second and third arguments tell what is waited for, for how long, or whom it concerns. */
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

/* Where no other thread can run, sched_yield returns without a switch, which would tell of it. A look at what runs, by
 * the clock, finds a thread that does little else, and costs the others nothing. */
SECTION("perf_event")
int ff_clock(void *context)
{
    enum { SCHED_YIELD = 24 };
    struct task_struct *current = bpf_get_current_task_btf();
    if (concerns(current) && call_of(current) >> FF_CALL_SHIFT == SCHED_YIELD + 1)
        record0(FF_EVENT_YIELD, 0, id_of(current), 0);
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
