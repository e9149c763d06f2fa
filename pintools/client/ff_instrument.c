/* SPDX-License-Identifier: MIT */
/* What is added to a block:
 *
 *   at its top      flow:    mov [r], id    r += 2 or 4
 *                   values:  touch the far end (it faults when the buffer is full), r += total
 *   in its middle   mov [r - total + offset], value          for each slot
 *
 * Flags are never touched. `r` is a register that the block does not use at all, so nothing
 * has to be put back for the application's instructions; only a block that uses all of them
 * reserves one for each instruction. */
#include <string.h>

#include "ff_client.h"

#include "drreg.h"
#include "ff_slots.h"

/* Blocks of more instructions are cut (-max_bb_instrs), so an index fits a byte. */
#define INSTRUCTIONS_MOST 255
/* A block's slots stay well inside the guard. */
#define VALUES_MOST 2048
#define GENERAL_REGISTERS 16
/* Ids up to here take one unit. */
#define SHORT_IDS FF_FLOW_LONG

struct block {
    uint32_t id;
    uint32_t total; /* bytes of values */
    uint32_t slot_count, slot_next;
    uint32_t index; /* of the instruction whose turn it is */
    instr_t *first, *last;
    reg_id_t pointer; /* holds the values pointer from top to end; DR_REG_NULL: per instruction */
    uint32_t offset;
    uint32_t used; /* registers that the block reads or writes, a bit each */
    bool leaves_allocator;
    struct ff_capture_plan plans[];
};

static bool with_values;

static uint32_t registers_of(instr_t *instr)
{
    uint32_t used = 0;
    for (int i = 0; i < instr_num_srcs(instr) + instr_num_dsts(instr); i++) {
        opnd_t opnd = i < instr_num_srcs(instr) ? instr_get_src(instr, i)
                                                : instr_get_dst(instr, i - instr_num_srcs(instr));
        for (int j = 0; j < opnd_num_regs_used(opnd); j++) {
            reg_id_t reg = opnd_get_reg_used(opnd, j);
            if (reg_is_gpr(reg))
                used |= 1u << (reg_to_pointer_sized(reg) - DR_REG_START_64);
        }
    }
    return used;
}

static size_t block_bytes(uint32_t slots)
{
    return sizeof(struct block) + slots * sizeof(struct ff_capture_plan);
}

static void destroy(void *drcontext, struct block *block)
{
    dr_thread_free(drcontext, block, block_bytes(block->slot_count));
}

/* A register that is put away goes through memory and back, and what the application computes with
 * it waits for that: first those that compilers rarely keep anything in. */
static const reg_id_t preferred[] = {DR_REG_R11, DR_REG_R10, DR_REG_R9,  DR_REG_R8,  DR_REG_R15,
                                     DR_REG_R14, DR_REG_R13, DR_REG_R12, DR_REG_RBP, DR_REG_RBX,
                                     DR_REG_RDX, DR_REG_RCX, DR_REG_RSI, DR_REG_RDI, DR_REG_RAX};

/* Reserves a register that none of the block's instructions uses. */
static reg_id_t reserve_unused(void *drcontext, instrlist_t *ilist, instr_t *where,
                               const struct block *block)
{
    reg_id_t reg = DR_REG_NULL;
    drvector_t allowed;
    drreg_init_and_fill_vector(&allowed, false);
    for (size_t i = 0; i < sizeof preferred / sizeof *preferred && reg == DR_REG_NULL; i++) {
        if ((block->used & 1u << (preferred[i] - DR_REG_START_64)) != 0)
            continue;
        drreg_set_vector_entry(&allowed, preferred[i], true);
        if (drreg_reserve_register(drcontext, ilist, where, &allowed, &reg) != DRREG_SUCCESS)
            reg = DR_REG_NULL;
    }
    drvector_delete(&allowed);
    return reg;
}

