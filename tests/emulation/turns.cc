#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/emulation/chance.h"
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
// Stacks end at different places of their pages and beyond. Else the ends of all of them, which are
// what is in use, would share a few lines of the processor's caches.
constexpr std::size_t kEnds = std::size_t{1} << 16;
constexpr std::size_t kBetweenEnds = 832;
constexpr unsigned kMostThreads = 1024;

// What every turn needs lies side by side.
struct alignas(64) Stack {
  void* turn[5];  // where it goes on, as __builtin_setjmp() leaves it
  bool begun = false;
  std::unique_ptr<std::byte[]> bytes;
  std::unique_ptr<ucontext_t> context = std::make_unique<ucontext_t>();  // where it begins
#if defined(__SANITIZE_ADDRESS__)
  void* shadow = nullptr;
  const void* bottom = nullptr;
  std::size_t size = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  void* fiber = nullptr;
#endif
};

// Those whose threads have given way, the first to go on first.
class Waiting {
 public:
  bool empty() const { return first_ == end_; }
  std::size_t size() const { return end_ - first_; }
  void push(Stack* stack) { stacks_[end_++ % kMostThreads] = stack; }
  Stack* pop() { return stacks_[first_++ % kMostThreads]; }

 private:
  std::array<Stack*, kMostThreads> stacks_{};
  std::size_t first_ = 0;
  std::size_t end_ = 0;
};

// Of one grid at a time: the stacks stay where they are from one to the next.
struct Threads {
  std::deque<Stack> stacks;
  std::vector<Stack*> free;  // of which no thread is on its way
  Waiting waiting;
  Stack host;
  Stack* running = nullptr;
  Stack* left = nullptr;  // that ran before
  unsigned begun = 0;
  unsigned count = 0;
  bool forward = false;
  std::size_t idle_turns = 0;  // since the last progress
  const std::function<void(unsigned)>* body = nullptr;
};
// Of the grid that this thread of the system runs.
constinit thread_local Threads* running_threads = nullptr;
[[gnu::noinline]] Threads& threads() { return *running_threads; }

// Those of no grid, kept to the end of the process. What was used last, whose stacks the
// processor's caches may still have, goes first.
struct Spare {
  std::mutex mutex;
  std::vector<std::unique_ptr<Threads>> all;
};
Spare& spare() {
  static auto* const kept = new Spare;
  return *kept;
}

// Has the thread of the system run a grid while it lives.
class UseThreads {
 public:
  UseThreads() : before_(running_threads) {
    const std::lock_guard lock(spare().mutex);
    if (!spare().all.empty()) {
      used_ = std::move(spare().all.back());
      spare().all.pop_back();
    } else {
      used_ = std::make_unique<Threads>();
    }
    running_threads = used_.get();
  }
  ~UseThreads() {
    running_threads = before_;
    const std::lock_guard lock(spare().mutex);
    spare().all.push_back(std::move(used_));
  }
  UseThreads(const UseThreads&) = delete;
  UseThreads& operator=(const UseThreads&) = delete;

 private:
  Threads* before_;
  std::unique_ptr<Threads> used_;
};

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
  Stack& left = *threads().left;
  __sanitizer_finish_switch_fiber(here.shadow, &left.bottom, &left.size);
#endif
}

// In a function of its own: the compiler's jumps are not for the function that they lead to.
[[noreturn, gnu::noinline]] void go_on(Stack& stack) {
  if (stack.begun) __builtin_longjmp(stack.turn, 1);
  stack.begun = true;
  ::setcontext(stack.context.get());
  std::abort();
}

// A context begins a stack; later turns are the compiler's jumps, which ask neither the kernel for
// signal masks nor the C library for handlers to run. Sanitizers, which follow contexts, do not
// follow such jumps.
[[gnu::noinline]] void switch_to(Stack& to) {
  Threads& all = threads();
  Stack& from = *all.running;
  all.left = &from;
  all.running = &to;
  leave(from, to);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  ::swapcontext(from.context.get(), to.context.get());
#else
  if (__builtin_setjmp(from.turn) == 0) go_on(to);
#endif
  arrive(from);
}

