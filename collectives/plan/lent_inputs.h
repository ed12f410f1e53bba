// What becomes of a call's inputs before it runs, and of its outputs after: tensors that are fused
// are one, and a factor of this rank's is multiplied in. The caller's input stays as it is.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "collectives/engine/scratch_pool.h"
#include "collectives/plan/arguments.h"
#include "gradwire/buffer.h"
#include "gradwire/status.h"

namespace gradwire {

// Memory that operations borrow and hand back. Any thread. Held by a shared_ptr, which what it
// lends keeps alive.
class OwnMemory : public std::enable_shared_from_this<OwnMemory> {
 public:
  explicit OwnMemory(ScratchPool pool = ScratchPool()) : pool_(std::move(pool)) {}

  // At least `bytes` bytes on `device`, contents unspecified; null for 0 bytes. It comes back when
  // the last copy of the pointer goes.
  Result<std::shared_ptr<std::byte>> lend(std::size_t bytes, Device device);

 private:
  std::mutex mutex_;
  ScratchPool pool_;
};

// Where a run finds its tensors. Each run begins with `before`, in the caller's thread, and ends
// with `after`, in the one that drives; copies may run one after another.
struct Operated {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::function<Status()> before = {};  // may be empty, as `after`
  std::function<Status()> after = {};
  std::shared_ptr<std::byte> lent = {};  // what they use of lent memory, and the run itself
};

// Whether a run finds them where the caller has them: all but fused ones, and a factor's.
inline bool is_plain(const CheckedCall& call) {
  return call.call.kind != OpKind::kAllReduceFused && call.options.factor == 1;
}
inline Result<Operated> as_it_is(const CheckedCall& call) {
  return Operated{.in = call.call.in.data(), .out = call.call.out.data()};
}
// Of one that is not plain; fused tensors are in memory of the host. stream: the caller's, of the
// device that the tensors are on. Errors: those of `memory`.
Result<Operated> operated_of(const CheckedCall& call, const Stream& stream, OwnMemory& memory);

}  // namespace gradwire
