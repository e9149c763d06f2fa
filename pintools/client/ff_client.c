/* SPDX-License-Identifier: MIT */
/* The DynamoRIO client: reads its options and starts the parts.
 *
 * Options (from ff_launch): --pool PATH [--follow-children] [--values-in FILE]
 * Blind spots: 32-bit programs; what a process does after a fork when children are not
 * followed; a debugger's view, which sees the code cache. */
#include <string.h>

#include "ff_client.h"
#include "ff_sys.h"

static void fail(const char *what, const char *found, const char *fix)
{
    dr_fprintf(STDERR, "flagfinder: %s\n  found: %s\n  fix: %s\n  The program was not started.\n",
               what, found, fix);
    dr_abort_with_code(2);
}

DR_EXPORT void dr_client_main(client_id_t id, int argc, const char *argv[])
{
    const char *pool = NULL, *values_in = NULL, *why = "no --pool option";
    dr_set_client_name("flagfinder", "the flagfinder project");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--follow-children") == 0)
            ff_follow_children = true;
        else if (strcmp(argv[i], "--pool") == 0 && i + 1 < argc)
            pool = argv[++i];
        else if (strcmp(argv[i], "--values-in") == 0 && i + 1 < argc)
            values_in = argv[++i];
    }
    ff_sys_init();
    ff_lock_init();
    if (pool == NULL || !ff_pool_open(pool, &why))
        fail("the tracer cannot reach its recorder.", why, "start it with `flagfinder record`.");
    ff_exec_init(pool, dr_get_client_path(id));
    ff_introduce();
    if (values_in != NULL && !ff_ranges_read(values_in))
        fail("the --values-in file cannot be used.", values_in,
             "lines must read module+0xSTART-0xEND.");
    if (!drmgr_init() || !ff_thread_init() || !ff_instrument_init())
        fail("the tracer could not start.", "DynamoRIO refused it", "rebuild the tracer.");
    ff_meta_init(ff_follow_children);
    ff_meta_process();
    ff_blocks_init();
    ff_heap_init();
    ff_modules_init();
    ff_events_init();
}
