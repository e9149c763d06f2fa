/* SPDX-License-Identifier: MIT */
/* What all parts share: the process's ids, and the lock on what its threads keep together. */
#include "ff_client.h"
#include "ff_sys.h"

bool ff_follow_children;
uint32_t ff_process_id;
uint32_t ff_own_pid;
static void *lock;

void ff_lock_init(void) { lock = dr_recurlock_create(); }

void ff_lock(void) { dr_recurlock_lock(lock); }

void ff_unlock(void) { dr_recurlock_unlock(lock); }

void ff_introduce(void)
{
    ff_own_pid = (uint32_t)ff_syscall3(SYS_getpid, 0, 0, 0);
    ff_process_id = ff_pool_introduce(ff_own_pid);
}
