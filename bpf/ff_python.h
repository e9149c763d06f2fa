/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Which Python code a thread runs: the innermost frames of CPython's own stack, read where the
 * interpreter keeps them (`pythons`). A thread is found by its C library's id, so that a wrong
 * layout finds none. Out: for each frame its code object and that object's name, by which the
 * reader sees later whether it is still the same object. Blind spots: interpreters other than the
 * first of a process; threads behind the newest FF_PYTHON_THREADS; frames outside the innermost
 * FF_PYTHON_FRAMES. */
#ifndef FF_PYTHON_H
#define FF_PYTHON_H

#include "ff_records.h"

#define FF_PYTHON_THREADS 64

/* By process. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 8192);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct ff_python);
} pythons SECTION(".maps");

struct python_record {
    struct ff_event event;
    __u64 words[2 * FF_PYTHON_FRAMES];
    __u64 frame[FF_PYTHON_FRAME / 8];
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct python_record);
} python_scratch SECTION(".maps");

/* 0: it can't be read. */
INLINE __u64 user_word(__u64 address)
{
    __u64 word = 0;
    if (bpf_probe_read_user(&word, sizeof word, (const void *)address))
        return 0;
    return word;
}

/* The interpreter's record of a thread; 0: there is none. */
INLINE __u64 python_thread(struct ff_python *python, __u64 own)
{
    __u64 interpreter = user_word(python->interpreter);
    __u64 thread = interpreter ? user_word(interpreter + python->threads) : 0;
    for (int i = 0; i < FF_PYTHON_THREADS && thread; i++) {
        if (user_word(thread + python->thread) == own)
            return thread;
        thread = user_word(thread + python->next);
    }
    return 0;
}

/* To be called for the thread that runs, just before its stack is recorded. */
INLINE void record_python(struct task_struct *task, __u32 process)
{
    const __u32 last_word = FF_PYTHON_FRAME / 8 - 1, last_kept = 2 * FF_PYTHON_FRAMES - 1;
    struct ff_python *python = bpf_map_lookup_elem(&pythons, &process);
    __u32 zero = 0;
    struct python_record *record = bpf_map_lookup_elem(&python_scratch, &zero);
    struct ff_events_cpu *cpu = this_cpu();
    if (!python || !record || !cpu)
        return;
    __u64 thread = python_thread(python, task->thread.fsbase);
    __u64 frame = thread ? user_word(thread + python->current) : 0;
    if (frame && python->held)
        frame = user_word(frame + python->frame);
    __u32 count = 0;
    for (int i = 0; i < FF_PYTHON_FRAMES && frame; i++) {
        if (bpf_probe_read_user(record->frame, sizeof record->frame, (const void *)frame))
            break;
        __u64 code = record->frame[python->code / 8 & last_word];
        record->words[count & last_kept] = code;
        record->words[(count + 1) & last_kept] = user_word(code + python->name);
        count += 2;
        frame = record->frame[python->previous / 8 & last_word];
    }
    if (!count || count > 2 * FF_PYTHON_FRAMES)
        return;
    fill(&record->event, count_record(cpu), FF_EVENT_PYTHON, 0, id_of(task), count);
    if (bpf_ringbuf_output(&events, record, sizeof record->event + count * 8, BPF_RB_NO_WAKEUP))
        __sync_fetch_and_add(&cpu->lost, 1);
}

/* A process starts another, which runs the same interpreter. */
INLINE void inherit_python(struct ff_event_process *parent, __u32 from, __u32 process)
{
    struct ff_python *python = parent->python ? bpf_map_lookup_elem(&pythons, &from) : 0;
    if (!python)
        return;
    struct ff_python copy = *python;
    bpf_map_update_elem(&pythons, &process, &copy, BPF_ANY);
}

#endif
