/* SPDX-License-Identifier: MIT */
/* Which values of an instruction are recorded, and how they are read. */
#ifndef FF_SLOTS_H
#define FF_SLOTS_H

#include "dr_api.h"
#include "ff_protocol.h"

enum ff_capture {
    FF_CAPTURE_MEMORY,  /* before the instruction, by a load of our own */
    FF_CAPTURE_REGISTER /* after it, from the register that it wrote: no race with other threads */
};

struct ff_capture_plan {
    struct ff_slot slot;
    enum ff_capture capture;
    opnd_t source; /* the memory operand, or the register at the slot's size */
};

/* rep cmps: two loads are not recorded, three registers are; cpuid writes four. */
#define FF_CAPTURES_MOST 6

/* Fills `plans`; returns how many. `is_last`: nothing can be put after the instruction. */
uint32_t ff_slots_of(instr_t *instr, uint8_t index, bool is_last,
                     struct ff_capture_plan plans[FF_CAPTURES_MOST]);

#endif
