// SPDX-License-Identifier: MIT
// Ways in which programs wait, by name, each for something that never comes. Prints what it waits
// for, then waits.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <queue>
#include <stdexcept>
#include <string>
#include <vector>

static void announce(const void *word, size_t size) {
  fprintf(stderr, "FLAG address=%p size=%zu\n", word, size);
}

static void nap() { usleep(500); }

// Checks of the library (whether there is a mutex, whether the index is inside) end the program,
// not the wait.
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

// The ring's kind decides how it is read. Readers of another kind would look at the same ends, and
// then compete.
static struct {
  alignas(64) volatile unsigned head;
  volatile int kind;
  alignas(64) volatile unsigned tail;
} ring;

static inline bool take() {
  unsigned head = ring.head;
  if (ring.kind != 0) {
    if (ring.tail == head) return false;
    ring.head = head + 1;
    return true;
  }
  do {
    if (ring.tail == head) return false;
  } while (!__atomic_compare_exchange_n(&ring.head, &head, head + 1, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST));
  return true;
}

static void ring_of_a_kind() {
  ring.kind = 1;
  announce(const_cast<unsigned *>(&ring.tail), sizeof ring.tail);
  do __builtin_ia32_pause();
  while (!take());
}

// A library that checks what it is called with, and a maximum that needs no branch.
static struct Pool {
  int running, length, waiting;
} pool;

__attribute__((noipa)) static void complain(const char *function, const char *what) {
  fprintf(stderr, "%s: %s does not hold\n", function, what);
}

__attribute__((noipa)) static int unprocessed(volatile Pool *of) {
  if (of->running == 0) {
    complain("unprocessed", "running");
    int nothing;
    asm volatile("xor %0, %0" : "=r"(nothing));  // or the compiler returns what it tested
    return nothing;
  }
  const int left = of->length - of->waiting;
  return left > 0 ? left : 0;
}

static void precondition() {
  pool = {1, 3, 0};
  announce(&pool.length, sizeof(int));
  while (unprocessed(&pool) > 0) sched_yield();
}

// Their number bounds a count in each round. Before that it is tested that it is at least two.
static volatile int workers;

static void bounded_scan() {
  workers = 3;
  counts[1].readers = 20;
  announce(const_cast<long *>(&counts[1].readers), sizeof(long));
  for (;;) {
    long left = 0;
    for (int worker = 1; worker < workers; worker++) left += counts[worker].readers;
    if (left == 0) break;
  }
}

// Work that is due now and then, or once no other thread is there, is done on the way.
static struct Collector {
  unsigned uses;
  long handles;
} *collector;
static struct Ends {
  volatile long front, back;
} ends;

__attribute__((noinline)) static void clean() { fputs("clean\n", stderr); }

__attribute__((noinline)) static int steal() {
  if (++collector->uses % 100000000 == 0) clean();
  const int found = ends.back - ends.front <= 0 ? 0 : 1;
  if (collector->handles == 0) clean();
  return found;
}

static void in_passing() {
  collector = new Collector{0, 1};
  announce(const_cast<long *>(&ends.back), sizeof(long));
  while (steal() == 0) sched_yield();
}

// How many bytes the other end has not read yet, as the kernel tells.
static void unsent() {
  int ends[2], left = 0;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || write(ends[0], "hello", 5) != 5) exit(1);
  fprintf(stderr, "FLAG syscall ioctl\n");
  do {
    nap();
    ioctl(ends[0], TIOCOUTQ, &left);
  } while (left > 0);
}

// A foreign process, which is looked for once a second by a program with the order not to give up.
static void seldom() {
  static volatile int patient = 1;
  const pid_t child = fork();
  while (child == 0) pause();
  fprintf(stderr, "FLAG syscall kill\n");
  while (patient && kill(child, 0) == 0) sleep(1);
}

union Status {
  uint32_t all;
  struct {
    uint16_t state, owner;
  } part;
};
struct Timer {
  volatile uint32_t options, status;
};

// Fails as long as another thread runs the timer; with another error if there were no such timer.
__attribute__((noinline)) static int try_stop(Timer *timer) {
  if (!(timer->options & 1)) return -22;
  volatile Status before;
  before.all = timer->status;
  if (before.part.state == 2 && before.part.owner != 0) return -1;
  timer->status = 0;
  return 0;
}

static void other_error() {
  Timer *timer = new Timer{1, 0x10002};
  announce((const void *)&timer->status, sizeof timer->status);
  while (try_stop(timer) != 0) nap();
}

// The library's own part of a node (its head, its key) lies in front of the word.
static std::map<std::string, int> by_name;

__attribute__((noinline)) static bool is_named(const std::string &name) {
  return by_name.find(name)->second != 0;
}

static void map_value() {
  for (const char *name : {"alpha", "beta", "gamma", "delta"}) by_name[name] = 0;
  const std::string name = "gamma";
  announce(&by_name[name], sizeof(int));
  while (!is_named(name)) sched_yield();
}

// A reader's slot that is taken anew for each round and polled, as it was left, by its first owner.
struct Slot {
  long number, padding[6];
  volatile int state;
};

__attribute__((noinline)) static Slot *take_slot() {
  auto *slot = static_cast<Slot *>(malloc(sizeof(Slot)));
  slot->number = 1;
  return slot;
}

static void handed_out() {
  Slot *slot = take_slot();
  slot->state = 0;
  announce(const_cast<int *>(&slot->state), sizeof(int));
  do {
    free(slot);
    sched_yield();
    slot = take_slot();
  } while (slot->state == 0);
}

// An error ends the loop as well, by words that nobody is to write.
static struct Job {
  volatile int poisoned, aborted, done;
} job;

static void thrown() {
  announce(const_cast<int *>(&job.done), sizeof(int));
  do {
    if (job.poisoned) throw std::runtime_error("poisoned");
    if (job.aborted) abort();
  } while (!job.done);
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  server = new Server;
  const char *name = arguments[1];
  if (!strcmp(name, "checked_index")) checked_index();
  if (!strcmp(name, "queue_ends")) queue_ends();
  if (!strcmp(name, "sum_of_counts")) sum_of_counts();
  if (!strcmp(name, "library_spinlock")) library_spinlock();
  if (!strcmp(name, "ring_of_a_kind")) ring_of_a_kind();
  if (!strcmp(name, "precondition")) precondition();
  if (!strcmp(name, "bounded_scan")) bounded_scan();
  if (!strcmp(name, "in_passing")) in_passing();
  if (!strcmp(name, "unsent")) unsent();
  if (!strcmp(name, "seldom")) seldom();
  if (!strcmp(name, "other_error")) other_error();
  if (!strcmp(name, "map_value")) map_value();
  if (!strcmp(name, "handed_out")) handed_out();
  if (!strcmp(name, "thrown")) thrown();
  if (!strcmp(name, "status_file")) status_file(arguments[2]);
  return 0;
}
