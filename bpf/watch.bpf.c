/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Records who touches a few words of one process. In: hardware breakpoints on every CPU (perf
 * events), uprobes or breakpoints on single instructions. Out: struct ff_watch_hit records in a
 * ring; counts of what found no room.
 *
 * Two traps decide its shape. A word that a read-write breakpoint covers must not be read here:
 * that traps again, in the kernel, and costs five times as much; so the registers are saved and
 * core/watch decodes the instruction. And a spinning reader hits 100,000 times a second; so once
 * core/watch has found that the code before an address only reads, its reads are held back here,
 * all but the first and the last before each write. A write becomes known some microseconds after
 * other CPUs saw its value, so a reader that sees another value counts as a write, too: reads that
 * are held back together saw the same.
 *
 * Ids of threads and processes are those of the watching process's own pid namespace. */
#include "ff_task.h"
#include "ff_watch.h"

/* The kernel's struct pt_regs of x86-64, which programs of type perf_event and kprobe see too
 * (asm/ptrace.h). */
struct registers {
    __u64 r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip,
        cs, rflags, rsp, ss;
};

/* struct bpf_perf_event_data; its fields must be read whole. */
struct event {
    struct registers registers;
    __u64 sample_period;
    __u64 address;
};

#define PAGE 4096
#define USER_MODE 3
#define ZERO_FLAG (1 << 6)

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_RINGBUF);
    MAP_NUMBER(max_entries, 64 << 20);
} hits SECTION(".maps");

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct ff_watch_count);
} counts SECTION(".maps");

/* By address; more may come while it runs. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, FF_WATCH_MAX);
    MAP_TYPE(key, __u64);
    MAP_TYPE(value, struct ff_watch_word);
} words SECTION(".maps");

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, FF_WATCH_MAX);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u64);
} generations SECTION(".maps");

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 4096);
    MAP_TYPE(key, __u64);
    MAP_TYPE(value, struct ff_watch_read_site);
} read_sites SECTION(".maps");

/* No LRU map: with an entry that it drops, the reads would be lost that were held back. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 16384);
    MAP_TYPE(key, struct ff_watch_reader);
    MAP_TYPE(value, struct ff_watch_held);
} readers SECTION(".maps");

/* Too large for BPF's stack. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct ff_watch_held);
} scratch SECTION(".maps");

/* Filled in before loading. */
const volatile struct ff_watch_config ff_config SECTION(".rodata");

char ff_license[] SECTION("license") = "Dual MIT/GPL";

INLINE __u32 current_process(void)
{
    if (!ff_here.level)
        return bpf_get_current_pid_tgid() >> 32;
    struct task_struct *current = bpf_get_current_task_btf();
    return number_here(current->group_leader->thread_pid);
}

INLINE __u32 current_thread(void)
{
    if (!ff_here.level)
        return bpf_get_current_pid_tgid();
    struct task_struct *current = bpf_get_current_task_btf();
    return number_here(current->thread_pid);
}

INLINE void copy_registers(__u64 *to, const struct registers *from)
{
    to[0] = from->rax;
    to[1] = from->rcx;
    to[2] = from->rdx;
    to[3] = from->rbx;
    to[4] = from->rsp;
    to[5] = from->rbp;
    to[6] = from->rsi;
    to[7] = from->rdi;
    to[8] = from->r8;
    to[9] = from->r9;
    to[10] = from->r10;
    to[11] = from->r11;
    to[12] = from->r12;
    to[13] = from->r13;
    to[14] = from->r14;
    to[15] = from->r15;
}

INLINE void copy_name(char *to, const char *from)
{
    ((__u64 *)to)[0] = ((const __u64 *)from)[0];
    ((__u64 *)to)[1] = ((const __u64 *)from)[1];
}

INLINE void count_hit(void)
{
    __u32 zero = 0;
    struct ff_watch_count *count = bpf_map_lookup_elem(&counts, &zero);
    if (count)
        count->hits++;
}

/* A read that goes into a record of its own, for want of room in `readers`. */
INLINE void count_crowded(void)
{
    __u32 zero = 0;
    struct ff_watch_count *count = bpf_map_lookup_elem(&counts, &zero);
    if (count)
        count->crowded++;
}

/* A hit that can't be recorded. */
INLINE int lose_hit(void)
{
    __u32 zero = 0;
    struct ff_watch_count *count = bpf_map_lookup_elem(&counts, &zero);
    if (count) {
        count->sequence++;
        count->lost++;
    }
    return 0;
}

