#include "adapters/trainer/replicas.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "aggregate/plan/plan.h"
#include "aggregate/state/replica_check.h"
#include "base/text.h"
#include "device/host_copy.h"

namespace gradwire {

AggregateStats operator+(AggregateStats a, const AggregateStats& b) {
  a.gradient_bytes += b.gradient_bytes;
  a.dense_ring_bytes += b.dense_ring_bytes;
  a.payload_bytes += b.payload_bytes;
  a.wire_bytes += b.wire_bytes;
  a.encode_seconds += b.encode_seconds;
  a.exchange_seconds += b.exchange_seconds;
  a.decode_seconds += b.decode_seconds;
  a.exposed_seconds += b.exposed_seconds;
  a.held_bytes += b.held_bytes;
  return a;
}

std::uint64_t dense_ring_bytes(std::int64_t elems, int rank, int ranks) {
  return static_cast<std::uint64_t>(ring_elems_sent(elems, rank, ranks)) * sizeof(float);
}

namespace {

// Rank 0's. What is on a device goes by way of the host: over NCCL each rank would need a stream of
// its own for it.
Status broadcast(Communicator& communicator, TensorView tensor) {
  if (tensor.device().space != MemorySpace::kCuda) {
    GW_ASSIGN(Work work, communicator.broadcast(tensor, 0));
    return work.wait();
  }
  GW_ASSIGN(const HostCopy copy, HostCopy::of(tensor));
  std::vector<std::byte> here(copy.bytes().begin(), copy.bytes().end());
  GW_ASSIGN(Work work, communicator.broadcast({here.data(), tensor.shape(), tensor.dtype()}, 0));
  GW_TRY(work.wait());
  return write_from_host(here, tensor);
}

}  // namespace

Status Replicas::start(ReplicaStart how) {
  if (how == ReplicaStart::kCompare) return check("before the first step");
  for (const NamedTensor& parameter : parameters_) {
    const Status status = broadcast(communicator_, parameter.tensor);
    if (!status.ok()) return status.with_context("parameter '" + parameter.name + "'");
  }
  return {};
}

Status Replicas::check(const std::string& when) {
  return check_replicas(communicator_, parameters_, when);
}

Status Replicas::count_step() {
  // The parameters are still those that the steps before this one left.
  const std::int64_t done = step_++;
  if (check_every_ == 0 || done == 0 || done % check_every_ != 0) return {};
  return check(format("after step %lld", static_cast<long long>(done)));
}

}  // namespace gradwire
