/* SPDX-License-Identifier: MIT */
#ifndef SAMPLES_LATCH_H
#define SAMPLES_LATCH_H

/* A latch that one thread waits at and another opens. The state is the library's own. */
const void *latch_address(unsigned long *size);
void latch_wait(void);
void latch_open(int generation);

#endif
