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
    drvector_t unused; /* registers that the block leaves alone */
    bool has_unused;
    bool leaves_allocator;
    struct ff_capture_plan plans[];
};

static bool with_values;

static uint32_t registers_of(instr_t *instr)
{
    uint32_t used = 0;
    for (int i = 0; i < instr_num_srcs(instr) + instr_num_dsts(instr); i++) {
        opnd_t opnd =
            i < instr_num_srcs(instr) ? instr_get_src(instr, i) : instr_get_dst(instr, i - instr_num_srcs(instr));
        for (int j = 0; j < opnd_num_regs_used(opnd); j++) {
            reg_id_t reg = opnd_get_reg_used(opnd, j);
            if (reg_is_gpr(reg))
                used |= 1u << (reg_to_pointer_sized(reg) - DR_REG_START_64);
        }
    }
    return used;
}

static size_t block_bytes(uint32_t slots) { return sizeof(struct block) + slots * sizeof(struct ff_capture_plan); }

static void destroy(void *drcontext, struct block *block)
{
    drvector_delete(&block->unused);
    dr_thread_free(drcontext, block, block_bytes(block->slot_count));
}

static void allow(drvector_t *allowed, uint32_t used, bool *any)
{
    uint32_t free = ~used & 0xffffu & ~(1u << (DR_REG_RSP - DR_REG_START_64));
    drreg_init_and_fill_vector(allowed, false);
    for (uint32_t i = 0; i < GENERAL_REGISTERS; i++) {
        if ((free & 1u << i) != 0)
            drreg_set_vector_entry(allowed, (reg_id_t)(DR_REG_START_64 + i), true);
    }
    *any = free != 0;
}

static dr_emit_flags_t on_analysis(void *drcontext, void *tag, instrlist_t *ilist, bool for_trace, bool translating,
                                   void **user_data)
{
    (void)tag;
    (void)for_trace;
    (void)translating;
    struct ff_capture_plan plans[INSTRUCTIONS_MOST * 2 + FF_CAPTURES_MOST];
    uint32_t slot_count = 0, total = 0, count = 0, used = 0;
    *user_data = NULL;
    instr_t *first = instrlist_first_app(ilist);
    if (first == NULL)
        return DR_EMIT_DEFAULT;
    app_pc start = instr_get_app_pc(first), end = start;
    instr_t *last = first;
    for (instr_t *instr = first; instr != NULL; instr = instr_get_next_app(instr)) {
        if (instr_get_app_pc(instr) != end || count == INSTRUCTIONS_MOST)
            break;
        end += instr_length(drcontext, instr);
        count++;
        last = instr;
    }
    if (with_values && ff_ranges_want(start, end)) {
        uint8_t index = 0;
        for (instr_t *instr = first;; instr = instr_get_next_app(instr)) {
            used |= registers_of(instr);
            struct ff_capture_plan *plan = plans + slot_count;
            uint32_t more = ff_slots_of(instr, index++, instr == last, plan);
            for (uint32_t i = 0;
                 i < more && total + plan[i].slot.size <= VALUES_MOST && slot_count < INSTRUCTIONS_MOST * 2; i++) {
                total += plan[i].slot.size;
                slot_count++;
            }
            if (instr == last)
                break;
        }
    }
    uint8_t code[INSTRUCTIONS_MOST * 17];
    uint32_t code_bytes = (uint32_t)(end - start);
    if (code_bytes > sizeof code || !dr_safe_read(start, code_bytes, code, NULL))
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
    allow(&block->unused, used, &block->has_unused);
    *user_data = block;
    return DR_EMIT_DEFAULT;
}

static void put(instrlist_t *ilist, instr_t *where, instr_t *instr) { instrlist_meta_preinsert(ilist, where, instr); }

/* A fault here is translated to the application's state before `where`. */
static void put_may_fault(instrlist_t *ilist, instr_t *where, instr_t *instr)
{
    put(ilist, where, INSTR_XL8(instr, instr_get_app_pc(where)));
}

