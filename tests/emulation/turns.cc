#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>

#include <ucontext.h>

#include "tests/emulation/emulated_launch.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace gradwire::emulation {
namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 17;

struct Stack {
  ucontext_t context;  // where it begins
  void* turn[5];       // where it goes on, as __builtin_setjmp() leaves it
  bool begun = false;
  std::unique_ptr<std::byte[]> bytes;
  bool done = true;
#if defined(__SANITIZE_ADDRESS__)
  void* shadow = nullptr;
  const void* bottom = nullptr;
  std::size_t size = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  void* fiber = nullptr;
#endif
};

// One device, and so one set of stacks, kept from block to block where they are.
struct Threads {
  std::deque<Stack> stacks;
  Stack host;
  unsigned running = 0;
  bool progress = false;  // since the first thread's last turn
  bool forward = false;
  const std::function<void(unsigned)>* body = nullptr;
};
Threads& threads() {
  static Threads all;
  return all;
}
// Tells sanitizers which stack is in use.
void leave([[maybe_unused]] Stack& from, [[maybe_unused]] Stack& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.shadow, to.bottom, to.size);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to.fiber, 0);
#endif
}
void arrive([[maybe_unused]] Stack& here) {
#if defined(__SANITIZE_ADDRESS__)
  Stack& host = threads().host;
  const bool from_host = &here != &host;  // threads hand over to the host alone
  __sanitizer_finish_switch_fiber(here.shadow, from_host ? &host.bottom : nullptr,
                                  from_host ? &host.size : nullptr);
#endif
}

// In a function of its own: the compiler's jumps are not for the function that they lead to.
[[noreturn, gnu::noinline]] void go_on(Stack& stack) {
  if (stack.begun) __builtin_longjmp(stack.turn, 1);
  stack.begun = true;
  ::setcontext(&stack.context);
  std::abort();
}

// A context begins a stack; later turns are the compiler's jumps, which ask neither the kernel for
// signal masks nor the C library for handlers to run. Sanitizers, which follow contexts, do not
// follow such jumps.
[[gnu::noinline]] void switch_to(Stack& from, Stack& to) {
  leave(from, to);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  ::swapcontext(&from.context, &to.context);
#else
  if (__builtin_setjmp(from.turn) == 0) go_on(to);
#endif
  arrive(from);
}

// A stack is one thread of a block after the other. To begin one anew would ask the kernel, too.
void thread_body() {
  Threads& all = threads();
  Stack& own = all.stacks[all.running];
  arrive(own);
  while (true) {
    (*all.body)(all.running);
    own.done = true;
    all.progress = true;
    switch_to(own, all.host);
  }
}

void prepare(Stack& stack) {
  stack.done = false;
  if (stack.bytes != nullptr) return;
  stack.bytes = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  ::getcontext(&stack.context);
  stack.context.uc_stack.ss_sp = stack.bytes.get();
  stack.context.uc_stack.ss_size = kStackBytes;
  stack.context.uc_link = nullptr;
  ::makecontext(&stack.context, thread_body, 0);
#if defined(__SANITIZE_ADDRESS__)
  stack.bottom = stack.bytes.get();
  stack.size = kStackBytes;
#endif
#if defined(__SANITIZE_THREAD__)
  stack.fiber = __tsan_create_fiber(0);
#endif
}

}  // namespace

void Turns::run(unsigned count, const std::function<void(unsigned)>& thread) {
  static std::mutex one_block_at_a_time;
  const std::lock_guard lock(one_block_at_a_time);
  Threads& all = threads();
  while (all.stacks.size() < count) all.stacks.emplace_back();
#if defined(__SANITIZE_THREAD__)
  all.host.fiber = __tsan_get_current_fiber();
#endif
  all.body = &thread;
  all.forward = !all.forward;
  all.host.begun = true;
  for (unsigned t = 0; t < count; ++t) prepare(all.stacks[t]);
  for (bool left = true; left;) {
    left = false;
    all.progress = false;
    for (unsigned turn = 0; turn < count; ++turn) {
      all.running = all.forward ? turn : count - 1 - turn;
      Stack& next = all.stacks[all.running];
      if (next.done) continue;
      switch_to(all.host, next);
      left |= !next.done;
    }
    if (left && !all.progress) {
      std::fputs("emulated device: threads wait for others that have ended or wait, too\n", stderr);
      std::abort();
    }
  }
}

void Turns::note_progress() { threads().progress = true; }

void Turns::give_way() {
  Threads& all = threads();
  switch_to(all.stacks[all.running], all.host);
}

}  // namespace gradwire::emulation
