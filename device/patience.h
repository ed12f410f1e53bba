// How long the host waits for what a device was given.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// While it lives no wait of this thread for a device's work lasts longer than so many seconds, > 0:
// what waits says kTimedOut then, naming the device. Without one a thread waits kAmple. Of several
// the one made last counts.
class DevicePatience {
 public:
  static constexpr double kAmple = 600;
  explicit DevicePatience(double seconds) : before_(own()) { own() = seconds; }
  ~DevicePatience() { own() = before_; }
  DevicePatience(const DevicePatience&) = delete;
  DevicePatience& operator=(const DevicePatience&) = delete;
  // Of this thread, now.
  static double seconds() { return own(); }

 private:
  static double& own() {
    thread_local double seconds = kAmple;
    return seconds;
  }
  double before_;
};

// Sleeps until passed(), a Result<bool>, is true: true; or until `until`: false. Its errors are
// this call's. What a device does is through in less than the first looks take, as a rule; what
// takes longer is worth less of the host's time.
template <typename Passed>
Result<bool> poll_until(const Passed& passed, Deadline until) {
  constexpr int kLooksWithoutNap = 200;
  constexpr std::chrono::microseconds kShortestNap{20};
  constexpr std::chrono::microseconds kLongestNap{500};
  std::chrono::microseconds nap = kShortestNap;
  for (int looks = 0;; ++looks) {
    GW_ASSIGN(const bool there, passed());
    if (there) return true;
    if (std::chrono::steady_clock::now() >= until) return false;
    if (looks < kLooksWithoutNap) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, kLongestNap);
    }
  }
}

// What a wait of so many seconds that was in vain ends with.
Status device_is_late(Device device, double seconds);

}  // namespace gradwire
