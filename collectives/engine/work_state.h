// What a Work and the one who drives its operation share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/forks.h"
#include "collectives/engine/quick_work.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

class ProgressEngine;

// Of one operation or of several that are done together. The status is that of the first that
// failed; it is written before `done` becomes true, and only read after that.
class WorkState {
 public:
  // `operations` of that engine. The engine may go first: it ends its operations before.
  explicit WorkState(std::weak_ptr<ProgressEngine> engine, std::size_t operations = 1)
      : open_(operations),
        done_(operations == 0),
        told_(operations == 0 ? Told::kEnded : Told::kNobody),
        engine_(std::move(engine)) {}

  bool done() const { return done_.load(std::memory_order_acquire); }
  // Requires done().
  const Status& status() const { return status_; }
  std::shared_ptr<ProgressEngine> engine() const { return engine_.lock(); }
  // A child of the process that made it, in which it never ends.
  bool in_child() const { return mark_.in_child(); }
  // Until the end, or `until`; true at the end.
  bool wait(const std::optional<Deadline>& until) const;

  // One operation has ended. Once for each; any thread.
  void finish(Status status) {
    if (!status.ok() && !failed_.exchange(true)) status_ = std::move(status);
    if (open_.fetch_sub(1, std::memory_order_acq_rel) == 1) finish_alone();
  }
  // The same for one alone, that has ended well.
  void finish_alone() {
    done_.store(true, std::memory_order_release);
    if (told_.exchange(Told::kEnded, std::memory_order_acq_rel) == Told::kAsked) tell();
  }

  // Calls `then` when done() has become true: on the thread that found the end, or at once if it is
  // true already. Once for a work; before, or while, others wait for it.
  void on_done(std::function<void()> then) {
    then_ = std::move(then);
    if (told_.exchange(Told::kAsked, std::memory_order_acq_rel) == Told::kEnded) tell();
  }

  // Calls `then` when it is known that the operation fails, which is before it ends: for what the
  // end of others may wait for. Never, of one that ends well. Once for a work; any thread.
  void on_failing(std::function<void()> then) {
    if_failing_ = std::move(then);
    if (failing_.exchange(Told::kAsked, std::memory_order_acq_rel) == Told::kEnded) tell_failing();
  }
  // It is known now.
  void failing() {
    if (failing_.exchange(Told::kEnded, std::memory_order_acq_rel) == Told::kAsked) tell_failing();
  }

  // Of operations that may end without the engine. Given before the Work is handed out.
  void set_quick(std::weak_ptr<QuickWork> quick) { quick_ = std::move(quick); }
  // Whether it is done, once what can be done now is done.
  bool look() const {
    if (done() || in_child()) return done();
    if (const auto quick = quick_.lock()) quick->look();
    if (passed_ && !done() && passed_()) look_at_device();
    return done();
  }
  // For one operation more, of one owner, after another that ended well and had no on_done().
  // False: this one cannot be used again.
  bool begin_again() {
    if (!done() || failed_.load(std::memory_order_relaxed) ||
        told_.load(std::memory_order_relaxed) != Told::kEnded || then_) {
      return false;
    }
    open_.store(1, std::memory_order_relaxed);
    source_.store(-1, std::memory_order_relaxed);
    told_.store(Told::kNobody, std::memory_order_relaxed);
    done_.store(false, std::memory_order_relaxed);
    return true;
  }

  // Of an operation that a device runs: what makes a stream wait for it, so that no host has to.
  // Given before the Work is handed out.
  using Hold = std::function<Status(const Stream&)>;
  void set_hold(Hold hold) { hold_ = std::move(hold); }
  // Of the same: whether the device has come past it, of which nobody tells the engine.
  void set_passed(std::function<bool()> passed) { passed_ = std::move(passed); }
  // May be empty.
  const Hold& hold() const { return hold_; }

  // The group rank that a recv from any source has come from; -1 before, and of all else. Written
  // before done() becomes true.
  int source() const { return source_.load(std::memory_order_relaxed); }
  void set_source(int rank) { source_.store(rank, std::memory_order_relaxed); }

 private:
  enum class Told : std::uint8_t { kNobody, kAsked, kEnded };
  // What `then` holds goes with it.
  void tell() {
    const std::function<void()> then = std::move(then_);
    then();
  }

  // Has the engine see that it is done, which it does by itself only a little later.
  void look_at_device() const;
  void tell_failing() {
    const std::function<void()> then = std::move(if_failing_);
    then();
  }

  // What every operation touches comes first, in one cache line.
  std::atomic<std::size_t> open_;
  std::atomic<bool> done_;
  std::atomic<bool> failed_{false};
  std::atomic<Told> told_;
  std::atomic<int> source_{-1};
  const ForkMark mark_;
  Status status_;
  std::weak_ptr<ProgressEngine> engine_;
  std::weak_ptr<QuickWork> quick_;
  std::function<void()> then_;
  std::atomic<Told> failing_{Told::kNobody};
  std::function<void()> if_failing_;
  Hold hold_;
  std::function<bool()> passed_;
};

}  // namespace gradwire
