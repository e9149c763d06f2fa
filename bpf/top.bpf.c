/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Adds up, while it happens, how long threads wait, in which calls and where in their code, how
 * long they are ready before they run, and who has their processor meanwhile. In: scheduler,
 * process and system call tracepoints. Out: sums in maps, which the reader takes in the end.
 * Nothing is written for each event, and what does not concern the question (ff_top) is not
 * counted. graph/events/src/tally.rs does the same with a recording. */
#include "ff_stack.h"

char ff_license[] SECTION("license") = "Dual MIT/GPL";

/* By the kernel's own id. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
    MAP_NUMBER(max_entries, 65536);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct ff_top_thread);
} threads SECTION(".maps");

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 16384);
    MAP_TYPE(key, struct ff_top_wait);
    MAP_TYPE(value, struct ff_top_sums);
} waits SECTION(".maps");

/* How long each thread was ready without a processor. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 16384);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct ff_top_sums);
} delays SECTION(".maps");

/* ns of that time, by the thread that had the processor. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 65536);
    MAP_TYPE(key, struct ff_top_pair);
    MAP_TYPE(value, __u64);
} instead SECTION(".maps");

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
    MAP_NUMBER(max_entries, 65536);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct ff_top_name);
} names SECTION(".maps");

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 8192);
    MAP_TYPE(key, __u64);
    MAP_TYPE(value, struct ff_top_stack);
} stacks SECTION(".maps");

/* By thread: waits that began before the counting. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 16384);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct ff_top_before);
} before SECTION(".maps");

/* With copies of stacks: those that were handed over, by key. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 8192);
    MAP_TYPE(key, __u64);
    MAP_TYPE(value, __u32);
} copied SECTION(".maps");

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_RINGBUF);
    MAP_NUMBER(max_entries, 16 << 20);
} copies SECTION(".maps");

struct copy {
    struct ff_top_copy head;
    __u64 words[FF_COPY_MOST / 8];
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct copy);
} copy_scratch SECTION(".maps");

/* The threads that had this CPU last, in a ring. */
struct turn {
    __u64 since;
    __u32 tid;
    __u32 process;
    char name[FF_NAME_BYTES];
};

struct here {
    __u64 next;
    struct turn turns[FF_TOP_TURNS];
    struct scan scan;
    struct ff_top_stack stack;
    struct ff_top_sums sums;
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct here);
} here SECTION(".maps");

/* Filled in before loading. */
const volatile struct ff_top_config ff_top SECTION(".rodata");

INLINE void lose(void)
{
    struct ff_events_cpu *cpu = this_cpu();
    if (cpu)
        __sync_fetch_and_add(&cpu->lost, 1);
}

INLINE struct here *this_place(void)
{
    __u32 zero = 0;
    return bpf_map_lookup_elem(&here, &zero);
}

INLINE int is_meant(struct task_struct *task)
{
    return concerns(task) && (!ff_top.tid || ff_top.tid == id_of(task));
}

/* The power of two below, of microseconds, plus 1; 0: less than one. */
INLINE __u32 slot_of(__u64 ns)
{
    __u64 left = ns / 1000;
    __u32 slot = 0;
    for (int i = 0; i < FF_TOP_SLOTS - 1; i++) {
        slot += left != 0;
        left >>= 1;
    }
    return slot & (FF_TOP_SLOTS - 1);
}

/* Other CPUs may add to the same sums, so the longest time is wrong if two are added at once. */
INLINE void add_to(void *map, const void *key, __u64 ns)
{
    struct ff_top_sums *sums = bpf_map_lookup_elem(map, key);
    if (!sums) {
        struct here *place = this_place();
        if (!place)
            return;
        /* All of it is zero. */
        if (bpf_map_update_elem(map, key, &place->sums, BPF_NOEXIST)) {
            sums = bpf_map_lookup_elem(map, key);
            if (!sums) {
                lose();
                return;
            }
        } else
            sums = bpf_map_lookup_elem(map, key);
        if (!sums)
            return;
    }
    __sync_fetch_and_add(&sums->count, 1);
    __sync_fetch_and_add(&sums->total, ns);
    if (ns > sums->longest)
        sums->longest = ns;
    __u32 slot = slot_of(ns);
    __sync_fetch_and_add(&sums->slots[slot & (FF_TOP_SLOTS - 1)], 1);
}

INLINE void name(__u32 tid, __u32 process, const char *comm)
{
    if (bpf_map_lookup_elem(&names, &tid))
        return;
    struct ff_top_name made = {.process = process};
    __builtin_memcpy(made.name, comm, FF_NAME_BYTES);
    bpf_map_update_elem(&names, &tid, &made, BPF_ANY);
}

INLINE int is_asked_for(__u32 call)
{
    if (!ff_top.some_calls)
        return 1;
    __u32 number = call - 1;
    return call && number < FF_TOP_CALLS &&
           ff_top.calls[number / 64 & (FF_TOP_CALLS / 64 - 1)] >> (number & 63) & 1;
}

