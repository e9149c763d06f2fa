/* SPDX-License-Identifier: MIT */
/* executes FILE PROGRAM: works until there is FILE, which it asks seldom, and then is PROGRAM.
 * Without arguments it prints the user whose rights it has. */
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words)
{
    if (count < 3)
        return printf("%d\n", (int)geteuid()) < 0;
    while (access(words[1], F_OK) != 0)
        for (volatile int work = 0; work < 1000; work++)
            ;
    execl(words[2], words[2], NULL);
    return 1;
}
