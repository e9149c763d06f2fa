/* SPDX-License-Identifier: MIT */
/* Negative: a backup copies one block after another and sleeps in between to spare the disk. "spin"
 * has very many blocks; each round makes progress. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long checksum;
static long blocks_done;

static int copy_block(int from, int to, long number)
{
    unsigned char block[512];
    if (pread(from, block, sizeof block, (number % 16) * 512) != sizeof block)
        return -1;
    for (size_t i = 0; i < sizeof block; i++)
        checksum = checksum * 31 + block[i];
    return pwrite(to, block, sizeof block, (number % 64) * 512) == sizeof block ? 0 : -1;
}

int main(int argc, char **argv)
{
    long blocks = argc > 1 && strcmp(argv[1], "spin") == 0 ? 1000000000 : 300;
    char path[] = "/tmp/backup-XXXXXX";
    int from = open("/proc/self/exe", O_RDONLY), to = mkstemp(path);
    unlink(path);
    while (blocks_done < blocks) {
        if (copy_block(from, to, blocks_done) != 0)
            return 1;
        blocks_done++;
        usleep(1000);
    }
    printf("%lu\n", checksum);
    return 0;
}