INLINE void add_wait(struct task_struct *task, struct ff_top_thread *thread, __u64 ns, __u32 error)
{
    if (ns < ff_top.least || !is_asked_for(thread->call) || (ff_top.error && ff_top.error != error))
        return;
    struct ff_top_wait key = {.stack = thread->stack,
                              .tid = thread->tid,
                              .process = thread->process,
                              .call = thread->call,
                              .error = error};
    name(key.tid, key.process, task->comm);
    add_to(&waits, &key, ns);
}

/* The wait is over. */
INLINE void end_wait(struct task_struct *task, struct ff_top_thread *thread, __u64 now)
{
    __u64 ns = now - thread->since;
    thread->since = 0;
    if (ff_top.results && thread->call)
        thread->blocked += ns;
    else
        add_wait(task, thread, ns, 0);
}

INLINE __u64 mixed(__u64 hash, __u64 word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 29;
}

INLINE void drop_stack(void)
{
    struct ff_events_cpu *cpu = this_cpu();
    if (cpu)
        __sync_fetch_and_add(&cpu->stacks_dropped, 1);
}

/* The key of a stack, by all words of it that lie in code; the first of its kind is handed over as
 * it lies in memory. The reader finds its callers by unwind tables. 0: none. */
INLINE __u64 copied_stack_of(struct task_struct *task, __u32 process,
                             struct ff_event_process *ranges)
{
    __u32 zero = 0;
    struct copy *copy = bpf_map_lookup_elem(&copy_scratch, &zero);
    if (!copy)
        return 0;
    struct pt_regs *registers = bpf_task_pt_regs(task);
    copy->head.ip = registers->ip;
    copy->head.sp = registers->sp;
    copy->head.bp = registers->bp;
    __u64 count = copy_user_stack((char *)copy->words, copy->head.sp, ff_config.copy_bytes);
    if (!count || count > FF_COPY_MOST)
        return 0;
    __u64 program = ranges->program, program_bytes = ranges->program_bytes;
    __u64 libraries = ranges->libraries, libraries_bytes = ranges->libraries_bytes;
    __u64 hash = mixed(process, copy->head.ip);
    for (__u32 i = 0; i < FF_COPY_MOST / 8 && i < count / 8; i++) {
        __u64 word = copy->words[i];
        __u64 is_code =
            is_within(word, program, program_bytes) | is_within(word, libraries, libraries_bytes);
        hash ^= (hash ^ mixed(hash, word)) & (0 - is_code);
    }
    if (!hash || bpf_map_lookup_elem(&copied, &hash))
        return hash;
    copy->head.stack = hash;
    copy->head.process = process;
    copy->head.bytes = count;
    if (!bpf_map_update_elem(&copied, &hash, &zero, BPF_ANY)) {
        if (!bpf_ringbuf_output(&copies, copy, sizeof copy->head + count, BPF_RB_NO_WAKEUP))
            return hash;
        bpf_map_delete_elem(&copied, &hash);
    }
    drop_stack();
    return 0;
}

/* The number of the stack, which is kept; 0: none. */
INLINE __u64 stack_of(struct task_struct *task)
{
    struct here *place = this_place();
    __u32 process = process_of(task);
    struct ff_event_process *ranges = member(process);
    if (!ff_config.stack_words || !ranges || !place)
        return 0;
    if (ff_config.copy_bytes)
        return copied_stack_of(task, process, ranges);
    __u64 count = scan_stack(task, ranges, &place->scan, ff_config.stack_words - 1);
    __u64 hash = process;
    for (int i = 0; i < FF_STACK_MOST; i++) {
        __u64 word = i < count ? place->scan.words[i] : 0;
        place->stack.words[i] = word;
        hash = mixed(hash, word);
    }
    if (!count || !hash)
        return 0;
    if (bpf_map_lookup_elem(&stacks, &hash))
        return hash;
    place->stack.process = process;
    place->stack.count = count;
    if (!bpf_map_update_elem(&stacks, &hash, &place->stack, BPF_ANY))
        return hash;
    drop_stack();
    return 0;
}

INLINE void add_instead(__u32 tid, struct turn *turn, __u64 ns)
{
    struct ff_top_pair key = {.tid = tid, .other = turn->tid};
    name(turn->tid, turn->process, turn->name);
    __u64 *sum = bpf_map_lookup_elem(&instead, &key);
    if (sum)
        __sync_fetch_and_add(sum, ns);
    else if (bpf_map_update_elem(&instead, &key, &ns, BPF_NOEXIST))
        lose();
}

/* Who had the processor since `ready`. */
INLINE void attribute(struct here *place, __u32 tid, __u64 ready, __u64 now)
{
    __u64 until = now;
    for (int i = 1; i <= FF_TOP_TURNS; i++) {
        struct turn *turn = &place->turns[(place->next - i) & (FF_TOP_TURNS - 1)];
        if (!turn->since || until <= ready)
            return;
        __u64 from = turn->since > ready ? turn->since : ready;
        if (turn->tid && until > from)
            add_instead(tid, turn, until - from);
        until = turn->since;
    }
}

