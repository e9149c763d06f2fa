/* SPDX-License-Identifier: MIT */
/* Negative: copies a big buffer to and fro; nearly all time goes by inside memcpy. "spin" copies
 * for hours. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    size_t size = 48u << 20;
    long rounds = argc > 1 && strcmp(argv[1], "spin") == 0 ? 1000000000 : 20;
    unsigned char *from = malloc(size), *to = malloc(size);
    if (from == NULL || to == NULL)
        return 1;
    memset(from, 17, size);
    for (long round = 0; round < rounds; round++) {
        memcpy(to, from, size);
        unsigned char *other = from;
        from = to;
        to = other;
        from[round % 4096]++;
    }
    printf("%d\n", from[100]);
    free(from);
    free(to);
    return 0;
}