static dr_emit_flags_t on_analysis(void *drcontext, void *tag, instrlist_t *ilist, bool for_trace,
                                   bool translating, void **user_data)
{
    (void)tag;
    (void)for_trace;
    (void)translating;
    struct ff_capture_plan plans[INSTRUCTIONS_MOST * 2 + FF_CAPTURES_MOST];
    uint32_t slot_count = 0, total = 0, count = 0, used = 0;
    *user_data = NULL;
    ff_fault_install();
    instr_t *first = instrlist_first_app(ilist);
    if (first == NULL)
        return DR_EMIT_DEFAULT;
    app_pc start = instr_get_app_pc(first), end = start;
    instr_t *last = first;
    /* It may set the alignment check, which our stores of values would not pass (ff_fault.c makes
     * those of ids). */
    bool sets_flags = false;
    for (instr_t *instr = first; instr != NULL; instr = instr_get_next_app(instr)) {
        if (instr_get_app_pc(instr) != end || count == INSTRUCTIONS_MOST)
            break;
        end += instr_length(drcontext, instr);
        used |= registers_of(instr);
        sets_flags |= instr_get_opcode(instr) == OP_popf;
        count++;
        last = instr;
    }
    if (with_values && !sets_flags && ff_ranges_want(start, end)) {
        uint8_t index = 0;
        for (instr_t *instr = first;; instr = instr_get_next_app(instr)) {
            struct ff_capture_plan *plan = plans + slot_count;
            uint32_t more = ff_slots_of(instr, index++, instr == last, plan);
            for (uint32_t i = 0; i < more && total + plan[i].slot.size <= VALUES_MOST &&
                                 slot_count < INSTRUCTIONS_MOST * 2;
                 i++) {
                total += plan[i].slot.size;
                slot_count++;
            }
            if (instr == last)
                break;
        }
    }
    uint8_t code[INSTRUCTIONS_MOST * 17];
    uint32_t code_bytes = (uint32_t)(end - start);
    /* No bytes: DynamoRIO made the instruction, the program has none there. */
    if (code_bytes == 0 || code_bytes > sizeof code || !dr_safe_read(start, code_bytes, code, NULL))
        return DR_EMIT_DEFAULT;
    struct ff_slot slots[INSTRUCTIONS_MOST * 2 + FF_CAPTURES_MOST];
    for (uint32_t i = 0; i < slot_count; i++)
        slots[i] = plans[i].slot;

    struct block *block = dr_thread_alloc(drcontext, block_bytes(slot_count));
    *block = (struct block){.total = total, .slot_count = slot_count, .first = first, .last = last};
    block->id = ff_block_id(start, code, code_bytes, count, slots, slot_count);
    memcpy(block->plans, plans, slot_count * sizeof *plans);
    block->leaves_allocator = ff_heap_leaves(last);
    if (block->leaves_allocator)
        used |= 1u << (DR_REG_RAX - DR_REG_START_64);
    block->used = used;
    *user_data = block;
    return DR_EMIT_DEFAULT;
}

static void put(instrlist_t *ilist, instr_t *where, instr_t *instr)
{
    instrlist_meta_preinsert(ilist, where, instr);
}

/* A fault here is translated to the application's state before `where`. */
static void put_may_fault(instrlist_t *ilist, instr_t *where, instr_t *instr)
{
    put(ilist, where, INSTR_XL8(instr, instr_get_app_pc(where)));
}

static void advance(void *drcontext, instrlist_t *ilist, instr_t *where, reg_id_t reg,
                    uint32_t bytes)
{
    put(ilist, where,
        INSTR_CREATE_lea(drcontext, opnd_create_reg(reg),
                         OPND_CREATE_MEM_lea(reg, DR_REG_NULL, 0, (int)bytes)));
}

static void insert_flow(void *drcontext, instrlist_t *ilist, instr_t *where, reg_id_t reg,
                        uint32_t id)
{
    bool is_short = id < SHORT_IDS;
    uint32_t unit = is_short ? id : (FF_FLOW_LONG + (id >> 16)) | id << 16;
    ff_thread_insert_read_flow(drcontext, ilist, where, reg);
    /* Always 32 bits: a 16-bit immediate would stall the decoder, and what follows is zero anyway.
     */
    put_may_fault(
        ilist, where,
        INSTR_CREATE_mov_st(drcontext, OPND_CREATE_MEM32(reg, 0), OPND_CREATE_INT32((int)unit)));
    advance(drcontext, ilist, where, reg, is_short ? 2 : 4);
    ff_thread_insert_write_flow(drcontext, ilist, where, reg);
}

/* The TLS offset of a reserved register's value, -1 if it was not kept. */
static int spilled_at(void *drcontext, reg_id_t reg)
{
    drreg_reserve_info_t info = {.size = sizeof info};
    bool kept = drreg_reservation_info_ex(drcontext, reg, &info) == DRREG_SUCCESS &&
                info.app_value_retained && !info.is_dr_slot;
    return kept ? info.tls_offs : -1;
}

