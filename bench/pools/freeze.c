/* SPDX-License-Identifier: MIT */
/* To be preloaded: SIGUSR1 freezes the thread that gets it. */
#include "freeze.h"
