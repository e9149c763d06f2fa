/* SPDX-License-Identifier: MIT */
/* ff_launch: becomes the traced program, like drrun.
 *
 *   ff_launch --pool PATH --level flow|values [--dr DIR] [--values-in FILE] [--follow-children]
 *             [--environment DESCRIPTOR] [--generates-code] -- PROGRAM ARGS
 *   ff_launch --lost-patches     prints the names of flagfinder's patches that this DynamoRIO lacks
 *
 * DynamoRIO's library is itself the program that the kernel starts; it loads the target in the
 * same process, so pid, descriptors, terminal, signal mask and exit status are the target's own.
 * With --environment the target's environment is read from there, each entry with a NUL at its end:
 * what is set for the target does not act on this program. DynamoRIO's options travel in the
 * environment, which the client cleans before the target looks; no file is written. Exit status
 * when the target was not started: 127 not found, 126 cannot be run, 2 usage. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What replaces this process is recorded too; with a DynamoRIO that is not ours, not. */
#ifdef FF_DYNAMORIO_PATCHED
#define FF_NO_CHILDREN "-no_follow_children -follow_exec"
#define FF_LOST_PATCHES ""
#else
#define FF_NO_CHILDREN "-no_follow_children"
#endif

enum { FF_EXIT_USAGE = 2, FF_EXIT_CANNOT_RUN = 126, FF_EXIT_NOT_FOUND = 127 };

struct options {
    const char *pool, *level, *dynamorio, *values_in, *environment;
    bool follow_children, generates_code;
};

static void fail(int status, const char *what, const char *found, const char *fix,
                 const char *still)
{
    fprintf(stderr, "ff_launch: %s\n  found: %s\n  fix: %s\n  still works: %s\n", what, found, fix,
            still);
    exit(status);
}

static void usage(const char *found)
{
    fail(FF_EXIT_USAGE, "the command line is not understood.", found,
         "ff_launch --pool PATH --level flow|values [--dr DIR] [--values-in FILE] "
         "[--follow-children] "
         "[--environment DESCRIPTOR] [--generates-code] -- PROGRAM ARGS",
         "nothing was started.");
}

/* The program as execvp would find it. */
static char *find_program(const char *name)
{
    if (strchr(name, '/') != NULL) {
        if (access(name, F_OK) != 0)
            fail(FF_EXIT_NOT_FOUND, "the program was not found.", name, "check the path.",
                 "nothing was started.");
        return strdup(name);
    }
    const char *path = getenv("PATH");
    char *list = strdup(path != NULL ? path : "/bin:/usr/bin");
    for (char *rest = list, *directory; (directory = strsep(&rest, ":")) != NULL;) {
        char *candidate;
        struct stat facts;
        if (asprintf(&candidate, "%s/%s", *directory != '\0' ? directory : ".", name) < 0)
            abort();
        if (stat(candidate, &facts) == 0 && S_ISREG(facts.st_mode) && access(candidate, X_OK) == 0)
            return candidate;
        free(candidate);
    }
    fail(FF_EXIT_NOT_FOUND, "the program was not found.", name,
         "give its path, or add its directory to PATH.", "nothing was started.");
    return NULL;
}

struct script {
    char *interpreter;
    char *argument; /* NULL: none */
};

/* Splits "#! interpreter argument", as the kernel does: one argument at most. */
static struct script parse_script(char *line)
{
    struct script script = {NULL, NULL};
    line[strcspn(line, "\n")] = '\0';
    char *at = line + 2;
    at += strspn(at, " \t");
    size_t length = strcspn(at, " \t");
    char *rest = at + length;
    rest += strspn(rest, " \t");
    for (size_t end = strlen(rest); end > 0 && (rest[end - 1] == ' ' || rest[end - 1] == '\t');
         end--)
        rest[end - 1] = '\0';
    script.interpreter = strndup(at, length);
    script.argument = *rest != '\0' ? strdup(rest) : NULL;
    return script;
}

