// An early end of a training, which one rank is asked for and all make together: each gives a word
// to sums that they make anyway, all read the same answer, save after the step that they are at,
// and end.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// Who may ask this process to end. Thread-safe.
class EndRequest {
 public:
  virtual ~EndRequest() = default;
  // The signal that asked for it, 0: none so far.
  virtual int signal() const = 0;
  // From now on ranks listen to each other: what asks waits until they have met.
  virtual void listen() = 0;
  // All ranks have heard of it and are about to save.
  virtual void met() = 0;
};

// Of one rank. asked(), agreed() and saved() from any thread, the rest from the one that trains;
// where several threads make one rank, hear() from any of them.
class Interruption {
 public:
  // `request` is borrowed for its life.
  explicit Interruption(EndRequest& request) : request_(request) {}

  void listen() { request_.listen(); }
  // The signal that this rank was asked by, 0: none.
  int asked() const { return request_.signal(); }
  // What this rank adds to a sum over all ranks, and what it reads from it.
  double word() const;
  void hear(double sum);
  // The same from a message of another rank, and of what this one decided for all.
  void hear(int signal);
  // The signal that all ranks end by, at the end of this step or of the next after which they can;
  // 0: none. The same on all ranks at the end of a step.
  int agreed() const { return agreed_.load(); }

  // Before and after the state of all ranks is saved, after `done` steps; the latter is what the
  // run ends with, kCancelled.
  void meet() { request_.met(); }
  Status end(std::int64_t done);
  // After how many steps; -1: not yet.
  std::int64_t saved() const { return saved_.load(); }

 private:
  EndRequest& request_;
  std::atomic<int> agreed_ = 0;
  std::atomic<std::int64_t> saved_ = -1;
};

// Values on their way into a sum over all ranks, with this rank's word behind them. Without an
// interruption, which all ranks have or none, they are the values alone.
class WithWord {
 public:
  // Both are borrowed for its life.
  WithWord(std::span<double> values, Interruption* interruption);
  std::span<double> all() { return interruption_ == nullptr ? values_ : std::span(all_); }
  // all() has become the sum over all ranks: so have the values.
  void arrived();

 private:
  std::span<double> values_;
  Interruption* interruption_;
  std::vector<double> all_;
};

}  // namespace gradwire
