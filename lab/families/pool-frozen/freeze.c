/* SPDX-License-Identifier: MIT */
/* To be preloaded or linked: SIGUSR1 freezes the thread that gets it. */
#include "freeze.h"

void freeze_worker(int which)
{
    freeze(which);
}
