// A few numbers that ranks must know of one another.
#pragma once

#include <span>

#include "gradwire/status.h"
#include "trainer/strategy/scope.h"

namespace gradwire {

// Numbers that the ranks of a scope add up.
struct ScopedValues {
  std::span<double> values;
  Scope scope = Scope::kWorld;
};

// Never compressed, and equal on all ranks of the scope. The defaults are of a single process. All
// calls come from the thread that trains, in the same order on all ranks of their scope; an error
// ends the training with that error.
class Consensus {
 public:
  virtual ~Consensus() = default;

  // How many ranks the scope has, this one among them.
  virtual int ranks(Scope /*scope*/) const { return 1; }

  // In place, over the scope's ranks, in double.
  virtual Status mean(std::span<double> /*values*/, Scope /*scope*/) { return {}; }
  virtual Status sum(std::span<double> /*values*/, Scope /*scope*/) { return {}; }
  // True where one of the scope's ranks says so.
  virtual Result<bool> any(bool mine, Scope /*scope*/) { return mine; }

  // Starts sums, each in place over its scope; those of scopes that are the same ranks travel
  // together. All values are lent until finish_sums(), which waits, has returned. Nothing else is
  // started in between; other calls may come. By default all of it is done at once.
  virtual Status start_sums(std::span<const ScopedValues> sums) {
    for (const ScopedValues& one : sums) GW_TRY(sum(one.values, one.scope));
    return {};
  }
  // Does nothing where nothing was started.
  virtual Status finish_sums() { return {}; }

  // A sum over the world whose ranks come to it at different times: start_asking() sends, heard()
  // waits, and any other call may come in between. The values are lent until then. heard() returns
  // whether one of the ranks is to end the training, the same on all; where nothing was started it
  // does nothing.
  virtual Status start_asking(std::span<double> /*values*/) { return {}; }
  virtual Result<bool> heard() { return false; }
};

}  // namespace gradwire
