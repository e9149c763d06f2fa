/* SPDX-License-Identifier: MIT */
/* The rules, in the order in which they apply to an instruction:
 *
 *  1. rep string instructions: the registers they write (rcx, rsi, rdi; rep lods: rax) after. Their
 *     data is not recorded.
 *  2. Loads that put the loaded value into a general register (mov, movzx, movsx, movsxd, pop,
 *     leave, lods, xchg, xadd, cmpxchg): that register, after the instruction.
 *  3. Other loads of 1, 2, 4 or 8 bytes (ALU, cmp, test, cmov, push, jmp, call, shifts, mul, movs,
 *     cmps, scas, narrow vector loads): the memory, before the instruction.
 *     None for prefetches, ret, popf, iret, bit tests with a register index, gathers, vectors over
 * 8 bytes, x87.
 *  4. General registers written by an instruction outside the plain integer set below: each
 *     register, whole, after the instruction: rdtsc(p), cpuid, xgetbv, rdrand, rdseed, rdpid,
 *     rdpmc, rdfsbase, rdgsbase, sgdt and kin, segment and vector to general moves (movd, movq,
 * pextr, extractps, kmov), movmsk, pmovmskb, cvt*2si, cmpxchg8b/16b, pcmpestri and all that is new.
 *     Not for syscall: the SYSCALL_EXIT event has its result. */
#include "ff_slots.h"

/* Only what it loads is recorded. */
static bool is_computed(int opcode)
{
    switch (opcode) {
#define FF_COMPUTED(opcode, names) case opcode:
#define FF_TOLD FF_COMPUTED
#include "ff_computed.h"
        return true;
    default:
        return false;
    }
}

static bool is_rep(int opcode)
{
    switch (opcode) {
    case OP_rep_ins:
    case OP_rep_outs:
    case OP_rep_movs:
    case OP_rep_stos:
    case OP_rep_lods:
    case OP_rep_cmps:
    case OP_repne_cmps:
    case OP_rep_scas:
    case OP_repne_scas:
        return true;
    default:
        return false;
    }
}

/* x86's number of a general register, as rules and the engine count them. */
static uint8_t x86_number(reg_id_t reg)
{
    return (uint8_t)(reg_to_pointer_sized(reg) - DR_REG_START_64);
}

static struct ff_capture_plan register_plan(uint8_t index, reg_id_t reg)
{
    return (struct ff_capture_plan){{index, FF_SLOT_REGISTER, 8, x86_number(reg)},
                                    FF_CAPTURE_REGISTER,
                                    opnd_create_reg(reg_to_pointer_sized(reg))};
}

static bool is_slot_size(uint size) { return size == 1 || size == 2 || size == 4 || size == 8; }

static bool is_high_byte(reg_id_t reg)
{
    return reg == DR_REG_AH || reg == DR_REG_BH || reg == DR_REG_CH || reg == DR_REG_DH;
}

/* The register that holds what the instruction loaded, DR_REG_NULL if none does. */
static reg_id_t loaded_register(instr_t *instr, uint size)
{
    reg_id_t reg = DR_REG_NULL;
    switch (instr_get_opcode(instr)) {
    case OP_mov_ld:
    case OP_movzx:
    case OP_movsx:
    case OP_movsxd:
    case OP_pop:
    case OP_lods:
    case OP_leave:
    case OP_xlat:
        for (int i = 0; i < instr_num_dsts(instr) && reg == DR_REG_NULL; i++) {
            opnd_t to = instr_get_dst(instr, i);
            if (opnd_is_reg(to) && opnd_get_reg(to) != DR_REG_XSP && opnd_get_reg(to) != DR_REG_XSI)
                reg = opnd_get_reg(to);
            else if (opnd_is_reg(to) && opnd_get_reg(to) == DR_REG_XSI &&
                     instr_get_opcode(instr) != OP_lods)
                reg = opnd_get_reg(to);
        }
        break;
    case OP_xchg:
    case OP_xadd:
        for (int i = 0; i < instr_num_dsts(instr); i++) {
            if (opnd_is_reg(instr_get_dst(instr, i)))
                reg = opnd_get_reg(instr_get_dst(instr, i));
        }
        break;
    case OP_cmpxchg:
        /* Equal to memory's old value whether it was exchanged or not. */
        reg = DR_REG_RAX;
        break;
    default:
        break;
    }
    if (reg == DR_REG_NULL || !reg_is_gpr(reg) || is_high_byte(reg))
        return DR_REG_NULL;
    return reg_resize_to_opsz(reg, opnd_size_from_bytes(size));
}

static bool has_no_load_slot(instr_t *instr)
{
    int opcode = instr_get_opcode(instr);
    switch (opcode) {
    case OP_ret:
    case OP_ret_far:
    case OP_iret:
    case OP_popf:
    case OP_enter:
    case OP_cmpxchg8b:

        return true;
    case OP_bt:
    case OP_bts:
    case OP_btr:
    case OP_btc:
        for (int i = 0; i < instr_num_srcs(instr); i++) {
            opnd_t from = instr_get_src(instr, i);
            if (opnd_is_reg(from))
                return true;
        }
        return false;
    default:
        /* A prefetch may name any address: it never faults, as a load of it would. */
        return !instr_reads_memory(instr) || instr_is_prefetch(instr) || instr_is_gather(instr) ||
               instr_is_floating(instr);
    }
}

static uint32_t load_slots(instr_t *instr, uint8_t index, bool is_last,
                           struct ff_capture_plan *plans)
{
    uint32_t count = 0;
    uint8_t detail = 0;
    if (has_no_load_slot(instr))
        return 0;
    for (int i = 0; i < instr_num_srcs(instr); i++) {
        opnd_t from = instr_get_src(instr, i);
        if (!opnd_is_memory_reference(from))
            continue;
        uint size = opnd_size_in_bytes(opnd_get_size(from));
        struct ff_capture_plan plan = {
            {index, FF_SLOT_LOAD, (uint8_t)size, detail++}, FF_CAPTURE_MEMORY, from};
        if (!is_slot_size(size))
            continue;
        reg_id_t reg = is_last ? DR_REG_NULL : loaded_register(instr, size);
        if (reg != DR_REG_NULL) {
            plan.capture = FF_CAPTURE_REGISTER;
            plan.source = opnd_create_reg(reg);
        } else if (instr_get_opcode(instr) == OP_pop || instr_get_opcode(instr) == OP_leave) {
            continue;
        }
        plans[count++] = plan;
        if (count == 2)
            break;
    }
    return count;
}

uint32_t ff_slots_of(instr_t *instr, uint8_t index, bool is_last,
                     struct ff_capture_plan plans[FF_CAPTURES_MOST])
{
    int opcode = instr_get_opcode(instr);
    uint32_t count = 0;
    if (!is_rep(opcode))
        count = load_slots(instr, index, is_last, plans);
    if (is_computed(opcode) || is_last)
        return count;
    uint32_t seen = 0;
    for (int i = 0; i < instr_num_dsts(instr) && count < FF_CAPTURES_MOST; i++) {
        opnd_t to = instr_get_dst(instr, i);
        if (!opnd_is_reg(to) || !reg_is_gpr(opnd_get_reg(to)))
            continue;
        struct ff_capture_plan plan = register_plan(index, opnd_get_reg(to));
        if ((seen & (1u << plan.slot.detail)) == 0)
            plans[count++] = plan;
        seen |= 1u << plan.slot.detail;
    }
    return count;
}
