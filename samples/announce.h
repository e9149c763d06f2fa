/* SPDX-License-Identifier: MIT */
/* Prints where the flag is and how big it is, so that a test can compare what flagfinder names with
 * the truth. Both modes print, or the print itself would be the first place where the two runs
 * part. */
#ifndef SAMPLES_ANNOUNCE_H
#define SAMPLES_ANNOUNCE_H

#include <stdint.h>
#include <stdio.h>

static inline void announce_flag(const volatile void *address, size_t size)
{
    fprintf(stderr, "FLAG address=0x%jx size=%zu\n", (uintmax_t)(uintptr_t)address, size);
}

#endif