/* Refuses what cannot be traced; true if it is a script, whose first line is then in `head`. */
static bool examine(const char *program, char *head, size_t size)
{
    struct stat facts;
    if (stat(program, &facts) != 0 || !S_ISREG(facts.st_mode) || access(program, X_OK) != 0)
        fail(FF_EXIT_CANNOT_RUN, "the program cannot be executed.", program,
             "it must be a file with x permission.", "nothing was started.");
    if ((facts.st_mode & S_ISUID) != 0 && facts.st_uid != geteuid())
        fail(FF_EXIT_CANNOT_RUN, "the program is set-uid: traced, it would run without its rights.",
             program, "record as that user, or record a copy without the bit.",
             "flagfinder spin PID on the running program.");
    if ((facts.st_mode & S_ISGID) != 0 && (facts.st_mode & S_IXGRP) != 0 &&
        facts.st_gid != getegid())
        fail(FF_EXIT_CANNOT_RUN, "the program is set-gid: traced, it would run without its rights.",
             program, "record with that group, or record a copy without the bit.",
             "flagfinder spin PID on the running program.");
    int file = open(program, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        fail(FF_EXIT_CANNOT_RUN,
             "the program can be executed but not read, and the tracer must read it.", program,
             "give yourself read permission.", "flagfinder spin PID on the running program.");
    memset(head, 0, size);
    ssize_t got = read(file, head, size - 1);
    close(file);
    if (got >= 2 && head[0] == '#' && head[1] == '!')
        return true;
    if (got < EI_NIDENT || memcmp(head, ELFMAG, SELFMAG) != 0)
        fail(FF_EXIT_CANNOT_RUN, "the program is neither an ELF file nor a script.", program,
             "give a program, or a script that begins with #!.", "nothing was started.");
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)head;
    if (head[EI_CLASS] != ELFCLASS64 || elf->e_machine != EM_X86_64)
        fail(FF_EXIT_CANNOT_RUN, "the program is not a 64-bit x86-64 one; the tracer is for those.",
             program, "record a 64-bit build of it.", "reading and comparing traces works.");
    return false;
}

/* argv as the kernel would make it, with interpreters of scripts put before. */
static char **resolve(char **arguments, char **program)
{
    char head[4096];
    *program = find_program(arguments[0]);
    for (int depth = 0; examine(*program, head, sizeof head); depth++) {
        if (depth == 5)
            fail(FF_EXIT_CANNOT_RUN, "scripts interpret each other too deeply.", *program,
                 "shorten the chain.", "nothing was started.");
        struct script script = parse_script(head);
        size_t count = 0;
        while (arguments[count] != NULL)
            count++;
        char **longer = calloc(count + 3, sizeof *longer);
        if (longer == NULL)
            abort();
        size_t at = 0;
        longer[at++] = script.interpreter;
        if (script.argument != NULL)
            longer[at++] = script.argument;
        longer[at++] = *program;
        memcpy(longer + at, arguments + 1, count * sizeof *longer);
        arguments = longer;
        *program = script.interpreter;
    }
    return arguments;
}

