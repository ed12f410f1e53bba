// What becomes of a call's inputs before it runs, and of its outputs after: tensors that are fused
// are one, and a factor of this rank's is multiplied in. The caller's input stays as it is.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "collectives/plan/arguments.h"
#include "gradwire/status.h"

namespace gradwire {

// Memory that an operation borrows: at least so many bytes there, contents unspecified. It comes
// back when the last copy of the pointer goes; null for 0 bytes.
using Lend = std::function<Result<std::shared_ptr<std::byte>>(std::size_t bytes, Device device)>;

// Where a run finds its tensors. Each run begins with `before`, in the caller's thread, and ends
// with `after`, in the one that drives; copies may run one after another.
struct Operated {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::function<Status()> before = {};  // may be empty, as `after`
  std::function<Status()> after = {};
  std::shared_ptr<std::byte> lent = {};  // what they use of lent memory, and the run itself
};

// stream: the caller's, of the device that the tensors are on. Errors: those of `lend`.
Result<Operated> operated_of(const CheckedCall& call, const Stream& stream, const Lend& lend);

}  // namespace gradwire
