// From a call to what runs in shared memory: which memory, and what is to be copied or scaled
// before it starts and after it ends.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/failure/flight_recorder.h"
#include "collectives/shm/boards.h"
#include "collectives/shm/call.h"
#include "gradwire/buffer.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// Copies may run one after another, as those of PlannedOperation.
struct ShmOperation {
  ShmCall call = {};
  std::function<Status()> before = {};  // may be empty, as `after`
  std::function<Status()> after = {};
  std::shared_ptr<std::byte> own = {};
};

// Whether collectives of that kind run in shared memory: all but all_to_all_v, whose rows one rank
// knows but in part.
bool runs_in_memory(OpKind kind);

Signature signature_of(const ShmCall& call);

// Memory of the arena, where there is any left, that operations borrow: fused tensors, scaled
// inputs. Any thread. Held by a shared_ptr, which what it lends keeps alive.
class ShmStaging : public std::enable_shared_from_this<ShmStaging> {
 public:
  explicit ShmStaging(std::shared_ptr<ShmBoards> boards) : boards_(std::move(boards)) {}
  // At least so many bytes, contents unspecified; they come back with the last copy of the pointer.
  Result<std::shared_ptr<std::byte>> lend(std::size_t bytes);

 private:
  std::shared_ptr<ShmBoards> boards_;
  std::mutex mutex_;
  std::vector<Buffer> idle_;
};

// Requires runs_in_memory(call.kind). Errors as check_call(), and kOutOfMemory.
Status plan_in_memory(const OpCall& call, const OpOptions& options, int rank, int size,
                      ShmStaging& staging, ShmOperation& planned);

}  // namespace gradwire
