/* SPDX-License-Identifier: MIT */
/* What the parts of the client share. */
#ifndef FF_CLIENT_H
#define FF_CLIENT_H

#include <stdint.h>

/* drmgr.h wants dr_api.h first. */
#include "dr_api.h"

#include "drmgr.h"
#include "ff_pool.h"

/* ---- ff_process.c: what all parts share ----------------------------------- */
extern bool ff_follow_children;
/* The process whose META stream describes the code that runs: a vfork child's is its parent's. Its
 * pid in the recorder's pid namespace and in its own. */
extern uint32_t ff_process_id;
extern uint32_t ff_own_pid;
/* Finds out both, when the process is new. */
void ff_introduce(void);
/* Guards META, blocks and modules; reentrant. */
void ff_lock_init(void);
void ff_lock(void);
void ff_unlock(void);

/* ---- ff_meta.c: the META stream ------------------------------------------- */
struct ff_part {
    const void *data;
    uint32_t bytes;
};
void ff_meta_init(bool keep_for_children);
/* Appends a record made of parts. Any thread. */
void ff_meta_write(enum ff_meta kind, const struct ff_part *parts, uint32_t part_count);
void ff_meta_note(const char *text);
void ff_meta_process(void);
/* In a forked child: a stream of its own that begins with all that the parent's said. */
void ff_meta_fork(void);
/* Hands over what stands in the stream, before an exec that may end the image. */
void ff_meta_flush(void);

/* ---- ff_modules.c --------------------------------------------------------- */
void ff_modules_init(void);
/* The number of the module that holds `pc`, 0 if none. */
uint32_t ff_module_at(app_pc pc);

/* ---- ff_ranges.c: --values-in --------------------------------------------- */
bool ff_ranges_read(const char *path);
void ff_ranges_module(const char *path, uint64_t base);
/* Does a block get slots? Always, when no ranges were given. */
bool ff_ranges_want(app_pc start, app_pc end);

/* ---- ff_thread.c: streams of threads -------------------------------------- */
/* The outermost call of an allocator that has not returned. */
struct ff_call {
    bool is_open;
    uint64_t stack_pointer;   /* at its entry */
    uint64_t address_goes_to; /* posix_memalign: where the result is stored */
    struct ff_alloc event;
};
struct ff_thread {
    uint32_t tid;
    struct ff_buffer flow;
    struct ff_buffer values;
    uint8_t **flow_at; /* raw TLS slots: where the next byte goes */
    uint8_t **values_at;
    /* Raw TLS slot: 1 from the end of a block that makes a system call until the call is entered.
     */
    uint64_t *before_call;
    int64_t open_call; /* the system call that was entered and has not returned; -1: none */
    uint32_t values_retired_used; /* bytes in a chunk of values that is to be replaced */
    bool values_retired;
    int64_t exit_status;
    struct ff_call call;
    reg_t close_range_last; /* what the application passed */
};
bool ff_thread_init(void);
struct ff_thread *ff_thread_of(void *drcontext);
/* For instrumentation. */
void ff_thread_insert_read_flow(void *drcontext, instrlist_t *ilist, instr_t *where, reg_id_t to);
void ff_thread_insert_write_flow(void *drcontext, instrlist_t *ilist, instr_t *where,
                                 reg_id_t from);
void ff_thread_insert_read_values(void *drcontext, instrlist_t *ilist, instr_t *where, reg_id_t to);
void ff_thread_insert_write_values(void *drcontext, instrlist_t *ilist, instr_t *where,
                                   reg_id_t from);
/* In front of the system call that ends a block, and at the top of a block that begins with one. */
void ff_thread_insert_before_call(void *drcontext, instrlist_t *ilist, instr_t *call);
void ff_thread_insert_at_call(void *drcontext, instrlist_t *ilist, instr_t *call);
/* The thread goes on at `pc`. If it was to make a system call, that was put off for a signal: the
 * block was left before the call, which is a FAULT event, or the call that was entered will be
 * again, which is its exit with ERESTARTSYS. */
void ff_thread_goes_on(struct ff_thread *thread, app_pc pc);
/* Appends an event to the thread's flow. */
void ff_thread_event(struct ff_thread *thread, enum ff_event kind, const void *payload,
                     uint32_t bytes);
void ff_thread_event2(struct ff_thread *thread, enum ff_event kind, struct ff_part first,
                      struct ff_part second);
/* Takes the next chunk of FLOW; `flow_at` then points into it. */
void ff_thread_next_flow(struct ff_thread *thread);
/* The same for VALUES, at the top of a block whose unit of `unit_bytes` is in FLOW already. The
 * chunk is NULL when nobody reads. */
struct ff_chunk *ff_thread_next_values(struct ff_thread *thread, uint32_t unit_bytes);
/* Does `address` lie behind one of the thread's chunks? */
bool ff_thread_is_full(const struct ff_thread *thread, const uint8_t *address);
/* The running thread's, from its TLS segment: for code that may not call DynamoRIO. */
struct ff_thread *ff_thread_here(void);
/* Hands everything over; the next write claims again. */
void ff_thread_flush(struct ff_thread *thread);
/* Fills regs[] from a context; returns the bits for regs_valid. */
uint32_t ff_registers(uint64_t *regs, const dr_mcontext_t *state);
/* The creator of the thread that will run on a stack. */
void ff_thread_expect(uint64_t stack_pointer, uint32_t creator);
/* In a forked child. */
void ff_thread_fork(struct ff_thread *thread);

/* ---- ff_descriptors.c: around close_range ----------------------------------- */
void ff_descriptors_enter(void *drcontext, struct ff_thread *thread);
void ff_descriptors_exit(void *drcontext, struct ff_thread *thread);

#ifdef FF_DYNAMORIO_PATCHED
/* leave-at-exec.patch */
void dr_leave_at_execve(bool leave);
#endif

/* ---- ff_exec.c: programs that the tracer cannot go along into ---------------- */
void ff_exec_init(const char *pool_path, const char *client_path);
/* In front of an exec; leaves the tracer if the program can't be traced. */
void ff_exec_enter(const char *application_path, bool is_execveat);

/* ---- ff_events.c, ff_heap.c ------------------------------------------------ */
void ff_events_init(void);
void ff_heap_init(void);
void ff_heap_module(const module_data_t *module, uint64_t base);
/* Hooks the block at `pc`, if an allocator begins or returns there. Before anything else is
 * inserted. */
void ff_heap_insert_top(void *drcontext, instrlist_t *ilist, instr_t *first, app_pc pc);
/* If this instruction leaves an allocator, or may, puts its hook before it; rax must not be
 * reserved there. */
bool ff_heap_leaves(instr_t *instr);
void ff_heap_insert_leave(void *drcontext, instrlist_t *ilist, instr_t *where);

/* ---- ff_blocks.c: identity of blocks --------------------------------------- */
void ff_blocks_init(void);
/* The id of the block, new or old; a new one is described in META. 0: no memory. */
uint32_t ff_block_id(app_pc pc, const uint8_t *code, uint32_t code_bytes,
                     uint32_t instruction_count, const struct ff_slot *slots, uint32_t slot_count);

/* ---- ff_instrument.c ------------------------------------------------------- */
bool ff_instrument_init(void);

/* ---- ff_fault.c: full buffers ----------------------------------------------- */
/* Once DynamoRIO's own handler is in place: from the first block on. */
void ff_fault_install(void);
/* The immediate of the store that may find VALUES full. `spill`: the offset in the TLS segment at
 * which the application's value of the store's base register is; -1: it has none that matters. */
uint8_t ff_fault_tag(uint32_t unit_bytes, int spill);

#endif
