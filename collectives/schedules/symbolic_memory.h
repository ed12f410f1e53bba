// Memory of one rank in the checker's simulation. Elements are never simulated one by one: one
// symbol stands for all elements of a stretch that went the same way, "elements `origin`... of the
// logical input, contributions of ranks 2, 0, 1 in that order". A million elements cost as much as
// ten.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// How a value came to be.
struct Expression {
  std::vector<int> ranks = {};  // contributions, in the order in which they were combined
  bool left_fold = true;        // each was added to all before it
  int finished = 0;
  int roundings = 0;        // of what was combined
  std::uint64_t order = 0;  // equal for values that were combined and rounded in the same way
};

// `size` elements that hold elements origin ... of their contributors' input.
struct Stretch {
  std::int64_t size = 0;
  std::int64_t origin = 0;
  std::shared_ptr<const Expression> value;
};
using Contents = std::vector<Stretch>;

// The values of `into` with those of `from` added, element by element.
Result<Contents> combine(const Contents& into, const Contents& from);
// With a reduction rounded, and finished before that if asked for.
Contents rounded(const Contents& contents, bool finish);

class SymbolicMemory {
 public:
  SymbolicMemory() = default;
  // given: holds rank's own contribution from the start.
  SymbolicMemory(std::int64_t elems, bool given, int rank);

  std::int64_t elems() const { return elems_; }
  // Bounds; and for a divisible schedule the cells' rule.
  Status name(Range range, bool divisible);
  // Of a range that was named.
  Result<Contents> read(Range range) const;
  void write(Range range, const Contents& contents);

 private:
  void split_at(std::int64_t at);

  std::int64_t elems_ = 0;
  std::shared_ptr<const Expression> own_;       // null: nothing is there from the start
  std::map<std::int64_t, Stretch> written_;     // by begin
  std::map<std::int64_t, std::int64_t> cells_;  // begin to end
};

}  // namespace gradwire