INLINE struct ff_watch_hit *reserve(void)
{
    __u32 zero = 0;
    struct ff_watch_count *count = bpf_map_lookup_elem(&counts, &zero);
    if (!count)
        return 0;
    struct ff_watch_hit *hit = bpf_ringbuf_reserve(&hits, sizeof *hit, 0);
    __u64 sequence = count->sequence++;
    if (!hit) {
        count->lost++;
        return 0;
    }
    hit->sequence = sequence;
    return hit;
}

/* The stack's last page ends where the stack ends, so a read up to a page's end never fails for the
 * next mapping. */
INLINE __u32 copy_stack(__u64 *to, __u64 sp)
{
    if (!bpf_probe_read_user(to, FF_STACK_WORDS * 8, (const void *)sp))
        return FF_STACK_WORDS;
    __u64 bytes = PAGE - (sp & (PAGE - 1));
    if (bytes > FF_STACK_WORDS * 8)
        bytes = FF_STACK_WORDS * 8;
    return bpf_probe_read_user(to, bytes, (const void *)sp) ? 0 : bytes / 8;
}

INLINE __u64 read_word(__u64 address, __u32 size, __u32 *marks)
{
    __u64 value = 0;
    if (size <= 8 && !bpf_probe_read_user(&value, size, (const void *)address))
        *marks |= FF_MARK_VALUE;
    return value;
}

/* One record that stands for the held reads of one reader. */
INLINE void submit_held(const struct ff_watch_reader *reader, const struct ff_watch_held *held,
                        __u8 kind)
{
    struct ff_watch_hit *hit = reserve();
    if (!hit)
        return;
    hit->ts = held->ts;
    hit->address = reader->address;
    hit->value = held->value;
    hit->reads = held->reads;
    hit->ip = reader->ip;
    hit->rflags = held->rflags;
    for (int i = 0; i < FF_REGISTERS; i++)
        hit->registers[i] = held->registers[i];
    hit->syscall = 0;
    hit->tid = reader->tid;
    hit->cpu = held->cpu;
    hit->place = reader->place;
    hit->kind = kind;
    hit->marks = held->marks | FF_MARK_LAST;
    hit->words = 0;
    copy_name(hit->thread, held->thread);
    bpf_ringbuf_submit(hit, 0);
}

/* What shows which value a read found: equal for equal values. */
INLINE __u64 shown(const struct ff_watch_read_site *site, const struct registers *registers)
{
    if (site->shows == FF_SHOWS_ZERO_FLAG)
        return registers->rflags & ZERO_FLAG;
    if (site->shows >= FF_REGISTERS)
        return 0;
    __u64 numbered[FF_REGISTERS];
    copy_registers(numbered, registers);
    __u64 value = numbered[site->shows & (FF_REGISTERS - 1)];
    return site->bytes >= 8 ? value : value & ((1ULL << (site->bytes & 7) * 8) - 1);
}

/* Whether this read is held back: the same code of the same thread has read the same in this
 * generation before. */
INLINE int hold_back(const struct ff_watch_reader *reader, const struct registers *registers,
                     __u64 generation, __u64 seen, __u64 value, __u32 marks, __u8 kind)
{
    __u32 zero = 0;
    struct ff_watch_held *held = bpf_map_lookup_elem(&readers, reader);
    if (held && held->generation == generation && held->seen == seen) {
        held->ts = bpf_ktime_get_ns();
        held->value = value;
        held->reads++;
        held->rflags = registers->rflags;
        held->cpu = bpf_get_smp_processor_id();
        copy_registers(held->registers, registers);
        return 1;
    }
    if (held && held->reads)
        submit_held(reader, held, kind);
    struct ff_watch_held *fresh = bpf_map_lookup_elem(&scratch, &zero);
    if (fresh) {
        fresh->generation = generation;
        fresh->seen = seen;
        fresh->reads = 0;
        fresh->marks = marks;
        bpf_get_current_comm(fresh->thread, sizeof fresh->thread);
        if (bpf_map_update_elem(&readers, reader, fresh, BPF_ANY))
            count_crowded();
    }
    return 0;
}