static void insert_values_top(void *drcontext, instrlist_t *ilist, instr_t *where, reg_id_t reg,
                              const struct block *block)
{
    uint8_t tag = ff_fault_tag(block->id < SHORT_IDS ? 2 : 4, spilled_at(drcontext, reg));
    ff_thread_insert_read_values(drcontext, ilist, where, reg);
    put_may_fault(ilist, where,
                  INSTR_CREATE_mov_st(drcontext, OPND_CREATE_MEM8(reg, (int)block->total - 1),
                                      OPND_CREATE_INT8((char)tag)));
    advance(drcontext, ilist, where, reg, block->total);
    ff_thread_insert_write_values(drcontext, ilist, where, reg);
}

static void insert_top(void *drcontext, instrlist_t *ilist, instr_t *where, struct block *block)
{
    reg_id_t reg = DR_REG_NULL;
    /* At level flow one that the block overwrites is best: it need not be put away. */
    if (block->slot_count != 0 ||
        drreg_reserve_dead_register(drcontext, ilist, where, NULL, &reg) != DRREG_SUCCESS)
        reg = reserve_unused(drcontext, ilist, where, block);
    bool pinned = block->slot_count != 0 && reg != DR_REG_NULL;
    if (reg == DR_REG_NULL &&
        drreg_reserve_register(drcontext, ilist, where, NULL, &reg) != DRREG_SUCCESS)
        return;
    insert_flow(drcontext, ilist, where, reg, block->id);
    if (block->slot_count != 0)
        insert_values_top(drcontext, ilist, where, reg, block);
    if (pinned)
        block->pointer = reg;
    else
        drreg_unreserve_register(drcontext, ilist, where, reg);
}

/* A register for one use, which `busy` does not use. */
static reg_id_t borrow(void *drcontext, instrlist_t *ilist, instr_t *where, struct block *block,
                       opnd_t busy)
{
    reg_id_t reg = DR_REG_NULL;
    if (block->pointer != DR_REG_NULL)
        reg = reserve_unused(drcontext, ilist, where, block);
    if (reg != DR_REG_NULL)
        return reg;
    drvector_t allowed;
    drreg_init_and_fill_vector(&allowed, true);
    for (int i = 0; i < opnd_num_regs_used(busy); i++) {
        if (reg_is_gpr(opnd_get_reg_used(busy, i)))
            drreg_set_vector_entry(&allowed, reg_to_pointer_sized(opnd_get_reg_used(busy, i)),
                                   false);
    }
    if (drreg_reserve_register(drcontext, ilist, where, &allowed, &reg) != DRREG_SUCCESS)
        reg = DR_REG_NULL;
    drvector_delete(&allowed);
    return reg;
}

/* The segments are not the application's in the code cache: its base goes into `value`. */
static opnd_t flatten_segment(void *drcontext, instrlist_t *ilist, instr_t *where, opnd_t from,
                              reg_id_t value)
{
    reg_id_t base = opnd_get_base(from), index = opnd_get_index(from);
    int scale = opnd_get_scale(from);
    dr_insert_get_seg_base(drcontext, ilist, where, opnd_get_segment(from), value);
    if (base != DR_REG_NULL && index != DR_REG_NULL)
        put(ilist, where,
            INSTR_CREATE_lea(drcontext, opnd_create_reg(value),
                             OPND_CREATE_MEM_lea(value, base, 1, 0)));
    else if (base != DR_REG_NULL) {
        index = base;
        scale = 1;
    }
    return opnd_create_base_disp(value, index, index == DR_REG_NULL ? 0 : scale,
                                 opnd_get_disp(from), opnd_get_size(from));
}

static void insert_load(void *drcontext, instrlist_t *ilist, instr_t *where,
                        const struct ff_capture_plan *plan, reg_id_t value)
{
    reg_id_t sized = reg_resize_to_opsz(value, opnd_size_from_bytes(plan->slot.size));
    opnd_t from = plan->source;
    if (opnd_is_far_base_disp(from) &&
        (opnd_get_segment(from) == DR_SEG_FS || opnd_get_segment(from) == DR_SEG_GS)) {
        from = flatten_segment(drcontext, ilist, where, from, value);
    } else if (opnd_is_rel_addr(from) || opnd_is_abs_addr(from)) {
        /* A displacement may not reach from our copy. */
        put(ilist, where,
            INSTR_CREATE_mov_imm(drcontext, opnd_create_reg(value),
                                 OPND_CREATE_INTPTR((ptr_int_t)opnd_get_addr(from))));
        from = opnd_create_base_disp(value, DR_REG_NULL, 0, 0, opnd_get_size(plan->source));
    }
    opnd_set_size(&from, opnd_size_from_bytes(plan->slot.size));
    /* When it faults, so would the application's instruction. */
    put_may_fault(ilist, where, INSTR_CREATE_mov_ld(drcontext, opnd_create_reg(sized), from));
}

