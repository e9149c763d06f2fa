/* SPDX-License-Identifier: MIT */
/* Negative: a stream of text is compressed with a window and a table of where each word was last.
 * "spin" has an endless stream. No lock, no system call: the loops end by what the text is. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { WINDOW = 1 << 15, TABLE = 1 << 12, LONGEST = 258 };
static uint8_t window[WINDOW];
static int32_t last_at[TABLE];
static uint64_t literals, copies, checksum;

static void fill(uint64_t *state)
{
    static const char *words[] = {"lorem ", "ipsum ", "dolor ", "sit ",
                                  "amet ",  "elit ",  "sed ",   "do "};
    size_t at = 0;
    while (at < WINDOW) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        const char *word = words[*state >> 61];
        for (size_t i = 0; word[i] != '\0' && at < WINDOW; i++)
            window[at++] = (uint8_t)word[i];
    }
}

static int match_length(int here, int there)
{
    int length = 0;
    while (here + length < WINDOW && length < LONGEST &&
           window[here + length] == window[there + length])
        length++;
    return length;
}

static void compress_window(void)
{
    memset(last_at, -1, sizeof last_at);
    for (int at = 0; at + 4 <= WINDOW;) {
        uint32_t four;
        memcpy(&four, window + at, sizeof four);
        int32_t *slot = &last_at[(four * 2654435761u) >> 20];
        int length = *slot >= 0 ? match_length(at, *slot) : 0;
        *slot = at;
        if (length >= 4)
            copies++;
        else
            literals++, length = 1;
        checksum = checksum * 31 + (uint64_t)length;
        at += length;
    }
}

int main(int argc, char **argv)
{
    long windows = argc > 1 && strcmp(argv[1], "spin") == 0 ? 1000000000000 : 60;
    uint64_t state = 1;
    for (long number = 0; number < windows; number++) {
        fill(&state);
        compress_window();
    }
    printf("%ju literals, %ju copies, %jx\n", (uintmax_t)literals, (uintmax_t)copies,
           (uintmax_t)checksum);
    return 0;
}
