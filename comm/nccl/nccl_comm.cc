#include "comm/nccl/nccl_comm.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "base/small_floats.h"
#include "base/text.h"
#include "comm/nccl/nccl_calls.h"
#include "device/cuda/memory_calls.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kEndSeconds = 5;                    // for ending in order
constexpr std::chrono::milliseconds kCallTime(200);  // that another thread's call may take

// GW_NCCL(*calls_, comm_, ncclGroupStart, calls_->group_start()): leaves with the error.
#define GW_NCCL(calls, comm, name, call) GW_TRY(nccl::status_of(calls, call, #name, comm))

Status late(const char* call) {
  return {Code::kTimedOut, std::string(call) + " had not ended at its deadline"};
}
Status aborted() { return {Code::kCancelled, "this NCCL communicator was aborted"}; }

// The factor as NCCL reads it: one element of the type.
std::array<std::byte, 8> scalar_of(DType dtype, double factor) {
  std::array<std::byte, 8> bytes{};
  const auto put = [&](auto value) { std::memcpy(bytes.data(), &value, sizeof value); };
  if (dtype == DType::kF64) put(factor);
  if (dtype == DType::kF32) put(static_cast<float>(factor));
  if (dtype == DType::kF16) put(fp16_from_float(static_cast<float>(factor)));
  if (dtype == DType::kBF16) put(bf16_from_float(static_cast<float>(factor)));
  return bytes;
}

}  // namespace

namespace nccl {

static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId));

Result<UniqueId> make_id(const Calls& calls) {
  ncclUniqueId raw;
  GW_NCCL(calls, nullptr, ncclGetUniqueId, calls.unique_id(&raw));
  UniqueId id;
  std::memcpy(id.data(), &raw, id.size());
  return id;
}

}  // namespace nccl

Result<std::unique_ptr<NcclComm>> NcclComm::create(std::shared_ptr<const nccl::Calls> calls,
                                                   const Place& place, Deadline deadline) {
  const cuda::OnDevice here(place.device);
  GW_TRY(here.status());
  ncclUniqueId raw;
  std::memcpy(&raw, place.id.data(), place.id.size());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t begun = calls->init(&comm, place.size, raw, place.rank, &config);
  const Status status = nccl::status_of(*calls, begun, "ncclCommInitRankConfig", comm);
  if (comm == nullptr) {
    return status.ok() ? Status(Code::kInternal, "ncclCommInitRankConfig gave no communicator")
                       : status;
  }
  std::unique_ptr<NcclComm> made(new NcclComm(std::move(calls), comm, place.device));
  made->rank_ = place.rank;
  made->size_ = place.size;
  const Status connected = status.ok() ? made->settle("ncclCommInitRankConfig", deadline) : status;
  if (connected.ok()) return made;
  (void)made->abort(kNcclAbortSeconds);
  return connected;
}

NcclComm::~NcclComm() {
  if (comm_ == nullptr) return;
  // NCCL puts the thread's device back: another one would get a context of this process for that.
  const cuda::OnDevice here(device_);
  if (!finalize().ok()) {
    (void)abort(kNcclAbortSeconds);
    return;
  }
  (void)calls_->destroy(comm_.exchange(nullptr));
}

Status NcclComm::finalize() {
  GW_NCCL(*calls_, comm_, ncclCommFinalize, calls_->finalize(comm_));
  return settle("ncclCommFinalize", deadline_in(kEndSeconds));
}

// One look at what a call that does not block has come to.
Status NcclComm::look(const char* call, bool& in_progress) {
  in_progress = true;
  // Another thread's call may hang, and who looks has deadlines to keep: no news, then.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  if (comm_ == nullptr) return aborted();
  ncclResult_t state = ncclSuccess;
  GW_NCCL(*calls_, comm_, ncclCommGetAsyncError, calls_->async_error(comm_, &state));
  in_progress = state == ncclInProgress;
  return nccl::status_of(*calls_, state, call, comm_);
}

Status NcclComm::settle(const char* call, Deadline deadline) {
  std::chrono::microseconds nap(10);
  for (bool in_progress = true;;) {
    GW_TRY(look(call, in_progress));
    if (!in_progress) return {};
    if (Clock::now() >= deadline) return late(call);
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 2, std::chrono::microseconds(1000));
  }
}

Status NcclComm::state() {
  bool in_progress = false;
  return look("work that was enqueued", in_progress);
}

Status NcclComm::make_op(const NcclStep& step, std::vector<int>& ops) {
  std::array<std::byte, 8> scalar = scalar_of(step.dtype, step.factor);
  ncclRedOp_t op = ncclSum;
  GW_NCCL(*calls_, comm_, ncclRedOpCreatePreMulSum,
          calls_->create_pre_mul_sum(&op, scalar.data(), nccl::data_type_of(step.dtype),
                                     ncclScalarHostImmediate, comm_));
  ops.push_back(static_cast<int>(op));
  return {};
}

