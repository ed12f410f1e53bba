// Who has been heard of when. Arithmetic on times alone: no clock, no network.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "gradwire/tensor.h"

namespace gradwire::comm {

// How long a peer may be silent, in seconds, when operations have `deadline_seconds`: a silent rank
// is to be named well before the operation that waits for it times out, and never before its second
// heartbeat is due.
inline double liveness_for(double deadline_seconds, double heartbeat_seconds = 1,
                           double most_seconds = 5) {
  return std::clamp(deadline_seconds / 2, 2 * heartbeat_seconds, most_seconds);
}

inline Deadline::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double>(seconds));
}

class Liveness {
 public:
  using Duration = Deadline::duration;

  // All ranks but `rank` are watched from `now` on, until watch() says otherwise. A rank is silent
  // after `patience`.
  Liveness(int size, int rank, Duration interval, Duration patience, Deadline now);

  // To be called often. Time in which this was not called for more than one interval does not
  // count against the others: it was this process that stood still, and what they sent is still
  // unread.
  void tick(Deadline now);
  // True once per interval: heartbeats are to be sent now.
  bool beat_due(Deadline now);
  Deadline next_beat() const { return next_beat_; }

  // These are watched from now on, and no others; not those that are gone.
  void watch(std::span<const int> ranks);
  void heard(int rank);   // something came from it since the last tick
  void forget(int rank);  // it is gone: no longer watched
  bool watched(int rank) const { return last_heard_[index(rank)].has_value(); }

  // The watched rank that has been silent longest, if longer than patience.
  std::optional<int> silent() const;
  Duration silence_of(int rank) const;

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  Duration interval_;
  Duration patience_;
  Deadline now_;
  Deadline next_beat_;
  std::vector<std::optional<Deadline>> last_heard_;
  std::vector<int> watched_;        // the only ones that may have been heard
  mutable Deadline nobody_before_;  // nobody is silent up to then
};

}  // namespace gradwire::comm
