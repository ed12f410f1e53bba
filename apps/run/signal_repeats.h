// A signal that comes once more at once is the same one: Ctrl-C, timeout(1) and managers of
// services send it to a launcher and to its ranks, and the launcher passes its own on to them.
#pragma once

#include <chrono>

#include "gradwire/tensor.h"

namespace gradwire {

// From one thread.
class SignalRepeats {
 public:
  static constexpr double kSeconds = 0.3;

  // Of a signal that comes now: whether the same one began at most kSeconds ago.
  bool is_repeat(int signal) {
    if (signal == last_ && std::chrono::steady_clock::now() < until_) return true;
    last_ = signal;
    until_ = deadline_in(kSeconds);
    return false;
  }

 private:
  int last_ = 0;
  Deadline until_{};
};

}  // namespace gradwire
