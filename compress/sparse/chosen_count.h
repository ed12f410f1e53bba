// How many elements a sparse method sends: the keys `ratio` and `k`, of which one must be given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compress/spec_reader.h"
#include "gradwire/registry.h"
#include "gradwire/status.h"

namespace gradwire {

inline constexpr std::int64_t kMostSparseElems = std::int64_t{1}
                                                 << 32;  // 32-bit indices reach them

// kUnsupported for more than `most` elements.
Status check_index_range(std::string_view method, const Shape& shape,
                         std::int64_t most = kMostSparseElems);

// ceil(ratio * elems), at least 1 and at most elems; 7 % of 100 are 7, although 0.07 * 100 is a
// little more than 7 in binary. 0 of 0.
std::size_t share_of(double ratio, std::int64_t elems);

class ChosenCount {
 public:
  static std::vector<SpecKey> keys();  // "ratio" and "k"
  // kInvalidArgument unless exactly one of the two is there.
  static Result<ChosenCount> read(const SpecReader& reader, std::string_view method);

  std::size_t of(std::int64_t elems) const;
  double share(std::int64_t elems) const;  // of(elems) / elems; 1 of none
  std::string text() const;                // "ratio=0.01", "k=7"

 private:
  ChosenCount(double ratio, std::int64_t k) : ratio_(ratio), k_(k) {}
  double ratio_;    // when k_ is 0
  std::int64_t k_;  // 0: by ratio
};

}  // namespace gradwire