Stack& next_waiting(Threads& all) { return *all.waiting.pop(); }

// A stack is one thread of a block after the other: those that never give way need no other one,
// and cost no switch. To begin a stack anew would ask the kernel, too.
void thread_body() {
  Threads& all = threads();
  Stack& own = *all.running;
  arrive(own);
  while (true) {
    while (all.begun < all.count) {
      const unsigned turn = all.begun++;
      all.idle_turns = 0;
      (*all.body)(all.forward ? turn : all.count - 1 - turn);
    }
    all.idle_turns = 0;
    all.free.push_back(&own);
    switch_to(all.waiting.empty() ? all.host : next_waiting(all));
  }
}

// In a function of its own: getcontext() may return a second time as far as the compiler knows.
[[gnu::noinline]] void prepare(Stack& stack, std::size_t number) {
  const std::size_t size = kStackBytes + number * kBetweenEnds % kEnds;
  stack.bytes = std::make_unique_for_overwrite<std::byte[]>(size);
  ::getcontext(stack.context.get());
  stack.context->uc_stack.ss_sp = stack.bytes.get();
  stack.context->uc_stack.ss_size = size;
  stack.context->uc_link = nullptr;
  ::makecontext(stack.context.get(), thread_body, 0);
#if defined(__SANITIZE_ADDRESS__)
  stack.bottom = stack.bytes.get();
  stack.size = size;
#endif
#if defined(__SANITIZE_THREAD__)
  stack.fiber = __tsan_create_fiber(0);
#endif
}

Stack& free_stack(Threads& all) {
  if (all.free.empty()) {
    all.free.push_back(&all.stacks.emplace_back());
    prepare(*all.free.back(), all.stacks.size());
  }
  Stack& last = *all.free.back();
  all.free.pop_back();
  return last;
}

}  // namespace

void Turns::run(unsigned count, bool forward, const std::function<void(unsigned)>& thread) {
  Threads& all = threads();
#if defined(__SANITIZE_THREAD__)
  all.host.fiber = __tsan_get_current_fiber();
#endif
  all.body = &thread;
  all.begun = 0;
  all.count = count;
  all.forward = forward;
  all.host.begun = true;
  all.running = &all.host;
  switch_to(free_stack(all));
}

void Turns::note_progress() { threads().idle_turns = 0; }

// Where all have had a turn, and no one has got on, no one will.
void Turns::give_way() {
  Threads& all = threads();
  const bool fresh = all.begun < all.count;
  if (!fresh && ++all.idle_turns > all.waiting.size() + 1) {
    std::fputs("CUDA emulator: threads wait for others that have ended or wait, too\n", stderr);
    print_seed();
    std::abort();
  }
  if (!fresh && all.waiting.empty()) return;
  all.waiting.push(all.running);
  switch_to(fresh ? free_stack(all) : next_waiting(all));
}

void run_grid(const BlockState& grid, void* shared, std::size_t shared_bytes,
              const std::function<void(BlockState& block, unsigned thread)>& thread) {
  static std::atomic<std::uint64_t> grids = 0;
  Chance chance(~grids++);
  std::vector<std::uint32_t> order(static_cast<std::size_t>(grid.blocks));
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[chance.below(left)]);
  }
  const UseThreads here;
  BlockState state = grid;
  state.warps.resize(grid.threads / kLanes);
  const std::function<void(unsigned)> body = [&](unsigned t) { thread(state, t); };
  for (const std::uint32_t block : order) {
    state.block = block;
    std::memset(shared, 0xa5, shared_bytes);  // nothing is there before
    Turns::run(grid.threads, chance.one_in(2), body);
  }
}

}  // namespace gradwire::emulation
