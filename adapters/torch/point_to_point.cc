// c10d's messages between two ranks, and the barrier that says who is missing.
#include <algorithm>
#include <string>

#include "adapters/torch/backend.h"
#include "adapters/torch/clock.h"
#include "adapters/torch/failure.h"
#include "adapters/torch/operations.h"
#include "adapters/torch/streams.h"

namespace gradwire::torch_backend {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTags = 32768;
// Those of monitoredBarrier(): users have the tags below.
constexpr int kArrived = kTags - 1;
constexpr int kRelease = kTags - 2;
constexpr double kForever = 1e9;

void check_message(int peer, int tag, int rank, int size, const char* name) {
  TORCH_CHECK_VALUE(tag >= 0 && tag < kRelease, "gradwire: ", name, ": tag ", tag,
                    " (expected 0 to ", kRelease - 1, ")");
  TORCH_CHECK_VALUE(peer >= 0 && peer < size && peer != rank, "gradwire: ", name, ": peer ", peer,
                    " (expected a rank below ", size, " other than this one, ", rank, ")");
}

gw_op message_of(gw_kind kind, const at::Tensor& held, int peer, int tag) {
  // As bytes: only their number must agree.
  gw_op op = op_of(kind, GW_U8);
  op.in = op.out = held.data_ptr();
  op.count = static_cast<std::int64_t>(held.nbytes());
  op.peer = peer;
  op.tag = tag;
  return op;
}

double seconds_until(Clock::time_point until) {
  return std::max(0.001, std::chrono::duration<double>(until - Clock::now()).count());
}

}  // namespace

c10::intrusive_ptr<c10d::Work> GradwireBackend::send(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = only(tensors, "send");
  check_message(peer, tag, rank_, size_, "send");
  Operation operation = operation_of(c10d::OpType::SEND, "send", c10d::kUnsetTimeout);
  const at::Tensor held = operation.lent.input(tensor, tensor.scalar_type());
  operation.ops.push_back(message_of(GW_OP_SEND, held, peer, tag));
  return start(std::move(operation));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::recv(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = only(tensors, "recv");
  check_message(peer, tag, rank_, size_, "recv");
  Operation operation = operation_of(c10d::OpType::RECV, "recv", c10d::kUnsetTimeout);
  const at::Tensor held = operation.lent.output(tensor, tensor.scalar_type(), false);
  operation.ops.push_back(message_of(GW_OP_RECV, held, peer, tag));
  operation.outputs = tensors;
  return start(std::move(operation));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::recvAnysource(Tensors& tensors, int tag) {
  constexpr const char* kName = "recv_anysource";
  const at::Tensor& tensor = only(tensors, kName);
  TORCH_CHECK_VALUE(tag >= 0 && tag < kRelease, "gradwire: ", kName, ": tag ", tag,
                    " (expected 0 to ", kRelease - 1, ")");
  check_caller(kName);
  Operation operation = operation_of(c10d::OpType::RECVANYSOURCE, kName, c10d::kUnsetTimeout);
  const at::Tensor held = operation.lent.output(tensor, tensor.scalar_type(), false);
  operation.outputs = tensors;
  gw_op_options options = GW_OP_OPTIONS_INIT;
  options.timeout_seconds = seconds_of(timeout_for(c10d::kUnsetTimeout));
  options.tag = tag;
  auto work = work_of(std::move(operation));
  options.stream = native_of(work->operation().stream);
  gw_work* handle = nullptr;
  check(gw_recv(comm().get(), held.data_ptr(), static_cast<std::int64_t>(held.nbytes()), GW_U8,
                GW_ANY_SOURCE, &options, &handle),
        kName);
  work->begin(handle);
  return work;
}

// Rank 0 hears from each of the others, and then lets all go: a rank that fails to come is missed
// by rank 0, which names it, and the others' wait for rank 0 ends. What they wait with stays for
// the next barrier, because rank 0 has let nobody go.
void GradwireBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  check_caller("monitored_barrier");
  if (size_ == 1) return;
  const Comm held = comm();
  const std::chrono::milliseconds limit =
      opts.timeout.count() < 0 ? timeout_for(opts.timeout) : opts.timeout;
  const Clock::time_point until = Clock::now() + limit;
  std::uint8_t byte = 0;
  gw_op_options options = GW_OP_OPTIONS_INIT;
  if (rank_ == 0) {
    await_others(held, until, wait_all_ranks, limit);
    options.tag = kRelease;
    for (int r = 1; r < size_; ++r) {
      check(gw_send(held.get(), &byte, 1, GW_U8, r, &options, nullptr), "monitored_barrier");
    }
    return;
  }
  options.tag = kArrived;
  check(gw_send(held.get(), &byte, 1, GW_U8, 0, &options, nullptr), "monitored_barrier");
  if (!release_) {
    release_ = std::make_unique<Release>();
    options.tag = kRelease;
    options.timeout_seconds = kForever;
    check(gw_recv(held.get(), &release_->byte, 1, GW_U8, 0, &options, &release_->work),
          "monitored_barrier");
  }
  const gw_status status = gw_work_wait(release_->work, seconds_until(until));
  if (status == GW_OK) {
    release_.reset();
    return;
  }
  int done = 0;
  gw_work_test(release_->work, &done);
  raise("Rank " + std::to_string(rank_) +
        " successfully reached monitoredBarrier, but received errors while waiting for send/recv "
        "from rank 0. Please check rank 0 logs for faulty rank." +
        (done == 0 ? "" : std::string(" gradwire: ") + gw_work_error(release_->work)));
}

void GradwireBackend::await_others(const Comm& comm, Clock::time_point until, bool all,
                                   std::chrono::milliseconds limit) {
  std::string missing;
  int missed = 0;
  std::uint8_t byte = 0;
  gw_op_options options = GW_OP_OPTIONS_INIT;
  options.tag = kArrived;
  if (limit.count() == 0) raise("Rank 0 timed out in monitoredBarrier after 0 ms");
  for (int r = 1; r < size_; ++r) {
    int source = -1;
    const gw_status status = gw_probe(comm.get(), r, seconds_until(until), &options, &source);
    if (status == GW_OK && source >= 0) {
      check(gw_recv(comm.get(), &byte, 1, GW_U8, r, &options, nullptr), "monitored_barrier");
      continue;
    }
    missing += (missed++ == 0 ? "" : ", ") + std::to_string(r);
    if (!all || status != GW_OK) break;
  }
  if (missed == 0) return;
  raise("[Rank 0]: Rank" + std::string(missed > 1 ? "s " : " ") + missing +
        " failed to pass monitoredBarrier in " + std::to_string(limit.count()) + " ms");
}

}  // namespace gradwire::torch_backend