static void insert_slot(void *drcontext, instrlist_t *ilist, instr_t *where, struct block *block,
                        const struct ff_capture_plan *plan)
{
    int displacement = (int)block->offset - (int)block->total;
    reg_id_t pointer = block->pointer, value = DR_REG_NULL;
    block->offset += plan->slot.size;
    if (pointer == DR_REG_NULL) {
        pointer = borrow(drcontext, ilist, where, block, plan->source);
        if (pointer == DR_REG_NULL)
            return;
        ff_thread_insert_read_values(drcontext, ilist, where, pointer);
    }
    opnd_t to = opnd_create_base_disp(pointer, DR_REG_NULL, 0, displacement,
                                      opnd_size_from_bytes(plan->slot.size));
    if (plan->capture == FF_CAPTURE_MEMORY) {
        value = borrow(drcontext, ilist, where, block, plan->source);
        if (value != DR_REG_NULL) {
            drreg_restore_app_values(drcontext, ilist, where, plan->source, NULL);
            insert_load(drcontext, ilist, where, plan, value);
            put(ilist, where,
                INSTR_CREATE_mov_st(drcontext, to,
                                    opnd_create_reg(reg_resize_to_opsz(value, opnd_get_size(to)))));
            drreg_unreserve_register(drcontext, ilist, where, value);
        }
    } else {
        drreg_restore_app_values(drcontext, ilist, where, plan->source, NULL);
        put(ilist, where, INSTR_CREATE_mov_st(drcontext, to, plan->source));
    }
    if (block->pointer == DR_REG_NULL)
        drreg_unreserve_register(drcontext, ilist, where, pointer);
}

static dr_emit_flags_t on_insert(void *drcontext, void *tag, instrlist_t *ilist, instr_t *instr,
                                 bool for_trace, bool translating, void *user_data)
{
    (void)tag;
    (void)for_trace;
    (void)translating;
    struct block *block = user_data;
    if (block == NULL)
        return DR_EMIT_DEFAULT;
    if (instr == block->first) {
        /* Before a register is taken: hooks read the application's. */
        ff_heap_insert_top(drcontext, ilist, instr, instr_get_app_pc(instr));
        if (instr_is_syscall(instr))
            ff_thread_insert_at_call(drcontext, ilist, instr);
        insert_top(drcontext, ilist, instr, block);
    }
    if (instr_is_app(instr) && block->slot_next < block->slot_count) {
        /* Registers that the instructions before wrote, then memory that this one will read. */
        for (; block->slot_next < block->slot_count; block->slot_next++) {
            const struct ff_capture_plan *plan = &block->plans[block->slot_next];
            if (plan->slot.instruction >=
                block->index + (plan->capture == FF_CAPTURE_MEMORY ? 1u : 0u))
                break;
            insert_slot(drcontext, ilist, instr, block, plan);
        }
    }
    if (instr_is_app(instr))
        block->index++;
    if (instr == block->last && instr_is_syscall(instr))
        ff_thread_insert_before_call(drcontext, ilist, instr);
    if (instr == block->last && block->leaves_allocator)
        ff_heap_insert_leave(drcontext, ilist, instr);
    if (instr == block->last && block->pointer != DR_REG_NULL) {
        drreg_unreserve_register(drcontext, ilist, instr, block->pointer);
        block->pointer = DR_REG_NULL;
    }
    if (drmgr_is_last_instr(drcontext, instr))
        destroy(drcontext, block);
    return DR_EMIT_DEFAULT;
}

bool ff_instrument_init(void)
{
    with_values = ff_pool_level() == FF_LEVEL_VALUES;
    drreg_options_t options = {.struct_size = sizeof options, .num_spill_slots = 4};
    return drreg_init(&options) == DRREG_SUCCESS &&
           drmgr_register_bb_instrumentation_event(on_analysis, on_insert, NULL);
}
