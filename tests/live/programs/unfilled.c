/* SPDX-License-Identifier: MIT */
/* Memory that nobody fills. `unfilled stack`: the stack of a thread that polls `never` lies in
 * pages of userfaultfd, of which those above its first frames are missing; nobody answers.
 * `unfilled file PATH`: the file is mapped as code, and the thread maps and unmaps memory in each
 * round. `unfilled arguments LONG`: a page of that argument is missing. Prints the address of a
 * page that is missing, and then one of a page that is there. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, ALL = 40 * PAGE, FILLED = 16 * PAGE };

volatile int never;

static void *polls(void *maps)
{
    while (!never)
        if (maps)
            munmap(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), PAGE);
    return NULL;
}

static void check(int failed, const char *what)
{
    if (failed) {
        perror(what);
        exit(2);
    }
}

/* Of `memory` the first `filled` bytes are there. */
static void leave(char *memory, long size, long filled)
{
    int handler = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    check(handler < 0, "userfaultfd");
    struct uffdio_api api = {.api = UFFD_API};
    check(ioctl(handler, UFFDIO_API, &api), "UFFDIO_API");
    struct uffdio_register all = {
        .range = {.start = (unsigned long)memory, .len = size},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    check(ioctl(handler, UFFDIO_REGISTER, &all), "UFFDIO_REGISTER");
    struct uffdio_zeropage there = {.range = {.start = (unsigned long)memory, .len = filled}};
    check(filled && ioctl(handler, UFFDIO_ZEROPAGE, &there), "UFFDIO_ZEROPAGE");
}

int main(int count, char **words)
{
    pthread_t thread;
    pthread_attr_t how;
    pthread_attr_init(&how);
    char *missing, *there, *maps = NULL;
    if (count > 2 && !strcmp(words[1], "arguments")) {
        missing = (char *)(((unsigned long)words[2] + PAGE) & -PAGE);
        there = (char *)&never;
        madvise(missing, PAGE, MADV_DONTNEED);
        leave(missing, PAGE, 0);
    } else if (count > 2) {
        int file = open(words[2], O_RDONLY);
        check(file < 0, words[2]);
        missing = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
        check(missing == MAP_FAILED, "mmap of a file");
        there = maps = (char *)&never;
    } else {
        there = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(there == MAP_FAILED, "mmap");
        leave(there, ALL, FILLED);
        missing = there + FILLED;
        check(pthread_attr_setstack(&how, there, FILLED) != 0, "setstack");
    }
    check(pthread_create(&thread, &how, polls, maps) != 0, "thread");
    printf("%p %p\n", (void *)missing, (void *)there);
    fflush(stdout);
    pthread_join(thread, NULL);
}