SECTION("perf_event")
int ff_watch(struct event *context)
{
    if (current_process() != ff_config.tgid)
        return 0;
    __u32 tid = current_thread();
    __u64 address = context->address;
    struct ff_watch_word *word = bpf_map_lookup_elem(&words, &address);
    if (!word)
        return 0;
    __u32 place = word->place, reads = word->reads, size = word->size;
    count_hit();

    /* The context may only be read by whole 8 bytes, so it is copied first. */
    struct registers registers = context->registers;
    __u32 marks = 0;
    if ((registers.cs & 3) != USER_MODE) {
        marks |= FF_MARK_KERNEL;
        const void *user = bpf_task_pt_regs(bpf_get_current_task_btf());
        if (bpf_probe_read_kernel(&registers, sizeof registers, user))
            return lose_hit();
    }

    struct ff_watch_reader reader = {
        .ip = registers.rip, .address = address, .tid = tid, .place = place};
    __u64 *generation = bpf_map_lookup_elem(&generations, &place);
    if (!generation)
        return 0;
    __u64 value = 0;
    if (reads) {
        struct ff_watch_read_site *site = bpf_map_lookup_elem(&read_sites, &reader.ip);
        if (site && !(marks & FF_MARK_KERNEL)) {
            __u64 seen = shown(site, &registers);
            if (hold_back(&reader, &registers, *generation, seen, 0, marks, FF_HIT_WATCH))
                return 0;
        } else {
            __sync_fetch_and_add(generation, 1);
        }
    } else {
        value = read_word(address, size, &marks);
    }

    struct ff_watch_hit *hit = reserve();
    if (!hit)
        return 0;
    hit->ts = bpf_ktime_get_ns();
    hit->address = address;
    hit->value = value;
    hit->reads = 1;
    hit->ip = registers.rip;
    hit->rflags = registers.rflags;
    copy_registers(hit->registers, &registers);
    hit->syscall = registers.orig_rax;
    hit->tid = tid;
    hit->cpu = bpf_get_smp_processor_id();
    hit->place = place;
    hit->kind = FF_HIT_WATCH;
    hit->marks = marks;
    hit->words = copy_stack(hit->stack, registers.rsp);
    bpf_get_current_comm(hit->thread, sizeof hit->thread);
    bpf_ringbuf_submit(hit, 0);
    return 0;
}

INLINE __u64 operand_address(const volatile struct ff_watch_site *site, const __u64 *registers)
{
    __u64 address = site->displacement;
    if (site->base != FF_NO_REGISTER)
        address += registers[site->base & (FF_REGISTERS - 1)];
    if (site->index != FF_NO_REGISTER)
        address += registers[site->index & (FF_REGISTERS - 1)] * site->scale;
    return address;
}

INLINE int take_site(const struct registers *registers)
{
    __u32 place = 0;
    while (place < FF_SITE_MAX && ff_config.site[place].ip != registers->rip)
        place++;
    if (place >= FF_SITE_MAX || place >= ff_config.sites)
        return 0;
    count_hit();
    const volatile struct ff_watch_site *site = &ff_config.site[place];

    __u32 tid = current_thread();
    __u64 numbered[FF_REGISTERS];
    copy_registers(numbered, registers);
    __u64 address = 0, value = 0;
    __u32 marks = 0;
    if (site->known) {
        address = operand_address(site, numbered);
        value = read_word(address, site->size, &marks);
    }
    if (site->thin && (marks & FF_MARK_VALUE)) {
        struct ff_watch_reader reader = {
            .ip = registers->rip, .address = address, .tid = tid, .place = place};
        if (hold_back(&reader, registers, value, value, value, marks, FF_HIT_SITE))
            return 0;
    }

    struct ff_watch_hit *hit = reserve();
    if (!hit)
        return 0;
    hit->ts = bpf_ktime_get_ns();
    hit->address = address;
    hit->value = value;
    hit->reads = 1;
    hit->ip = registers->rip;
    hit->rflags = registers->rflags;
    copy_registers(hit->registers, registers);
    hit->syscall = 0;
    hit->tid = tid;
    hit->cpu = bpf_get_smp_processor_id();
    hit->place = place;
    hit->kind = FF_HIT_SITE;
    hit->marks = marks;
    hit->words = copy_stack(hit->stack, registers->rsp);
    bpf_get_current_comm(hit->thread, sizeof hit->thread);
    bpf_ringbuf_submit(hit, 0);
    return 0;
}

SECTION("uprobe")
int ff_site(struct registers *context)
{
    if (current_process() != ff_config.tgid)
        return 0;
    struct registers registers;
    if (bpf_probe_read_kernel(&registers, sizeof registers, context)) {
        count_hit();
        return lose_hit();
    }
    return take_site(&registers);
}

/* The same by a debug register. */
SECTION("perf_event")
int ff_site_trap(struct event *context)
{
    if (current_process() != ff_config.tgid)
        return 0;
    struct registers registers = context->registers;
    return take_site(&registers);
}
