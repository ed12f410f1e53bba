#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "collectives/arguments.h"
#include "collectives/group_communicator.h"
#include "collectives/schedules/schedules.h"

namespace gradwire {
namespace {

// Tag channels: point-to-point 1 bit | dtype 3 bits | slot 4 bits. With the dtype in the tag, ranks
// that disagree about it never mix up elements: they time out, and the roll call says why. Slot 15
// stays free for the roll call.
std::uint32_t channel_of(bool point_to_point, DType dtype) {
  return (point_to_point ? 128u : 0u) | (static_cast<std::uint32_t>(dtype) << 4);
}
constexpr int kMostSlots = 15;
// Lengths that ranks tell each other add up to less, or they are not lengths.
constexpr std::int64_t kMostGathered = std::int64_t{1} << 40;

TensorView bytes_view(ByteSpan bytes) {
  return {bytes.data(), Shape::vector(static_cast<std::int64_t>(bytes.size())), DType::kU8};
}

ConstTensorView bytes_view(ConstByteSpan bytes) {
  return {bytes.data(), Shape::vector(static_cast<std::int64_t>(bytes.size())), DType::kU8};
}

Operands operands_of(ConstTensorView in, TensorView out, DType dtype, const OpOptions& options) {
  return {.in = in.data(), .out = out.data(), .dtype = dtype, .stream = options.stream};
}

}  // namespace

GroupCommunicator::GroupCommunicator(std::shared_ptr<ProgressEngine> engine, std::vector<int> group,
                                     int rank, int id, CommunicatorOptions options,
                                     Segmentation segmentation)
    : engine_(std::move(engine)),
      group_(std::make_shared<const std::vector<int>>(std::move(group))),
      rank_(rank),
      id_(id),
      options_(std::move(options)),
      segmentation_(segmentation),
      bytes_sent_(std::make_shared<std::atomic<std::uint64_t>>(0)),
      next_send_(group_->size(), 0),
      next_recv_(group_->size(), 0) {
  segmentation_.slots = std::clamp(segmentation_.slots, 1, kMostSlots);
}

GroupCommunicator::~GroupCommunicator() { engine_->release_id(id_); }

std::string GroupCommunicator::describe() const {
  return format("communicator %d: rank %d of %d (rank %d of the job's %d) over ", id_, rank_,
                size(), job_rank(rank_), engine_->size()) +
         engine_->describe();
}

Result<Work> GroupCommunicator::start(Call call, const OpOptions& options) {
  const bool collective = call.peer < 0;
  const std::uint64_t number = collective ? next_operation_++ : call.number;
  const Deadline now = std::chrono::steady_clock::now();
  const DType dtype = call.operands.dtype;
  Route route{group_, static_cast<std::uint32_t>(id_), number, channel_of(!collective, dtype)};
  auto work = std::make_shared<WorkState>(engine_);
  auto operation = std::make_unique<Operation>(Operation{
      .name = call.name,
      .number = number,
      .dtype = to_string(dtype),
      .elems = call.elems,
      .collective = collective,
      .started = now,
      .deadline = options.deadline.value_or(deadline_in(options_.deadline_seconds)),
      .execution =
          Execution(std::move(call.schedule), call.operands, std::move(route), segmentation_),
      .work = work,
      .bytes_sent = bytes_sent_});
  GW_TRY(engine_->submit(std::move(operation)));
  return Work(std::move(work));
}

Result<Work> GroupCommunicator::reduction(Collective collective, std::string_view name,
                                          ConstTensorView in, TensorView out, ReduceOp op,
                                          const OpOptions& options) {
  GW_TRY(check_host(name, in.device()));
  GW_TRY(check_host(name, out.device()));
  GW_TRY(check_reduction(name, in.dtype(), op));
  const std::string_view wanted =
      options.algorithm == "auto" ? std::string_view(options_.algorithm) : options.algorithm;
  GW_ASSIGN(const std::string_view algorithm, resolve_algorithm(collective, wanted));
  Operands operands = operands_of(in, out, in.dtype(), options);
  operands.op = op;
  Schedule schedule = make_schedule(collective, algorithm, rank_, size(), out.elems());
  return start({name, std::move(schedule), operands, out.elems()}, options);
}

Result<Work> GroupCommunicator::all_reduce(TensorView tensor, ReduceOp op,
                                           const OpOptions& options) {
  return reduction(Collective::kAllReduce, "all_reduce", tensor, tensor, op, options);
}

Result<Work> GroupCommunicator::reduce_scatter(ConstTensorView in, TensorView out, ReduceOp op,
                                               const OpOptions& options) {
  GW_TRY(check_shapes("reduce_scatter", in, 1, out, size()));
  return reduction(Collective::kReduceScatter, "reduce_scatter", in, out, op, options);
}

Result<Work> GroupCommunicator::all_gather(ConstTensorView in, TensorView out,
                                           const OpOptions& options) {
  GW_TRY(check_host("all_gather", in.device()));
  GW_TRY(check_host("all_gather", out.device()));
  GW_TRY(check_shapes("all_gather", in, size(), out, 1));
  GW_ASSIGN(const auto algorithm, resolve_algorithm(Collective::kAllGather, options.algorithm));
  return start(
      {"all_gather", make_schedule(Collective::kAllGather, algorithm, rank_, size(), in.elems()),
       operands_of(in, out, in.dtype(), options), in.elems()},
      options);
}

Result<Work> GroupCommunicator::all_gather_v(ConstByteSpan in, ByteSpan out,
                                             std::span<const std::int64_t> bytes,
                                             const OpOptions& options) {
  GW_TRY(check_lengths("all_gather_v", "out", bytes, size(), out.size()));
  const std::int64_t own = bytes[static_cast<std::size_t>(rank_)];
  GW_TRY(check_lengths("all_gather_v", "in", std::span(&own, 1), 1, in.size()));
  ScheduleRequest request{.collective = Collective::kAllGather, .rank = rank_, .size = size()};
  GW_ASSIGN(request.algorithm, resolve_algorithm(Collective::kAllGather, options.algorithm, true));
  request.counts = bytes;
  return start({"all_gather_v", make_schedule(request),
                operands_of(bytes_view(in), bytes_view(out), DType::kU8, options),
                static_cast<std::int64_t>(out.size())},
               options);
}

Result<Work> GroupCommunicator::all_gather_unsized(ConstByteSpan in, std::vector<std::byte>& out,
                                                   std::vector<std::int64_t>& bytes,
                                                   const OpOptions& options) {
  const auto own = static_cast<std::int64_t>(in.size());
  bytes.assign(group_->size(), 0);
  const ConstTensorView length(reinterpret_cast<const std::byte*>(&own), Shape::vector(1),
                               DType::kI64);
  const TensorView lengths(reinterpret_cast<std::byte*>(bytes.data()), Shape::vector(size()),
                           DType::kI64);
  GW_ASSIGN(Work exchange, all_gather(length, lengths, options));
  GW_TRY(exchange.wait());
  std::int64_t sum = 0;
  for (const std::int64_t count : bytes) {
    if (count < 0 || count > kMostGathered - sum) {
      return Status(Code::kRankMismatch,
                    format("all_gather_unsized: a length of %lld bytes (0 to 2^40 together wanted)",
                           static_cast<long long>(count)));
    }
    sum += count;
  }
  out.resize(static_cast<std::size_t>(sum));
  return all_gather_v(in, out, bytes, options);
}

Result<Work> GroupCommunicator::all_to_all(ConstTensorView in, TensorView out,
                                           const OpOptions& options) {
  GW_TRY(check_host("all_to_all", in.device()));
  GW_TRY(check_host("all_to_all", out.device()));
  GW_TRY(check_shapes("all_to_all", in, 1, out, 1));
  if (in.elems() % size() != 0) {
    return Status(Code::kInvalidArgument,
                  format("all_to_all: %lld elements (a multiple of %d wanted)",
                         static_cast<long long>(in.elems()), size()));
  }
  GW_ASSIGN(const auto algorithm, resolve_algorithm(Collective::kAllToAll, options.algorithm));
  return start({"all_to_all",
                make_schedule(Collective::kAllToAll, algorithm, rank_, size(), in.elems() / size()),
                operands_of(in, out, in.dtype(), options), in.elems()},
               options);
}

Result<Work> GroupCommunicator::all_to_all_v(ConstByteSpan in,
                                             std::span<const std::int64_t> send_bytes, ByteSpan out,
                                             std::span<const std::int64_t> recv_bytes,
                                             const OpOptions& options) {
  GW_TRY(check_lengths("all_to_all_v", "in", send_bytes, size(), in.size()));
  GW_TRY(check_lengths("all_to_all_v", "out", recv_bytes, size(), out.size()));
  ScheduleRequest request{.collective = Collective::kAllToAll, .rank = rank_, .size = size()};
  GW_ASSIGN(request.algorithm, resolve_algorithm(Collective::kAllToAll, options.algorithm, true));
  request.counts = send_bytes;
  request.recv_counts = recv_bytes;
  const auto self = static_cast<std::size_t>(rank_);
  if (send_bytes[self] != recv_bytes[self]) {
    return Status(
        Code::kInvalidArgument,
        format("all_to_all_v: %lld bytes from this rank to itself, %lld received",
               static_cast<long long>(send_bytes[self]), static_cast<long long>(recv_bytes[self])));
  }
  return start({"all_to_all_v", make_schedule(request),
                operands_of(bytes_view(in), bytes_view(out), DType::kU8, options)},
               options);
}

Result<Work> GroupCommunicator::broadcast(TensorView tensor, int root, const OpOptions& options) {
  GW_TRY(check_host("broadcast", tensor.device()));
  GW_TRY(check_rank("broadcast", "root", root, size()));
  GW_ASSIGN(const auto algorithm, resolve_algorithm(Collective::kBroadcast, options.algorithm));
  return start(
      {"broadcast",
       make_schedule(Collective::kBroadcast, algorithm, rank_, size(), tensor.elems(), root),
       operands_of(tensor, tensor, tensor.dtype(), options), tensor.elems()},
      options);
}

Result<Work> GroupCommunicator::barrier(const OpOptions& options) {
  GW_ASSIGN(const auto algorithm, resolve_algorithm(Collective::kBarrier, options.algorithm));
  return start({"barrier", make_schedule(Collective::kBarrier, algorithm, rank_, size(), 0),
                operands_of({}, {}, DType::kU8, options), 0},
               options);
}

Result<Work> GroupCommunicator::send(ConstTensorView tensor, int peer, const OpOptions& options) {
  GW_TRY(check_host("send", tensor.device()));
  GW_TRY(check_rank("send", "peer", peer, size()));
  if (peer == rank_) return Status(Code::kInvalidArgument, "send: to this rank itself");
  return start({"send", point_to_point_send(rank_, size(), peer, tensor.elems()),
                operands_of(tensor, {}, tensor.dtype(), options), tensor.elems(), peer,
                next_send_[static_cast<std::size_t>(peer)]++},
               options);
}

Result<Work> GroupCommunicator::recv(TensorView tensor, int peer, const OpOptions& options) {
  GW_TRY(check_host("recv", tensor.device()));
  GW_TRY(check_rank("recv", "peer", peer, size()));
  if (peer == rank_) return Status(Code::kInvalidArgument, "recv: from this rank itself");
  return start({"recv", point_to_point_recv(rank_, size(), peer, tensor.elems()),
                operands_of({}, tensor, tensor.dtype(), options), tensor.elems(), peer,
                next_recv_[static_cast<std::size_t>(peer)]++},
               options);
}

}  // namespace gradwire
