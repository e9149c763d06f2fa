/* SPDX-License-Identifier: MIT */
/* hangs NAME FOLDER: plants that hang and stays in it. */
#include "hangs.h"


int main(int count, char **words)
{
    const struct scenario *lists[] = {in_threads, in_processes, in_channels};
    if (count != 3)
        return 2;
    for (int list = 0; list < 3; list++)
        for (const struct scenario *one = lists[list]; one->name; one++)
            if (strcmp(one->name, words[1]) == 0) {
                one->run(words[2]);
                sleep_long();
            }
    return 2;
}
