// Ways in which programs wait, by name, each for something that never comes. Prints what it waits for, then waits.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <queue>
#include <vector>

static void announce(const void *word, size_t size) { fprintf(stderr, "FLAG address=%p size=%zu\n", word, size); }

static void nap() { usleep(500); }

// The library's checks (is there a mutex, is the index inside) end the program, not the wait.
struct Server {
  std::mutex mutex;
  std::vector<int> states = std::vector<int>(3);
  std::queue<int> requests;
};
static Server *server;

static int checked_state(size_t worker) {
  std::lock_guard guard(server->mutex);
  if (worker >= server->states.size()) abort();
  return server->states[worker];
}

static void checked_index() {
  announce(&server->states[1], sizeof(int));
  while (checked_state(1) == 0) nap();
}

static void queue_ends() {
  // The word that push() moves on: three pointers behind the first pair of libstdc++'s deque.
  announce(reinterpret_cast<char *>(&server->requests) + 48, sizeof(void *));
  for (;;) {
    std::unique_lock guard(server->mutex);
    if (!server->requests.empty()) {
      server->requests.pop();
      continue;
    }
    guard.unlock();
    nap();
  }
}

// Readers on each processor; one of them has not left.
static struct alignas(64) Count {
  volatile long readers;
} counts[4];

__attribute__((noinline)) static long readers() {
  return counts[0].readers + counts[1].readers + counts[2].readers + counts[3].readers;
}

static void sum_of_counts() {
  counts[2].readers = 1;
  announce(const_cast<long *>(&counts[2].readers), sizeof(long));
  while (readers() != 0) nap();
}

static void library_spinlock() {
  static pthread_spinlock_t lock;
  pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
  pthread_spin_lock(&lock);
  announce(const_cast<int *>(&lock), sizeof lock);
  pthread_spin_lock(&lock);
}

static bool file_says(const char *path, const char *what) {
  char line[64] = "";
  FILE *file = fopen(path, "r");
  if (file == nullptr) return false;
  const bool is_there = fgets(line, sizeof line, file) != nullptr;
  fclose(file);
  return is_there && strcmp(line, what) == 0;
}

static void status_file(const char *path) {
  FILE *file = fopen(path, "w");
  if (file == nullptr) exit(1);
  fputs("starting\n", file);
  fclose(file);
  fprintf(stderr, "FLAG syscall read\n");
  while (!file_says(path, "ready\n")) nap();
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  server = new Server;
  const char *name = arguments[1];
  if (!strcmp(name, "checked_index")) checked_index();
  if (!strcmp(name, "queue_ends")) queue_ends();
  if (!strcmp(name, "sum_of_counts")) sum_of_counts();
  if (!strcmp(name, "library_spinlock")) library_spinlock();
  if (!strcmp(name, "status_file")) status_file(arguments[2]);
  return 0;
}
