/* SPDX-License-Identifier: MIT */
/* A thread's two streams. The code cache writes through two raw TLS slots; everything else
 * here runs seldom: at events, and when a buffer is full. */
#include <asm/prctl.h>
#include <stddef.h>
#include <string.h>

#include "ff_client.h"
#include "ff_sys.h"

enum { FLOW_SLOT, VALUES_SLOT, BEFORE_CALL_SLOT, THREAD_SLOT, SLOT_COUNT };

static reg_id_t tls_segment;
static uint tls_offset;
static int tls_index = -1;

/* Threads that were asked for and have not started: who asked. The kernel's new thread
 * knows only its stack. */
static struct {
    uint64_t stack_pointer;
    uint32_t creator;
} expected[64];
static uint32_t expected_next;

void ff_thread_expect(uint64_t stack_pointer, uint32_t creator)
{
    uint32_t i = __atomic_fetch_add(&expected_next, 1, __ATOMIC_RELAXED) %
                 (sizeof expected / sizeof *expected);
    expected[i].creator = creator;
    __atomic_store_n(&expected[i].stack_pointer, stack_pointer, __ATOMIC_RELEASE);
}

static uint32_t creator_of(uint64_t stack_pointer)
{
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        if (__atomic_load_n(&expected[i].stack_pointer, __ATOMIC_ACQUIRE) == stack_pointer &&
            stack_pointer != 0) {
            expected[i].stack_pointer = 0;
            return expected[i].creator;
        }
    }
    return 0;
}

struct ff_thread *ff_thread_here(void)
{
    struct ff_thread *thread;
    __asm__ volatile("movq %%gs:(%1), %0"
                     : "=r"(thread)
                     : "r"(tls_offset + THREAD_SLOT * sizeof(void *)));
    return thread;
}

static struct ff_thread **here(void)
{
    return (struct ff_thread **)((uint8_t *)dr_get_dr_segment_base(tls_segment) + tls_offset) +
           THREAD_SLOT;
}

struct ff_thread *ff_thread_of(void *drcontext)
{
    return drmgr_get_tls_field(drcontext, tls_index);
}

void ff_thread_insert_read_flow(void *drcontext, instrlist_t *ilist, instr_t *where, reg_id_t to)
{
    dr_insert_read_raw_tls(drcontext, ilist, where, tls_segment,
                           tls_offset + FLOW_SLOT * sizeof(void *), to);
}

void ff_thread_insert_write_flow(void *drcontext, instrlist_t *ilist, instr_t *where, reg_id_t from)
{
    dr_insert_write_raw_tls(drcontext, ilist, where, tls_segment,
                            tls_offset + FLOW_SLOT * sizeof(void *), from);
}

void ff_thread_insert_read_values(void *drcontext, instrlist_t *ilist, instr_t *where, reg_id_t to)
{
    dr_insert_read_raw_tls(drcontext, ilist, where, tls_segment,
                           tls_offset + VALUES_SLOT * sizeof(void *), to);
}

void ff_thread_insert_write_values(void *drcontext, instrlist_t *ilist, instr_t *where,
                                   reg_id_t from)
{
    dr_insert_write_raw_tls(drcontext, ilist, where, tls_segment,
                            tls_offset + VALUES_SLOT * sizeof(void *), from);
}

static uint32_t flow_used(const struct ff_thread *thread)
{
    return (uint32_t)(*thread->flow_at - thread->flow.base);
}

static uint32_t values_used(const struct ff_thread *thread)
{
    return thread->values_retired ? thread->values_retired_used
                                  : (uint32_t)(*thread->values_at - thread->values.base);
}

/* A chunk of values ends with the chunk of flow: each is then a checkpoint, so a reader can
 * begin anywhere, also in a loop that loads next to nothing. The next slot faults. */
static void retire_values(struct ff_thread *thread)
{
    if (thread->values.chunk == NULL || thread->values_retired)
        return;
    thread->values_retired_used = values_used(thread);
    thread->values_retired = true;
    *thread->values_at = thread->values.end;
}

void ff_thread_next_flow(struct ff_thread *thread)
{
    uint32_t used = flow_used(thread);
    retire_values(thread);
    ff_buffer_publish(&thread->flow, used);
    ff_buffer_claim(&thread->flow, FF_STREAM_FLOW, ff_process_id, thread->tid, used);
    *thread->flow_at = thread->flow.base;
}

/* Events are short, and libc's memcpy uses vector registers, which ff_heap.c's hooks do not save.
 */