INLINE void give_up(int preempted, struct task_struct *task, __u32 state, __u64 now)
{
    __u32 key = task->pid;
    __u8 how = state_of(preempted, state);
    if (how == FF_STATE_DEAD) {
        bpf_map_delete_elem(&threads, &key);
        return;
    }
    struct ff_top_thread new = {}, *thread = bpf_map_lookup_elem(&threads, &key);
    if (!thread) {
        if (bpf_map_update_elem(&threads, &key, &new, BPF_ANY))
            lose();
        thread = bpf_map_lookup_elem(&threads, &key);
        if (!thread)
            return;
    }
    if (how == FF_STATE_PREEMPTED) {
        thread->ready = now;
        return;
    }
    thread->since = now;
    thread->ready = 0;
    thread->tid = id_of(task);
    thread->process = process_of(task);
    __builtin_memcpy(thread->name, task->comm, FF_NAME_BYTES);
    thread->call = preempted ? 0 : call_of(task) >> FF_CALL_SHIFT;
    thread->stack = thread->call ? stack_of(task) : 0;
}

INLINE void get(struct task_struct *task, struct here *place, __u64 now)
{
    __u32 key = task->pid;
    struct ff_top_thread *thread = bpf_map_lookup_elem(&threads, &key);
    if (!thread)
        return;
    if (thread->since) /* its wake was not reported */
        end_wait(task, thread, now);
    if (!thread->ready)
        return;
    __u64 ready = thread->ready, ns = now - ready;
    thread->ready = 0;
    if (ns < ff_top.least)
        return;
    __u32 tid = id_of(task);
    name(tid, process_of(task), task->comm);
    add_to(&delays, &tid, ns);
    attribute(place, tid, ready, now);
}

INLINE int record_switch(int preempted, struct task_struct *prev, struct task_struct *next,
                         __u32 state)
{
    struct here *place = this_place();
    if (!place)
        return 0;
    __u64 now = bpf_ktime_get_ns();
    if (prev->pid && is_meant(prev))
        give_up(preempted, prev, state, now);
    if (next->pid && is_meant(next))
        get(next, place, now);
    struct turn *turn = &place->turns[place->next & (FF_TOP_TURNS - 1)];
    turn->since = now;
    turn->tid = next->pid ? id_of(next) : 0;
    turn->process = next->pid ? process_of(next) : 0;
    __builtin_memcpy(turn->name, next->comm, FF_NAME_BYTES);
    place->next++;
    return 0;
}

#include "ff_switch.h"

/* A thread of which nothing was seen is woken: it has waited since before the counting. */
INLINE void began_before(struct task_struct *task, __u64 now)
{
    if (task->on_cpu || !is_meant(task))
        return;
    __u32 key = task->pid, tid = id_of(task);
    struct ff_top_thread seen = {.ready = now};
    if (bpf_map_update_elem(&threads, &key, &seen, BPF_NOEXIST)) {
        lose();
        return;
    }
    struct ff_top_before wait = {.until = now, .process = process_of(task)};
    wait.call = call_of(task) >> FF_CALL_SHIFT;
    __builtin_memcpy(wait.name, task->comm, FF_NAME_BYTES);
    if (bpf_map_update_elem(&before, &tid, &wait, BPF_NOEXIST))
        lose();
}

SECTION("tp_btf/sched_waking")
int ff_sched_waking(__u64 *context)
{
    struct task_struct *task = (void *)context[0];
    __u32 key = task->pid;
    struct ff_top_thread *thread = bpf_map_lookup_elem(&threads, &key);
    if (thread && !thread->since)
        return 0;
    __u64 now = bpf_ktime_get_ns();
    if (!thread) {
        began_before(task, now);
        return 0;
    }
    end_wait(task, thread, now);
    thread->ready = now;
    return 0;
}

/* Only if results are asked for. */
SECTION("tp_btf/sys_exit")
int ff_sys_exit(__u64 *context)
{
    struct task_struct *task = bpf_get_current_task_btf();
    __s64 result = context[1];
    __u32 key = task->pid;
    struct ff_top_thread *thread = bpf_map_lookup_elem(&threads, &key);
    if (!thread || !thread->blocked)
        return 0;
    add_wait(task, thread, thread->blocked, result < 0 && result >= -4095 ? -result : 0);
    thread->blocked = 0;
    return 0;
}

SECTION("tp_btf/sched_process_fork")
int ff_sched_process_fork(__u64 *context)
{
    struct task_struct *parent = (void *)context[0], *child = (void *)context[1];
    __u32 process = process_of(child), parent_process = process_of(parent);
    struct ff_event_process *ranges = member(parent_process);
    if (ranges && process != parent_process)
        follow(ranges, process);
    return 0;
}

SECTION("tp_btf/sched_process_exit")
int ff_sched_process_exit(__u64 *context)
{
    struct task_struct *task = (void *)context[0];
    __u32 process = process_of(task);
    if (is_recorded(process))
        leave(task, id_of(task), process);
    return 0;
}
