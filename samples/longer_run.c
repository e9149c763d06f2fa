/* SPDX-License-Identifier: MIT */
/* Negative: counts words of a generated text in a hash table. "spin" gets a text that is very much
 * longer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 509

struct entry {
    struct entry *next;
    long count;
    char word[16];
};

static struct entry *table[BUCKETS];

static unsigned hash(const char *word)
{
    unsigned value = 5381;
    while (*word)
        value = value * 33 + (unsigned char)*word++;
    return value % BUCKETS;
}

static void count(const char *word)
{
    struct entry **place = &table[hash(word)];
    for (struct entry *entry = *place; entry; entry = entry->next)
        if (strcmp(entry->word, word) == 0) {
            entry->count++;
            return;
        }
    struct entry *entry = calloc(1, sizeof *entry);
    strcpy(entry->word, word);
    entry->next = *place;
    *place = entry;
}

int main(int argc, char **argv)
{
    long words = argc > 1 && strcmp(argv[1], "spin") == 0 ? 100000000000 : 1500000;
    unsigned long random = 12345;
    for (long number = 0; number < words; number++) {
        char word[16];
        random = random * 6364136223846793005u + 1442695040888963407u;
        snprintf(word, sizeof word, "w%lu", (random >> 33) % 2000);
        count(word);
    }
    printf("%ld\n", table[1] ? table[1]->count : 0);
    return 0;
}
