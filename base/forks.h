// What objects that own threads, sockets or memory shared with others must know of fork(): in the
// child they are copies, and what they own is still the parent's.
#pragma once

#include <atomic>
#include <utility>

namespace gradwire {

namespace forks {
// How many forks lie between the first ForkMark's process and this one.
extern std::atomic<int> count;
// Counts from now on. Any thread, any number of times.
void watch();
}  // namespace forks

// Remembers the process that made it. Calls to fork() of the C library count; those of a system
// call by itself do not.
class ForkMark {
 public:
  ForkMark() {
    forks::watch();
    made_at_ = forks::count.load(std::memory_order_relaxed);
  }
  // Whether this process is a child that was forked since.
  bool in_child() const { return made_at_ != forks::count.load(std::memory_order_relaxed); }

 private:
  int made_at_;
};

// A descriptor that children close when they are forked: one that they kept would hide from its
// other end that this process has ended. Any thread.
void close_in_children(int fd);
// Before it is closed here, or given away.
void leave_to_children(int fd);

// In a child: keeps what its owner would destroy, for good.
template <typename Owned>
void abandon(Owned& owned) {
  new Owned(std::move(owned));  // NOLINT(cppcoreguidelines-owning-memory)
}

}  // namespace gradwire
