/* SPDX-License-Identifier: MIT */
/* Lines of a command are counted: one thread reads them, others count. `tail COMMAND ..`. */
#include <glib.h>
#include <stdio.h>

static GAsyncQueue *lines;
static GAsyncQueue *counts;

static gpointer read_lines(gpointer data)
{
    char *line = NULL;
    gsize length;
    GIOChannel *from = data;
    while (g_io_channel_read_line(from, &line, &length, NULL, NULL) == G_IO_STATUS_NORMAL)
        g_async_queue_push(lines, line);
    g_async_queue_push(lines, g_strdup(""));
    return NULL;
}

static gpointer count_words(gpointer data)
{
    int words = 0;
    (void)data;
    for (;;) {
        char *line = g_async_queue_pop(lines);
        if (!*line)
            break;
        char **parts = g_strsplit(line, " ", -1);
        words += (int)g_strv_length(parts);
        g_strfreev(parts);
        g_free(line);
    }
    g_async_queue_push(counts, GINT_TO_POINTER(words + 1));
    return NULL;
}

int main(int count, char **arguments)
{
    int output;
    GError *error = NULL;
    (void)count;
    if (!g_spawn_async_with_pipes(NULL, arguments + 1, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL,
                                  NULL, &output, NULL, &error)) {
        fprintf(stderr, "%s\n", error->message);
        return 1;
    }
    lines = g_async_queue_new();
    counts = g_async_queue_new();
    GIOChannel *from = g_io_channel_unix_new(output);
    GThread *reader = g_thread_new("reader", read_lines, from);
    GThread *counter = g_thread_new("counter", count_words, NULL);
    puts("begins");
    fflush(stdout);
    int words = GPOINTER_TO_INT(g_async_queue_pop(counts)) - 1;
    printf("%d words\n", words);
    fflush(stdout);
    g_thread_join(reader);
    g_thread_join(counter);
    g_usleep(1000000000);
    return 0;
}
