/* SPDX-License-Identifier: MIT */
/* The clock, and the environment block that the kernel put on the first stack. */
#include "ff_sys.h"

#include <elf.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "dr_api.h"

static int (*vdso_clock_gettime)(clockid_t, struct timespec *);

static uint64_t entry_sp, entry_pc;

uint64_t ff_entry_stack(void) { return entry_sp; }

uint64_t ff_entry_pc(void) { return entry_pc; }

uint64_t ff_now(void)
{
    struct timespec now = {0, 0};
    if (vdso_clock_gettime == NULL || vdso_clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        ff_syscall3(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The stack pointer at the program's entry: field 28 of /proc/self/stat. */
static uintptr_t *entry_stack(void)
{
    char text[1024];
    long fd = ff_syscall3(SYS_open, (long)"/proc/self/stat", 0, 0);
    if (fd < 0)
        return NULL;
    long size = ff_syscall3(SYS_read, fd, (long)text, sizeof text - 1);
    ff_syscall3(SYS_close, fd, 0, 0);
    if (size <= 0)
        return NULL;
    text[size] = '\0';
    const char *at = strrchr(text, ')'); /* the name may hold spaces */
    for (int field = 2; at != NULL && field < 28; field++) {
        at = strchr(at, ' ');
        if (at != NULL)
            at++;
    }
    if (at == NULL)
        return NULL;
    uintptr_t value = 0;
    for (; *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (uintptr_t)(*at - '0');
    return (uintptr_t *)value;
}

/* What ff_launch and DynamoRIO's own exec add; the prefix alone may be the user's. */
static bool is_ours(const char *entry)
{
    static const char *const names[] = {
        "DYNAMORIO_OPTIONS=",   "DYNAMORIO_RUNUNDER=",      "DYNAMORIO_EXE_PATH=",
        "DYNAMORIO_CONFIGDIR=", "DYNAMORIO_POST_EXECVE=",   "DYNAMORIO_AUTOINJECT=",
        "DYNAMORIO_ALTINJECT=", "DYNAMORIO_EXECVE_LOGDIR=",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strncmp(entry, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

void ff_sys_init(void)
{
    uintptr_t *stack = entry_stack();
    uintptr_t argc, program_entry = 0, linker = 0;
    if (stack == NULL || !dr_safe_read(stack, sizeof argc, &argc, NULL))
        return;
    entry_sp = (uint64_t)stack;
    uintptr_t *env = stack + argc + 2;
    uintptr_t *to = env;
    for (; *env != 0; env++) {
        if (!is_ours((const char *)*env))
            *to++ = *env;
    }
    *to++ = 0;
    /* The auxiliary vector must follow at once. */
    for (env++;; env += 2) {
        to[0] = env[0];
        to[1] = env[1];
        to += 2;
        if (env[0] == AT_SYSINFO_EHDR)
            vdso_clock_gettime = (int (*)(clockid_t, struct timespec *))(void *)dr_get_proc_address(
                (module_handle_t)env[1], "__vdso_clock_gettime");
        if (env[0] == AT_ENTRY)
            program_entry = env[1];
        if (env[0] == AT_BASE)
            linker = env[1];
        if (env[0] == AT_NULL)
            break;
    }
    Elf64_Ehdr header;
    if (linker != 0 && dr_safe_read((void *)linker, sizeof header, &header, NULL))
        entry_pc = linker + header.e_entry;
    else
        entry_pc = program_entry;
}