Status NcclComm::issue(const NcclStep& step, int op, void* stream) {
  const nccl::Calls& calls = *calls_;
  const auto how = static_cast<ncclRedOp_t>(op);
  const auto n = static_cast<std::size_t>(step.elems);
  const ncclDataType_t type = nccl::data_type_of(step.dtype);
  // What all calls end with.
  const auto made = [&](const char* name, auto call, auto... arguments) {
    return nccl::status_of(calls, call(arguments..., comm_, static_cast<cudaStream_t>(stream)),
                           name, comm_);
  };
  using Kind = NcclStep::Kind;
  switch (step.kind) {
    case Kind::kAllReduce:
      return made("ncclAllReduce", calls.all_reduce, step.in, step.out, n, type, how);
    case Kind::kReduce:
      return made("ncclReduce", calls.reduce, step.in, step.out, n, type, how, step.peer);
    case Kind::kBroadcast:
      return made("ncclBroadcast", calls.broadcast, step.in, step.out, n, type, step.peer);
    case Kind::kReduceScatter:
      return made("ncclReduceScatter", calls.reduce_scatter, step.in, step.out, n, type, how);
    case Kind::kAllGather:
      return made("ncclAllGather", calls.all_gather, step.in, step.out, n, type);
    case Kind::kSend: return made("ncclSend", calls.send, step.in, n, type, step.peer);
    case Kind::kRecv: return made("ncclRecv", calls.recv, step.out, n, type, step.peer);
  }
  return {Code::kInternal, "no such step"};
}

// A group that was begun is ended in any case: the thread is inside it until then.
Status NcclComm::issue_all(std::span<const NcclStep> steps, void* stream, std::vector<int>& ops) {
  std::vector<int> op_of_step;
  for (const NcclStep& step : steps) {
    const bool scaled = step.op == ReduceOp::kPreMulSum;
    if (scaled) GW_TRY(make_op(step, ops));
    op_of_step.push_back(scaled ? ops.back() : static_cast<int>(nccl::op_of(step.op)));
  }
  GW_NCCL(*calls_, comm_, ncclGroupStart, calls_->group_start());
  Status status;
  for (std::size_t i = 0; i < steps.size() && status.ok(); ++i) {
    status = issue(steps[i], op_of_step[i], stream);
  }
  const ncclResult_t ended = calls_->group_end();
  return status.ok() ? nccl::status_of(*calls_, ended, "ncclGroupEnd", comm_) : status;
}

Status NcclComm::launch(std::span<const NcclStep> steps, const Stream& stream, Deadline deadline) {
  if (steps.empty()) return {};
  const cuda::OnDevice here(device_);
  GW_TRY(here.status());
  std::vector<int> ops;
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return aborted();
    GW_TRY(issue_all(steps, stream.native, ops));
  }
  GW_TRY(settle("ncclGroupEnd", deadline));
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return aborted();
  for (const int op : ops) {
    GW_NCCL(*calls_, comm_, ncclRedOpDestroy,
            calls_->destroy_op(static_cast<ncclRedOp_t>(op), comm_));
  }
  return {};
}

Result<std::unique_ptr<NcclComm>> NcclComm::split(int color, int key, Deadline deadline) {
  const cuda::OnDevice here(device_);
  GW_TRY(here.status());
  // NCCL writes there when it is done, maybe after this call has given up: never freed then.
  auto slot = std::make_unique<ncclComm_t>(nullptr);
  Status parted;
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return aborted();
    const int named = color < 0 ? NCCL_SPLIT_NOCOLOR : color;
    parted = nccl::status_of(*calls_, calls_->split(comm_, named, key, slot.get(), nullptr),
                             "ncclCommSplit", comm_);
  }
  if (parted.ok()) parted = settle("ncclCommSplit", deadline);
  if (!parted.ok()) {
    (void)slot.release();  // NOLINT(bugprone-unused-return-value)
    return parted;
  }
  ncclComm_t const part = *slot;
  if (color < 0) return std::unique_ptr<NcclComm>();
  if (part == nullptr) return Status(Code::kInternal, "ncclCommSplit gave no communicator");
  std::unique_ptr<NcclComm> made(new NcclComm(calls_, part, device_));
  Status ready = made->settle("ncclCommSplit", deadline);
  if (ready.ok()) {
    ready =
        nccl::status_of(*calls_, calls_->user_rank(part, &made->rank_), "ncclCommUserRank", part);
  }
  if (ready.ok()) {
    ready = nccl::status_of(*calls_, calls_->count(part, &made->size_), "ncclCommCount", part);
  }
  if (ready.ok()) return made;
  (void)made->abort(kNcclAbortSeconds);
  return ready;
}

// NCCL's, once, on a thread of its own, which is left behind if NCCL does not come back; its device
// is the communicator's, as in the destructor. None where all has ended in order.
std::shared_future<int> NcclComm::begin_abort() {
  const std::lock_guard one(abort_mutex_);
  if (aborted_.valid()) return aborted_;
  std::unique_lock lock(mutex_, std::defer_lock);
  (void)lock.try_lock_for(kCallTime);  // a call that hangs is what may have to be aborted
  ncclComm_t const comm = comm_.exchange(nullptr);
  if (comm == nullptr) return {};
  std::packaged_task<int()> task([calls = calls_, comm, device = device_] {
    const cuda::OnDevice here(device);
    return static_cast<int>(calls->abort(comm));
  });
  aborted_ = task.get_future().share();
  std::thread(std::move(task)).detach();
  return aborted_;
}

Status NcclComm::abort(double seconds) {
  const std::shared_future<int> ended = begin_abort();
  if (!ended.valid()) return {};
  const std::chrono::duration<double> patience(seconds);
  if (ended.wait_for(patience) != std::future_status::ready) return late("ncclCommAbort");
  return nccl::status_of(*calls_, static_cast<ncclResult_t>(ended.get()), "ncclCommAbort", nullptr);
}

}  // namespace gradwire
