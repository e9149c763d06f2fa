/* SPDX-License-Identifier: MIT */
/* Prints what the kernel logs, as a logger does: `poll` asks again and again, `wait` waits. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words)
{
    static char text[8192];
    int polls = count > 1 && strcmp(words[1], "poll") == 0;
    int log = open("/proc/kmsg", O_RDONLY | (polls ? O_NONBLOCK : 0));
    if (log < 0) {
        perror("/proc/kmsg");
        return 1;
    }
    for (;;) {
        ssize_t got = read(log, text, sizeof text);
        if (got > 0 && write(1, text, (size_t)got) < 0)
            return 1;
        if (got <= 0)
            usleep(2000);
    }
}
