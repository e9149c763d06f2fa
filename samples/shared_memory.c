/* SPDX-License-Identifier: MIT */
/* A parent and its child share a page. The child takes a lock file before it publishes its result;
 * in spin mode the parent holds that lock itself while it waits. */
#include "announce.h"
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct board {
    unsigned version;
    char author[32];
    long results[16];
    unsigned published;
};

static void child(struct board *board, const char *lock_path)
{
    int lock = open(lock_path, O_RDWR);
    usleep(150000);
    for (int i = 0; i < 16; i++)
        board->results[i] = i * 3L;
    if (flock(lock, LOCK_EX) != 0)
        _exit(1);
    strcpy(board->author, "child");
    __atomic_store_n(&board->published, 1, __ATOMIC_RELEASE);
    _exit(0);
}

__attribute__((noinline)) static void wait_for_board(struct board *board)
{
    while (__atomic_load_n(&board->published, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
}

int main(int argc, char **argv)
{
    int hang = argc > 1 && strcmp(argv[1], "spin") == 0;
    char path[] = "/tmp/board-XXXXXX";
    int lock = mkstemp(path);
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (lock < 0 || board == MAP_FAILED)
        return 1;
    announce_flag(&board->published, sizeof board->published);
    if (hang && flock(lock, LOCK_EX) != 0)
        return 1;
    pid_t process = fork();
    if (process == 0)
        child(board, path);
    wait_for_board(board);
    unlink(path);
    int status;
    waitpid(process, &status, 0);
    printf("%s %ld\n", board->author, board->results[15]);
    return status != 0;
}
