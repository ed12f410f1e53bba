#include "base/forks.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace gradwire {

// pthread_atfork() passes nothing to its handlers, so what they need is the process's.
std::atomic<int> forks::count{0};

namespace {

struct Descriptors {
  std::mutex mutex;
  std::vector<int> open;
};

// Never destroyed: descriptors may be closed after the program's end has begun.
Descriptors& descriptors() {
  static auto* const all = new Descriptors;
  return *all;
}

void before() { descriptors().mutex.lock(); }
void after_in_parent() { descriptors().mutex.unlock(); }

void after_in_child() {
  Descriptors& all = descriptors();
  for (const int fd : all.open) ::close(fd);
  all.open.clear();
  forks::count.fetch_add(1, std::memory_order_relaxed);
  all.mutex.unlock();
}

}  // namespace

void forks::watch() {
  static const int registered = pthread_atfork(before, after_in_parent, after_in_child);
  (void)registered;
}

void close_in_children(int fd) {
  forks::watch();
  const std::lock_guard lock(descriptors().mutex);
  descriptors().open.push_back(fd);
}

void leave_to_children(int fd) {
  const std::lock_guard lock(descriptors().mutex);
  std::vector<int>& open = descriptors().open;
  const auto found = std::ranges::find(open, fd);
  if (found == open.end()) return;
  *found = open.back();
  open.pop_back();
}

}  // namespace gradwire
