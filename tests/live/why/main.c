/* SPDX-License-Identifier: MIT */
/* hangs NAME FOLDER: plants that hang and stays in it. */
#include "hangs.h"


int main(int count, char **words)
{
    const struct scenario *lists[] = {in_threads, in_processes, in_channels, by_owners};
    if (count != 3)
        return 2;
    for (int list = 0; list < (int)(sizeof lists / sizeof *lists); list++)
        for (const struct scenario *one = lists[list]; one->name; one++)
            if (strcmp(one->name, words[1]) == 0) {
                one->run(words[2]);
                sleep_long();
            }
    return 2;
}