static void advance(void *drcontext, instrlist_t *ilist, instr_t *where, reg_id_t reg, uint32_t bytes)
{
    put(ilist, where,
        INSTR_CREATE_lea(drcontext, opnd_create_reg(reg), OPND_CREATE_MEM_lea(reg, DR_REG_NULL, 0, (int)bytes)));
}

static void insert_flow(void *drcontext, instrlist_t *ilist, instr_t *where, reg_id_t reg, uint32_t id)
{
    bool is_short = id < SHORT_IDS;
    uint32_t unit = is_short ? id : (FF_FLOW_LONG + (id >> 16)) | id << 16;
    ff_thread_insert_read_flow(drcontext, ilist, where, reg);
    /* Always 32 bits: a 16-bit immediate would stall the decoder, and what follows is zero anyway. */
    put_may_fault(ilist, where,
                  INSTR_CREATE_mov_st(drcontext, OPND_CREATE_MEM32(reg, 0), OPND_CREATE_INT32((int)unit)));
    advance(drcontext, ilist, where, reg, is_short ? 2 : 4);
    ff_thread_insert_write_flow(drcontext, ilist, where, reg);
}

static void insert_values_top(void *drcontext, instrlist_t *ilist, instr_t *where, reg_id_t reg,
                              const struct block *block)
{
    int unit_bytes = block->id < SHORT_IDS ? 2 : 4;
    ff_thread_insert_read_values(drcontext, ilist, where, reg);
    /* Its value tells the fault handler how far back in FLOW this block's unit stands. */
    put_may_fault(
        ilist, where,
        INSTR_CREATE_mov_st(drcontext, OPND_CREATE_MEM8(reg, (int)block->total - 1), OPND_CREATE_INT8(unit_bytes)));
    advance(drcontext, ilist, where, reg, block->total);
    ff_thread_insert_write_values(drcontext, ilist, where, reg);
}

static void insert_top(void *drcontext, instrlist_t *ilist, instr_t *where, struct block *block)
{
    reg_id_t reg;
    bool pinned = block->slot_count != 0 && block->has_unused;
    if (drreg_reserve_register(drcontext, ilist, where, pinned ? &block->unused : NULL, &reg) != DRREG_SUCCESS)
        return;
    insert_flow(drcontext, ilist, where, reg, block->id);
    if (block->slot_count != 0)
        insert_values_top(drcontext, ilist, where, reg, block);
    if (pinned)
        block->pointer = reg;
    else
        drreg_unreserve_register(drcontext, ilist, where, reg);
}

/* A register for one use, none of those that `busy` uses. */
static reg_id_t borrow(void *drcontext, instrlist_t *ilist, instr_t *where, struct block *block, opnd_t busy)
{
    reg_id_t reg = DR_REG_NULL;
    if (block->pointer != DR_REG_NULL &&
        drreg_reserve_register(drcontext, ilist, where, &block->unused, &reg) == DRREG_SUCCESS)
        return reg;
    drvector_t allowed;
    drreg_init_and_fill_vector(&allowed, true);
    for (int i = 0; i < opnd_num_regs_used(busy); i++) {
        if (reg_is_gpr(opnd_get_reg_used(busy, i)))
            drreg_set_vector_entry(&allowed, reg_to_pointer_sized(opnd_get_reg_used(busy, i)), false);
    }
    if (drreg_reserve_register(drcontext, ilist, where, &allowed, &reg) != DRREG_SUCCESS)
        reg = DR_REG_NULL;
    drvector_delete(&allowed);
    return reg;
}

/* The segments are not the application's in the code cache: its base goes into `value`. */
static opnd_t flatten_segment(void *drcontext, instrlist_t *ilist, instr_t *where, opnd_t from, reg_id_t value)
{
    reg_id_t base = opnd_get_base(from), index = opnd_get_index(from);
    int scale = opnd_get_scale(from);
    dr_insert_get_seg_base(drcontext, ilist, where, opnd_get_segment(from), value);
    if (base != DR_REG_NULL && index != DR_REG_NULL)
        put(ilist, where, INSTR_CREATE_lea(drcontext, opnd_create_reg(value), OPND_CREATE_MEM_lea(value, base, 1, 0)));
    else if (base != DR_REG_NULL) {
        index = base;
        scale = 1;
    }
    return opnd_create_base_disp(value, index, index == DR_REG_NULL ? 0 : scale, opnd_get_disp(from),
                                 opnd_get_size(from));
}

