// Virtual time without rounding: sums and multiples of seconds given as doubles are exact, so that
// a simulated time can be compared with a closed form by ==.
//
// A time is a whole number of 2^-100 s in 128 bits. A double from 2^-48 s (3.6e-15 s, a byte at 280
// TB/s) up to 2^26 s is such a number; smaller ones are rounded to the nearest. Results must stay
// below 2^27 s, four years.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

namespace gradwire {

class ExactTime {
 public:
  constexpr ExactTime() = default;
  // seconds: 0 <= seconds < 2^26.
  static ExactTime from_seconds(double seconds) {
    return ExactTime(static_cast<Ticks>(std::nearbyint(std::ldexp(seconds, kBits))));
  }
  // The nearest double.
  double seconds() const { return std::ldexp(static_cast<double>(ticks_), -kBits); }

  friend constexpr ExactTime operator+(ExactTime a, ExactTime b) {
    return ExactTime(a.ticks_ + b.ticks_);
  }
  friend constexpr ExactTime operator-(ExactTime a, ExactTime b) {
    return ExactTime(a.ticks_ - b.ticks_);
  }
  friend constexpr ExactTime operator*(std::int64_t n, ExactTime a) {
    return ExactTime(n * a.ticks_);
  }
  // Rounded down to a whole number of ticks.
  friend constexpr ExactTime operator/(ExactTime a, std::int64_t n) {
    return ExactTime(a.ticks_ / n);
  }
  ExactTime& operator+=(ExactTime other) {
    ticks_ += other.ticks_;
    return *this;
  }
  friend constexpr bool operator==(ExactTime a, ExactTime b) { return a.ticks_ == b.ticks_; }
  friend constexpr std::strong_ordering operator<=>(ExactTime a, ExactTime b) {
    return a.ticks_ < b.ticks_   ? std::strong_ordering::less
           : a.ticks_ > b.ticks_ ? std::strong_ordering::greater
                                 : std::strong_ordering::equal;
  }

 private:
  static constexpr int kBits = 100;
  __extension__ typedef __int128 Ticks;  // an alias declaration would warn of the extension

  explicit constexpr ExactTime(Ticks ticks) : ticks_(ticks) {}
  Ticks ticks_ = 0;
};

}  // namespace gradwire