/* Where this program stands: its libraries are beside it. */
static char *own_directory(void)
{
    char path[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    if (size <= 0)
        return strdup(".");
    path[size] = '\0';
    *strrchr(path, '/') = '\0';
    return strdup(path);
}

/* DynamoRIO splits its options at quotes and semicolons. */
static void check_plain(const char *path)
{
    if (strpbrk(path, "\"'`;\n") != NULL)
        fail(FF_EXIT_USAGE, "a path holds a quote or a semicolon, which DynamoRIO cannot take.",
             path, "use a path without.", "nothing was started.");
}

/* All that can be read from a descriptor, which is closed then, with a NUL behind it. */
static char *read_all(int descriptor, size_t *size)
{
    char *text = NULL;
    ssize_t got;
    *size = 0;
    do {
        text = realloc(text, *size + (64u << 10) + 1);
        if (text == NULL)
            abort();
        got = read(descriptor, text + *size, 64u << 10);
        *size += got > 0 ? (size_t)got : 0;
    } while (got > 0);
    if (got < 0)
        fail(FF_EXIT_USAGE, "the program's environment cannot be read.", strerror(errno),
             "give --environment a descriptor that is open.", "nothing was started.");
    close(descriptor);
    text[*size] = '\0';
    return text;
}

/* From here on the environment is the target's. */
static void take_environment(int descriptor)
{
    size_t size, count = 0;
    char *text = read_all(descriptor, &size);
    for (size_t i = 0; i < size; i++)
        count += text[i] == '\0';
    char **entries = calloc(count + 1, sizeof *entries);
    if (entries == NULL)
        abort();
    char *at = text;
    for (size_t i = 0; i < count; i++, at += strlen(at) + 1)
        entries[i] = at;
    environ = entries;
}

static char *make_options(const struct options *options, const char *directory, const char *extra)
{
    char *text, *client;
    if (asprintf(&client, "--pool '%s'%s%s%s%s", options->pool,
                 options->follow_children ? " --follow-children" : "",
                 options->values_in != NULL ? " --values-in '" : "",
                 options->values_in != NULL ? options->values_in : "",
                 options->values_in != NULL ? "'" : "") < 0)
        abort();
    /* A block is straight-line code of at most 255 instructions, at any level. DynamoRIO's traces
     * do not pay: the writes of every block stay in them, and hot code is built twice (measured:
     * start-up 0.6 times, the rest 0.8 to 1.0 times without). What the program closes is closed: a
     * copy for DynamoRIO's own messages would keep a pipe open, and its reader waiting. */
    /* Blocks of code that the program rewrites are no safe targets of indirect branches: now and
     * then a thread goes on in one that is gone. Without, each such branch returns to DynamoRIO. */
    const char *indirect = options->generates_code ? "-no_bb_ibl_targets" : "";
    if (asprintf(
            &text,
            "-code_api -stack_size 64K -signal_stack_size 64K -max_elide_jmp 0 -max_elide_call 0 "
            "-max_bb_instrs 254 -disable_traces -no_dup_stdin_on_close -no_dup_stdout_on_close "
            "-no_dup_stderr_on_close %s %s %s -client_lib \"%s/libflagfinder.so;0;%s\"",
            options->follow_children ? "-follow_children" : FF_NO_CHILDREN, indirect,
            extra != NULL ? extra : "", directory, client) < 0)
        abort();
    free(client);
    return text;
}

static char **parse(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        const char **value = strcmp(argv[i], "--pool") == 0          ? &options->pool
                             : strcmp(argv[i], "--level") == 0       ? &options->level
                             : strcmp(argv[i], "--dr") == 0          ? &options->dynamorio
                             : strcmp(argv[i], "--values-in") == 0   ? &options->values_in
                             : strcmp(argv[i], "--environment") == 0 ? &options->environment
                                                                     : NULL;
        if (strcmp(argv[i], "--") == 0)
            return argv + i + 1;
        if (value != NULL && i + 1 < argc)
            *value = argv[++i];
        else if (strcmp(argv[i], "--follow-children") == 0)
            options->follow_children = true;
        else if (strcmp(argv[i], "--generates-code") == 0)
            options->generates_code = true;
        else
            usage(argv[i]);
    }
    return argv + argc;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--lost-patches") == 0)
        return puts(FF_LOST_PATCHES) < 0;
    struct options options = {0};
    char **arguments = parse(argc, argv, &options);
    if (options.pool == NULL || *arguments == NULL)
        usage(options.pool == NULL ? "no --pool" : "no program after --");
    if (options.level != NULL && strcmp(options.level, "flow") != 0 &&
        strcmp(options.level, "values") != 0)
        usage(options.level);
    char *directory = own_directory(), *program, *library;
    check_plain(options.pool);
    check_plain(directory);
    if (options.values_in != NULL)
        check_plain(options.values_in);
    const char *extra = getenv("FF_DYNAMORIO_OPTIONS");
    if (options.environment != NULL)
        take_environment(atoi(options.environment));
    arguments = resolve(arguments, &program);
    if (asprintf(&library, "%s/libdynamorio.so",
                 options.dynamorio != NULL ? options.dynamorio : directory) < 0)
        abort();
    setenv("DYNAMORIO_OPTIONS", make_options(&options, directory, extra), 1);
    setenv("DYNAMORIO_RUNUNDER", "3", 1);
    setenv("DYNAMORIO_EXE_PATH", program, 1);
    /* Configuration files in $HOME/.dynamorio must not override this: there are none here. */
    setenv("DYNAMORIO_CONFIGDIR", directory, 1);
    execv(library, arguments);
    fail(FF_EXIT_CANNOT_RUN, "DynamoRIO's library could not be started.", strerror(errno), library,
         "nothing was started.");
}
