/* SPDX-License-Identifier: MIT */
// SPDX-License-Identifier: MIT
// Starts many short processes of its own program, a few at a time: `starts 1000`.

#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int count, char **words) {
    if (count != 2) {
        return 2;
    }
    if (strcmp(words[1], "child") == 0) {
        usleep(500);
        return 0;
    }
    int running = 0;
    for (int left = atoi(words[1]); left > 0; left--) {
        char *child[] = {words[0], "child", NULL};
        pid_t pid;
        if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, child, environ) != 0) {
            return 1;
        }
        running++;
        while (running >= 8 && wait(NULL) > 0) {
            running--;
        }
    }
    while (wait(NULL) > 0) {
    }
    return 0;
}
