/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Records of events, on their way into the ring. Writing one wakes nobody: the reader looks by the
 * clock. */
#ifndef FF_RECORDS_H
#define FF_RECORDS_H

#include "ff_target.h"

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_RINGBUF);
    MAP_NUMBER(max_entries, 64 << 20);
} events SECTION(".maps");

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
INLINE __u64 count_record(struct ff_events_cpu *cpu)
{
    return __sync_fetch_and_add(&cpu->sequence, 1);
}

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

/* What a call returns or is given, where it fits in a record without words. */
INLINE void record_call(__u8 kind, __u8 short_kind, __u32 a, __u64 number, __u64 value)
{
    __u64 most = 1ULL << (FF_SHORT_SHIFT - 1);
    if (number < FF_SHORT_NUMBERS && value + most < 2 * most)
        record0(short_kind, number, a, number >> 8 << FF_SHORT_SHIFT | (value & (2 * most - 1)));
    else
        record1(kind, 0, a, 0,
                (number + 1) << FF_CALL_SHIFT | (value & ((1ULL << FF_CALL_SHIFT) - 1)));
}

#endif
