// A hash table that is nearly full is asked for keys that are not there: long walks.
#include <stdint.h>
#include <stdlib.h>
#define SIZE (1u << 20)
struct table { uint64_t *keys; unsigned size, used; unsigned long misses; } *t;
static int has(uint64_t key) { for (unsigned at = key * 0x9e3779b97f4a7c15u >> 44;; at = (at + 1) & (t->size - 1)) { if (!t->keys[at]) return 0; if (t->keys[at] == key) return 1; } }
int main(void) { t = calloc(1, sizeof *t); t->size = SIZE; t->keys = calloc(SIZE, 8);
    uint64_t x = 1; while (t->used < SIZE - SIZE / 40) { x = x * 6364136223846793005u + 1442695040888963407u; unsigned at = x * 0x9e3779b97f4a7c15u >> 44; while (t->keys[at]) at = (at + 1) & (SIZE - 1); t->keys[at] = x | 1; t->used++; }
    for (;;) { x = x * 6364136223846793005u + 1442695040888963407u; t->misses += !has(x); } }