static void copy(uint8_t *to, const uint8_t *from, size_t bytes)
{
    for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t)) {
        uint64_t word;
        __builtin_memcpy(&word, from, sizeof word);
        __builtin_memcpy(to, &word, sizeof word);
        to += sizeof word;
        from += sizeof word;
    }
    for (; bytes != 0; bytes--)
        *to++ = *from++;
}

void ff_thread_event2(struct ff_thread *thread, enum ff_event kind, struct ff_part first,
                      struct ff_part second)
{
    struct ff_record record = {FF_FLOW_EVENT, (uint16_t)kind, first.bytes + second.bytes};
    size_t whole = sizeof record + record.bytes + record.bytes % 2;
    if (whole > (size_t)(thread->flow.end - *thread->flow_at))
        ff_thread_next_flow(thread);
    uint8_t *at = *thread->flow_at;
    copy(at + sizeof record, first.data, first.bytes);
    copy(at + sizeof record + first.bytes, second.data, second.bytes);
    /* Last: the reader stops at the first zero, so an event cut short by a kill is not there. */
    __atomic_signal_fence(__ATOMIC_RELEASE);
    memcpy(at, &record, sizeof record);
    *thread->flow_at = at + whole;
}

void ff_thread_event(struct ff_thread *thread, enum ff_event kind, const void *payload,
                     uint32_t bytes)
{
    ff_thread_event2(thread, kind, (struct ff_part){payload, bytes}, (struct ff_part){NULL, 0});
}

void ff_thread_goes_on(struct ff_thread *thread, app_pc pc)
{
    enum { ERESTARTSYS = 512 }; /* the kernel's own, as strace shows it */
    if (*thread->before_call != 0) {
        struct ff_fault fault = {.ts = ff_event_now(), .pc = (uint64_t)pc};
        *thread->before_call = 0;
        ff_thread_event(thread, FF_EVENT_FAULT, &fault, sizeof fault);
    } else if (thread->open_call >= 0) {
        struct ff_syscall_exit leave = {
            .ts = ff_event_now(), .result = -ERESTARTSYS, .number = (uint32_t)thread->open_call};
        thread->open_call = -1;
        ff_thread_event(thread, FF_EVENT_SYSCALL_EXIT, &leave, sizeof leave);
    }
}

void ff_thread_insert_before_call(void *drcontext, instrlist_t *ilist, instr_t *call)
{
    opnd_t slot =
        dr_raw_tls_opnd(drcontext, tls_segment, tls_offset + BEFORE_CALL_SLOT * sizeof(void *));
    instrlist_meta_preinsert(ilist, call,
                             INSTR_CREATE_mov_st(drcontext, slot, OPND_CREATE_INT32(1)));
}

static void at_call(app_pc pc) { ff_thread_goes_on(ff_thread_here(), pc); }

/* The block may be what is left of one that was to make the call. DynamoRIO cuts it so when a
 * signal is pending, and does not always deliver that: the program may ignore it, or another thread
 * gets it. */
void ff_thread_insert_at_call(void *drcontext, instrlist_t *ilist, instr_t *call)
{
    dr_insert_clean_call_ex(drcontext, ilist, call, (void *)at_call, DR_CLEANCALL_NOSAVE_XMM, 1,
                            OPND_CREATE_INTPTR((ptr_int_t)instr_get_app_pc(call)));
}

uint32_t ff_registers(uint64_t *regs, const dr_mcontext_t *state)
{
    const reg_t general[16] = {state->xax, state->xcx, state->xdx, state->xbx,
                               state->xsp, state->xbp, state->xsi, state->xdi,
                               state->r8,  state->r9,  state->r10, state->r11,
                               state->r12, state->r13, state->r14, state->r15};
    memcpy(regs, general, sizeof general);
    regs[16] = 0;
    regs[17] = state->xflags;
    return 0x2ffff;
}

bool ff_thread_is_full(const struct ff_thread *thread, const uint8_t *address)
{
    return ff_buffer_is_guard(&thread->flow, address) ||
           ff_buffer_is_guard(&thread->values, address);
}

struct ff_chunk *ff_thread_next_values(struct ff_thread *thread, uint32_t unit_bytes)
{
    uint32_t used = values_used(thread);
    thread->values_retired = false;
    ff_buffer_renew(&thread->values, FF_STREAM_VALUES, ff_process_id, thread->tid, used);
    *thread->values_at = thread->values.base;
    if (thread->values.chunk != NULL)
        thread->values.chunk->start_pos = thread->flow.start_pos + flow_used(thread) - unit_bytes;
    return thread->values.chunk;
}

