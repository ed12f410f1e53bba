// A communicator of NCCL's, owned. NCCL does not bound its waits: here the set-up does not block
// and is polled until a deadline, and a communicator that failed or is late is aborted.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

struct ncclComm;

namespace gradwire {

namespace nccl {
struct Calls;

using UniqueId = std::array<std::byte, 128>;
// What a communicator's ranks must have alike; one of them makes it.
Result<UniqueId> make_id(const Calls& calls);
}  // namespace nccl

// How long the end of a communicator waits for NCCL's abort.
inline constexpr double kNcclAbortSeconds = 2;

// One call to NCCL, as a value. Memory is the device's; elems as NCCL counts: of the whole tensor;
// of one rank's row for kReduceScatter and kAllGather.
struct NcclStep {
  enum class Kind : std::uint8_t {
    kAllReduce,
    kReduce,
    kBroadcast,
    kReduceScatter,
    kAllGather,
    kSend,
    kRecv,
  };
  Kind kind = Kind::kAllReduce;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t elems = 0;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  double factor = 1;  // for kPreMulSum
  int peer = 0;       // the root, the receiver of a send, the sender of a recv
};

// launch() and split() come from one thread at a time; state() and abort() from any.
class NcclComm {
 public:
  struct Place {
    nccl::UniqueId id;
    int rank = 0;
    int size = 1;
    Device device = {MemorySpace::kCuda, 0};
  };
  // Collective over `size` ranks that have the same id. Blocks until they are connected, at most
  // until the deadline: kTimedOut then. Errors of CUDA where there is no such device.
  static Result<std::unique_ptr<NcclComm>> create(std::shared_ptr<const nccl::Calls> calls,
                                                  const Place& place, Deadline deadline);
  // Ends in order (bounded), unless it was aborted.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  Device device() const { return device_; }

  // Enqueues all steps on `stream`, a stream of its device, as one group: they run together, and
  // sends and receives may stand in any order. Returns when they are enqueued, not when they have
  // run. After an error, abort(): kTimedOut when that was not before the deadline.
  Status launch(std::span<const NcclStep> steps, const Stream& stream, Deadline deadline);
  // The first error of what was enqueued that NCCL has noticed so far.
  Status state();
  // Collective: the ranks of one color, ordered by key, then by rank; null for a negative color.
  // Nothing may be under way.
  Result<std::unique_ptr<NcclComm>> split(int color, int key, Deadline deadline);
  // Ends what is under way, here alone: others are not told. Every later call is kCancelled. Waits
  // at most so many seconds for NCCL to come back from it, else kTimedOut: then call it again, and
  // until it has come back the device may still touch what was lent.
  Status abort(double seconds);

 private:
  NcclComm(std::shared_ptr<const nccl::Calls> calls, ncclComm* comm, Device device)
      : calls_(std::move(calls)), comm_(comm), device_(device) {}
  Status issue(const NcclStep& step, int op, void* stream);
  Status issue_all(std::span<const NcclStep> steps, void* stream, std::vector<int>& ops);
  Status make_op(const NcclStep& step, std::vector<int>& ops);
  Status settle(const char* call, Deadline deadline);
  Status look(const char* call, bool& in_progress);
  Status finalize();
  std::shared_future<int> begin_abort();

  std::shared_ptr<const nccl::Calls> calls_;
  std::timed_mutex mutex_;       // of calls about comm_
  std::atomic<ncclComm*> comm_;  // null once aborted
  std::mutex abort_mutex_;
  std::shared_future<int> aborted_;  // NCCL's result
  Device device_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace gradwire
