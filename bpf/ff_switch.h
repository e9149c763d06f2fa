/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Programs that call `record_switch`, which whoever includes this has defined: `(preempted, prev,
 * next, state)`. */
#ifndef FF_SWITCH_H
#define FF_SWITCH_H

#include "ff_task.h"

/* The tracepoint's arguments differ between kernels; graph/events/src/switch.rs loads one of these
 * three. */
SECTION("tp_btf/sched_switch")
int ff_sched_switch(__u64 *context)
{
    return record_switch(context[0], (void *)context[1], (void *)context[2], context[3]);
}

SECTION("tp_btf/sched_switch")
int ff_sched_switch_state_second(__u64 *context)
{
    return record_switch(context[0], (void *)context[2], (void *)context[3], context[1]);
}

/* If the tracepoint has no state, it is read from the task, while another CPU may change it: a
 * thread that is woken at this moment looks preempted. */
SECTION("tp_btf/sched_switch")
int ff_sched_switch_stateless(__u64 *context)
{
    struct task_struct *prev = (void *)context[1];
    return record_switch(context[0], prev, (void *)context[2], prev->__state);
}

#endif