static void insert_load(void *drcontext, instrlist_t *ilist, instr_t *where, const struct ff_capture_plan *plan,
                        reg_id_t value)
{
    reg_id_t sized = reg_resize_to_opsz(value, opnd_size_from_bytes(plan->slot.size));
    opnd_t from = plan->source;
    if (opnd_is_far_base_disp(from) && (opnd_get_segment(from) == DR_SEG_FS || opnd_get_segment(from) == DR_SEG_GS)) {
        from = flatten_segment(drcontext, ilist, where, from, value);
    } else if (opnd_is_rel_addr(from) || opnd_is_abs_addr(from)) {
        /* Our copy may be out of a displacement's reach. */
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
    opnd_t to = opnd_create_base_disp(pointer, DR_REG_NULL, 0, displacement, opnd_size_from_bytes(plan->slot.size));
    if (plan->capture == FF_CAPTURE_MEMORY) {
        value = borrow(drcontext, ilist, where, block, plan->source);
        if (value != DR_REG_NULL) {
            drreg_restore_app_values(drcontext, ilist, where, plan->source, NULL);
            insert_load(drcontext, ilist, where, plan, value);
            put(ilist, where,
                INSTR_CREATE_mov_st(drcontext, to, opnd_create_reg(reg_resize_to_opsz(value, opnd_get_size(to)))));
            drreg_unreserve_register(drcontext, ilist, where, value);
        }
    } else {
        drreg_restore_app_values(drcontext, ilist, where, plan->source, NULL);
        put(ilist, where, INSTR_CREATE_mov_st(drcontext, to, plan->source));
    }
    if (block->pointer == DR_REG_NULL)
        drreg_unreserve_register(drcontext, ilist, where, pointer);
}

static dr_emit_flags_t on_insert(void *drcontext, void *tag, instrlist_t *ilist, instr_t *instr, bool for_trace,
                                 bool translating, void *user_data)
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
        insert_top(drcontext, ilist, instr, block);
    }
    if (instr_is_app(instr) && block->slot_next < block->slot_count) {
        /* Registers that the instructions before wrote, then memory that this one will read. */
        for (; block->slot_next < block->slot_count; block->slot_next++) {
            const struct ff_capture_plan *plan = &block->plans[block->slot_next];
            if (plan->slot.instruction >= block->index + (plan->capture == FF_CAPTURE_MEMORY ? 1u : 0u))
                break;
            insert_slot(drcontext, ilist, instr, block, plan);
        }
    }
    if (instr_is_app(instr))
        block->index++;
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

bool ff_instrument_decode_write(void *drcontext, byte *pc, reg_id_t *base, uint32_t *tag)
{
    instr_t instr;
    instr_init(drcontext, &instr);
    bool ours = decode(drcontext, pc, &instr) != NULL && instr_get_opcode(&instr) == OP_mov_st &&
                opnd_is_base_disp(instr_get_dst(&instr, 0)) && opnd_is_immed_int(instr_get_src(&instr, 0));
    if (ours) {
        *base = opnd_get_base(instr_get_dst(&instr, 0));
        bool is_values = opnd_get_size(instr_get_dst(&instr, 0)) == OPSZ_1;
        *tag = is_values ? (uint32_t)opnd_get_immed_int(instr_get_src(&instr, 0)) : 0;
    }
    instr_free(drcontext, &instr);
    return ours;
}

bool ff_instrument_init(void)
{
    with_values = ff_pool_level() == FF_LEVEL_VALUES;
    drreg_options_t options = {.struct_size = sizeof options, .num_spill_slots = 4};
    return drreg_init(&options) == DRREG_SUCCESS &&
           drmgr_register_bb_instrumentation_event(on_analysis, on_insert, NULL);
}
