/* SPDX-License-Identifier: MIT */
/* Can the program that an exec starts be traced? If not, it runs untraced, and a note says so. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ff_client.h"
#include "ff_sys.h"

/* As deep as the kernel lets scripts interpret each other. */
#define DEEPEST 5

static const char *pool_path, *client_path;

void ff_exec_init(const char *pool, const char *client)
{
    pool_path = pool;
    client_path = client;
}

static bool can_open(const char *path, int flags)
{
    long fd = ff_syscall3(SYS_open, (long)path, flags | O_CLOEXEC, 0);
    if (fd >= 0)
        ff_syscall3(SYS_close, fd, 0, 0);
    return fd >= 0;
}

/* Would the kernel give the program other rights than this process has? It does not if it starts
 * the tracer instead. */
static bool gains_rights(const char *path, const struct stat *facts)
{
    uint32_t uid = (uint32_t)ff_syscall3(SYS_geteuid, 0, 0, 0),
             gid = (uint32_t)ff_syscall3(SYS_getegid, 0, 0, 0);
    if ((facts->st_mode & S_ISUID) != 0 && facts->st_uid != uid)
        return true;
    if ((facts->st_mode & S_ISGID) != 0 && (facts->st_mode & S_IXGRP) != 0 && facts->st_gid != gid)
        return true;
    return uid != 0 &&
           ff_syscall6(SYS_getxattr, (long)path, (long)"security.capability", 0, 0, 0, 0) > 0;
}

/* The interpreter that a script names, in place of its path; false: none. */
static bool interpreter_of(char *head, char *path, size_t size)
{
    char *at = head + 2;
    at += strspn(at, " \t");
    at[strcspn(at, " \t\n")] = '\0';
    if (*at == '\0' || strlen(at) >= size)
        return false;
    memmove(path, at, strlen(at) + 1);
    return true;
}

/* Why the tracer cannot go along into that program; NULL: it can, or there is no such program. */
static const char *why_not(char *path, size_t size)
{
    for (int depth = 0; depth <= DEEPEST; depth++) {
        char head[256] = {0};
        struct stat facts;
        if (ff_syscall3(SYS_stat, (long)path, (long)&facts, 0) != 0 || !S_ISREG(facts.st_mode))
            return NULL;
        long fd = ff_syscall3(SYS_open, (long)path, O_RDONLY | O_CLOEXEC, 0);
        if (fd == -EACCES || fd == -EPERM)
            return "its file cannot be read";
        if (fd < 0)
            return NULL;
        long got = ff_syscall3(SYS_read, fd, (long)head, sizeof head - 1);
        ff_syscall3(SYS_close, fd, 0, 0);
        if (got >= 2 && head[0] == '#' && head[1] == '!') {
            if (!interpreter_of(head, path, size))
                return NULL;
            continue;
        }
        const Elf64_Ehdr *elf = (const Elf64_Ehdr *)head;
        if (got < (long)sizeof *elf || memcmp(head, ELFMAG, SELFMAG) != 0)
            return NULL;
        if (elf->e_ident[EI_CLASS] != ELFCLASS64 || elf->e_machine != EM_X86_64)
            return "it is not a 64-bit x86-64 program";
        if (gains_rights(path, &facts))
            return "it runs with other rights (set-user-ID, set-group-ID or capabilities)";
        if (!can_open(client_path, O_RDONLY) || !can_open(pool_path, O_RDWR))
            return "the tracer or its buffers cannot be reached from where it runs (a sandbox, "
                   "another user)";
        return NULL;
    }
    return NULL;
}

static void say_left(const char *program, const char *why)
{
    char text[4096 + 256];
    dr_snprintf(text, sizeof text, "%s is not recorded: %s", program, why);
    text[sizeof text - 1] = '\0';
    ff_meta_note(text);
}

void ff_exec_enter(const char *application_path, bool is_execveat)
{
    char path[4096], program[4096];
    size_t got = 0;
    dr_safe_read(application_path, sizeof path - 1, path, &got);
    path[got] = '\0';
    memcpy(program, path, sizeof program);
    const char *why = is_execveat ? "it was started by execveat" : why_not(path, sizeof path);
#ifdef FF_DYNAMORIO_PATCHED
    dr_leave_at_execve(why != NULL);
#endif
    if (why != NULL)
        say_left(program, why);
}
