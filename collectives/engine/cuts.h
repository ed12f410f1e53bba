// How the elements of a cell are cut into messages, equal on all ranks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gradwire/schedule.h"

namespace gradwire {

// Parts of `most` elements at most, at least one. They are about as long as each other; or, with
// `ends_short`, all but the last have `most` and the last has fewer, perhaps none: then a rank that
// takes another number of elements than it is sent meets a part of another length than it takes.
class Cuts {
 public:
  Cuts(std::int64_t elems, std::int64_t most, bool ends_short)
      : elems_(elems), most_(most), ends_short_(ends_short) {}

  // Without a division: most messages of small operations are whole, and each is looked at often.
  bool whole() const { return ends_short_ ? elems_ < most_ : elems_ <= most_; }
  int count() const {
    if (whole()) return 1;
    const std::int64_t parts = ends_short_ ? elems_ / most_ + 1 : (elems_ + most_ - 1) / most_;
    return static_cast<int>(std::max<std::int64_t>(1, parts));
  }
  // The first one is the longest.
  Range operator[](int part) const {
    if (whole() && part == 0) return {0, elems_};
    if (!ends_short_) return piece(elems_, count(), part);
    const std::int64_t begin = part * most_;
    return {begin, std::min(elems_, begin + most_)};
  }

 private:
  std::int64_t elems_;
  std::int64_t most_;
  bool ends_short_;
};

}  // namespace gradwire
