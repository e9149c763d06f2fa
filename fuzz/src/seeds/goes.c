/* SPDX-License-Identifier: MIT */
/* What a program of Go holds: two goroutines, of which the first waits for a value from a channel
 * that the other one has at hand; its table of functions, its spans. */
typedef unsigned long word;
__asm__(".globl start, park, worker, send\n"
    ".text\n"
    "start: call park\n ret\n .balign 16, 0xcc\n"
    "worker: call park\n mov %rax, %rdi\n call send\n ret\n .balign 16, 0xcc\n"
    "send: ret\n .balign 16, 0xcc\n"
    "park: ret\n .balign 16, 0xcc\n"
    "end:\n"
    ".section .gopclntab, \"aw\"\n"
    "table: .long 0xfffffff1\n .byte 0, 0, 1, 8\n .quad 4, 1\n .quad start\n"
    " .quad names - table, units - table, files - table, values - table, functions - table\n"
    "names: .asciz \"main.main\"\n"
    "work: .asciz \"main.worker\"\n"
    "sends: .asciz \"runtime.chansend1\"\n"
    "parks: .asciz \"runtime.gopark\"\n"
    "units: .long 0\n"
    "files: .asciz \"/srv/app/main.go\"\n"
    "values: .byte 0, 2, 64, 0\n"
    "lines: .byte 20, 6, 4, 58, 0\n"
    ".balign 8\n"
    "functions: .long start - start, f1 - functions, worker - start, f2 - functions\n"
    " .long send - start, f3 - functions, park - start, f4 - functions, end - start\n"
    "f1: .long start - start, 0, 0, 0, 0, 1, lines - values, 0, 0\n"
    "f2: .long worker - start, work - names, 0, 0, 0, 1, lines - values, 0, 0\n"
    "f3: .long send - start, sends - names, 0, 0, 0, 1, lines - values, 0, 0\n"
    "f4: .long park - start, parks - names, 0, 0, 0, 1, lines - values, 0, 0\n"
    ".text\n");
extern char start[], worker[], park[];

struct sudog { const void *g, *next, *before; word rest[7]; const void *channel; word more[3]; };
struct channel { word count, size; const void *room; word rest[4];
    const struct sudog *receivers, *last, *senders, *last_sender; };
struct g {
    const void *low, *high;
    word guard[2], panic;
    const void *deferred, *machine, *sp, *pc;
    struct g *itself;
    word rest[2];
    const void *frame;
    word more[3];
    int state, unused;
    word id;
    word link, since, reason;
    word own[44];
};
struct machine { word rest[8]; word thread; } machine = {{0}, 4712};
extern struct channel channel;
extern struct g first, second;
struct sudog waits = {.g = &first, .channel = &channel};
struct channel channel = {0, 8, 0, {0}, &waits, &waits, 0, 0};
const void *one[16] = {[2] = one + 6, [3] = start + 5, [8] = &waits, [9] = &channel};
const void *two[16] = {[2] = two + 6, [3] = worker + 5, [8] = &channel};
struct g first = {one, one + 16, {0}, 0, 0, 0, one, park, &first, {0}, one + 2, {0}, 4, 0, 1, 0, 0,
    2, {0}};
struct g second = {two, two + 16, {0}, 0, 0, &machine, two, park, &second, {0}, two + 2, {0}, 4, 0,
    7, 0, 0, 2, {0}};
struct g *all[2] = {&first, &second};
struct { const void *at; word length, room; } goroutines = {all, 2, 2};
struct { const char *text; word length; } reasons[4] = {{0, 0}, {"GC assist marking", 17},
    {"IO wait", 7}, {"chan receive", 12}};
