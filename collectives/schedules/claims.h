// What a rank's output must hold when a schedule is done, for the checker.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "collectives/schedules/checker.h"
#include "collectives/schedules/symbolic_memory.h"
#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// kInternal unless the claim's counts are as many as its operation wants.
Status check_claim(const ScheduleClaim& claim);

// Rank's row where an operation's larger buffer has one: [0, elems) for those without rows.
Range row_of(const ScheduleClaim& claim, int rank);

// Looks at the ranks' outputs one after another.
class OutputCheck {
 public:
  explicit OutputCheck(const ScheduleClaim& claim);
  // out: elements `shift` ... of the memory are the rank's kOut, `elems` long.
  Status check(int rank, std::int64_t elems, const SymbolicMemory& memory, std::int64_t shift);

 private:
  std::int64_t wanted_elems(int rank) const;
  Status check_stretch(int rank, std::int64_t begin, const Stretch& stretch);
  Status check_reduction(const Expression& value, int below) const;
  Status check_alike(const Contents& contents) const;

  const ScheduleClaim& claim_;
  Contents first_;  // all_reduce: what rank 0 holds
  std::set<std::shared_ptr<const Expression>> complete_;
};

}  // namespace gradwire
