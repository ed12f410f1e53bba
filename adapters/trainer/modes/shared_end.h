// Where workers that go their own ways end together: at the run's end or, once a rank was asked to
// end, after the first step that none of them has passed.
#pragma once

#include <cstdint>
#include <mutex>

#include "adapters/trainer/interruption.h"

namespace gradwire {

// Thread-safe.
class SharedEnd {
 public:
  // Of steps below `end`, of which workers may have begun those below `begun`. Workers that do not
  // ask before each step of theirs but once for some of them need `slack` more until all of them
  // have heard. `interruption` is borrowed; null: the end stays.
  SharedEnd(Interruption* interruption, std::int64_t begun, std::int64_t end, std::int64_t slack)
      : interruption_(interruption), begun_(begun), end_(end), slack_(slack) {}

  // A rank was asked to end, by this signal; 0: by none.
  void ask(int signal);
  // A worker that has done its steps below others is about to do those below `until`. Returns the
  // end, which never lies below what a worker was let through to.
  std::int64_t grant(std::int64_t until);
  std::int64_t end();

 private:
  void decide();

  Interruption* interruption_;
  std::mutex mutex_;
  std::int64_t begun_;
  std::int64_t end_;
  std::int64_t slack_;
  int signal_ = 0;
  bool decided_ = false;
};

}  // namespace gradwire
