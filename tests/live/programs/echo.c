/* SPDX-License-Identifier: MIT */
// An echo server on epoll; prints the port that it got. Data goes back with its first byte changed
// to a checksum.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static void serve(int connection) {
  char data[4096];
  ssize_t got = read(connection, data, sizeof data);
  if (got <= 0) {
    close(connection);
    return;
  }
  unsigned sum = 0;
  for (ssize_t i = 0; i < got; i++) sum = sum * 31 + (unsigned char)data[i];
  data[0] = (char)sum;
  if (write(connection, data, (size_t)got) != got) close(connection);
}

int main(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 64)) return 1;
  getsockname(listener, (struct sockaddr *)&address, &length);
  printf("port %d\n", ntohs(address.sin_port));
  fflush(stdout);
  int poll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
  epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
  for (;;) {
    struct epoll_event ready[64];
    int count = epoll_wait(poll, ready, 64, -1);
    for (int i = 0; i < count; i++) {
      if (ready[i].data.fd != listener) {
        serve(ready[i].data.fd);
        continue;
      }
      event.data.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
      if (event.data.fd >= 0) epoll_ctl(poll, EPOLL_CTL_ADD, event.data.fd, &event);
    }
  }
}