void ff_thread_flush(struct ff_thread *thread)
{
    if (thread->values.chunk != NULL)
        ff_buffer_publish(&thread->values, values_used(thread));
    thread->values_retired = false;
    *thread->values_at = thread->values.base;
    ff_buffer_publish(&thread->flow, flow_used(thread));
    *thread->flow_at = thread->flow.base;
}

static uint64_t application_fs_base(void *drcontext)
{
    uint64_t base = 0;
    dr_switch_to_app_state(drcontext);
    ff_syscall3(SYS_arch_prctl, ARCH_GET_FS, (long)&base, 0);
    dr_switch_to_dr_state(drcontext);
    return base;
}

static void write_start(struct ff_thread *thread, void *drcontext)
{
    dr_mcontext_t state = {.size = sizeof state, .flags = DR_MC_INTEGER | DR_MC_CONTROL};
    /* Before the first thread runs there is no context. */
    bool known = dr_get_mcontext(drcontext, &state) && state.xsp != 0;
    struct ff_thread_start start = {
        .tid = thread->tid,
        .ts = ff_event_now(),
        .fs_base = application_fs_base(drcontext),
        .stack_pointer = known ? state.xsp : ff_entry_stack(),
        .start_pc = known ? (uint64_t)state.pc : ff_entry_pc(),
    };
    start.creator_tid = creator_of(start.stack_pointer);
    ff_thread_event(thread, FF_EVENT_THREAD_START, &start, sizeof start);
}

static void reset(struct ff_thread *thread)
{
    thread->tid = (uint32_t)ff_syscall3(SYS_gettid, 0, 0, 0);
    ff_buffer_init(&thread->flow);
    ff_buffer_init(&thread->values);
    thread->values_retired = false;
    *thread->flow_at = thread->flow.base;
    *thread->values_at = thread->values.base;
    *thread->before_call = 0;
    thread->open_call = -1;
}

static void on_thread_init(void *drcontext)
{
    struct ff_thread *thread = dr_thread_alloc(drcontext, sizeof *thread);
    memset(thread, 0, sizeof *thread);
    uint8_t *slots = (uint8_t *)dr_get_dr_segment_base(tls_segment) + tls_offset;
    thread->flow_at = (uint8_t **)slots + FLOW_SLOT;
    thread->values_at = (uint8_t **)slots + VALUES_SLOT;
    thread->before_call = (uint64_t *)slots + BEFORE_CALL_SLOT;
    *here() = thread;
    drmgr_set_tls_field(drcontext, tls_index, thread);
    reset(thread);
    write_start(thread, drcontext);
}

/* In a fork's child DynamoRIO first clears away all threads but the one that forked. They live on
 * in the parent, which writes to their chunks. (A vfork child that ends is another process too, but
 * itself.) */
static bool is_of_another_process(const struct ff_thread *thread)
{
    return (uint32_t)ff_syscall3(SYS_getpid, 0, 0, 0) != ff_own_pid &&
           (uint32_t)ff_syscall3(SYS_gettid, 0, 0, 0) != thread->tid;
}

static void on_thread_exit(void *drcontext)
{
    struct ff_thread *thread = ff_thread_of(drcontext);
    struct ff_thread_exit end = {.ts = ff_event_now(), .status = thread->exit_status};
    if (!is_of_another_process(thread)) {
        ff_thread_event(thread, FF_EVENT_THREAD_EXIT, &end, sizeof end);
        ff_thread_flush(thread);
    }
    drmgr_set_tls_field(drcontext, tls_index, NULL);
    /* Not always by itself: what a vfork child left is cleared away by its parent. */
    if (ff_thread_here() == thread)
        *here() = NULL;
    dr_thread_free(drcontext, thread, sizeof *thread);
}

void ff_thread_fork(struct ff_thread *thread)
{
    reset(thread);
    write_start(thread, dr_get_current_drcontext());
}

bool ff_thread_init(void)
{
    tls_index = drmgr_register_tls_field();
    /* ff_fault.c reads through gs. */
    return tls_index >= 0 && dr_raw_tls_calloc(&tls_segment, &tls_offset, SLOT_COUNT, 0) &&
           tls_segment == DR_SEG_GS && drmgr_register_thread_init_event(on_thread_init) &&
           drmgr_register_thread_exit_event(on_thread_exit);
}
