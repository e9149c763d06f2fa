/* SPDX-License-Identifier: MIT */
// A GLib main loop watches a pipe's read end and never takes the source out when the writer is
// gone.
#include <glib-unix.h>
#include <stdio.h>
#include <unistd.h>
static GMainLoop *loop;
static gboolean readable(gint fd, GIOCondition condition, gpointer data) {
  char byte;
  if (read(fd, &byte, 1) == 1) {
    if (byte == 'q') g_main_loop_quit(loop);
    ++*(long *)data;
  }
  (void)condition;
  return G_SOURCE_CONTINUE;
}
static gboolean tick(gpointer data) { ++*(long *)data; return G_SOURCE_CONTINUE; }
int main(void) {
  long bytes = 0, ticks = 0;
  loop = g_main_loop_new(NULL, FALSE);
  g_unix_fd_add(0, G_IO_IN | G_IO_HUP, readable, &bytes);
  g_timeout_add(100, tick, &ticks);
  g_main_loop_run(loop);
  printf("%ld bytes\n", bytes);
}
