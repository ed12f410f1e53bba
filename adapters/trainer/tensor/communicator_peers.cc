#include "adapters/trainer/tensor/communicator_peers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "adapters/trainer/pipeline/communicator_transfers.h"
#include "base/mesh.h"

namespace gradwire {

using SteadyClock = std::chrono::steady_clock;

CommunicatorPeers::CommunicatorPeers(Communicator& group, const Stream& stream)
    : group_(&group),
      stream_(stream),
      follows_(links_of(group, stream.device) == PipelineLinks::kOrdered) {}

template <typename Byte>
BasicTensorView<Byte> CommunicatorPeers::view(std::span<Byte> bytes, DType type) const {
  const auto elems = static_cast<std::int64_t>(bytes.size() / size_of(type));
  return {bytes.data(), Shape::vector(elems), type, stream_.device};
}

// What a rank has to send at least, which is what an operation over NCCL counts when it has ended:
// the group's count may then have others' in it.
std::uint64_t CommunicatorPeers::least_sent(const OpCall& call) const {
  const std::uint64_t in = call.in.bytes().size();
  const std::uint64_t out = call.out.bytes().size();
  if (call.kind == OpKind::kSend) return in;
  if (call.kind == OpKind::kRecv) return 0;
  if (call.kind == OpKind::kAllGather) return out - in;
  if (call.kind == OpKind::kReduceScatter) return in - out;
  const Range own = even_part(call.in.elems(), group_->size(), group_->rank());
  return 2 * static_cast<std::uint64_t>(call.in.elems() - own.size()) * size_of(call.in.dtype());
}

void CommunicatorPeers::start(const OpCall& call, std::string_view name) {
  const bool sums = call.kind != OpKind::kAllGather;
  start_all(std::span(&call, 1), sums && !follows_ ? "canonical" : "auto", name);
}

void CommunicatorPeers::start_all(std::span<const OpCall> calls, std::string_view algorithm,
                                  std::string_view name) {
  if (!status_.ok()) return;
  const auto begin = SteadyClock::now();
  if (under_way_.empty()) sent_before_ = group_->bytes_sent();
  OpOptions options;
  options.algorithm = algorithm;
  options.stream = stream_;
  auto work =
      calls.size() == 1 ? group_->start(calls.front(), options) : group_->start_all(calls, options);
  if (!work.has_value()) {
    status_ = work.error().with_context(std::string(name) + " among tensor peers");
    return;
  }
  ++exchanges_;
  for (const OpCall& call : calls) bytes_sent_ += follows_ ? least_sent(call) : 0;
  under_way_.push_back({std::move(work).value(), name, begin});
}

void CommunicatorPeers::sum(ByteSpan values, DType type) {
  const TensorView all = view(values, type);
  start({.kind = OpKind::kAllReduce, .in = all, .out = all, .op = ReduceOp::kSum}, "sum");
}

void CommunicatorPeers::max(ByteSpan values, DType type) {
  const TensorView all = view(values, type);
  start({.kind = OpKind::kAllReduce, .in = all, .out = all, .op = ReduceOp::kMax}, "maximum");
}

void CommunicatorPeers::gather(ConstByteSpan mine, ByteSpan all, DType type) {
  start({.kind = OpKind::kAllGather, .in = view(mine, type), .out = view(all, type)}, "gather");
}

void CommunicatorPeers::scatter_sum(ConstByteSpan all, ByteSpan mine, DType type) {
  start({.kind = OpKind::kReduceScatter,
         .in = view(all, type),
         .out = view(mine, type),
         .op = ReduceOp::kSum},
        "scattered sum");
}

void CommunicatorPeers::exchange(std::span<const Bytes> messages, DType type) {
  std::array<OpCall, 2 * kMostMessages> calls{};
  std::size_t count = 0;
  for (const auto& [peer, sent, received] : messages) {
    if (!received.empty()) calls[count++] = OpCall::recv(view(received, type), peer);
    if (!sent.empty()) calls[count++] = OpCall::send(view(sent, type), peer);
  }
  if (count > 0) start_all(std::span(calls).first(count), "auto", "exchange");
}

void CommunicatorPeers::await() {
  const auto begin = SteadyClock::now();
  for (UnderWay& one : under_way_) {
    keep(follows_ ? one.work.wait_on(stream_) : one.work.wait(), one.name);
    if (told_ == nullptr) continue;
    (*told_)({.kind = TrainerSpan::Kind::kPeers,
              .layer = one.name,
              .step = TrainerSpan::kUnderWay,
              .begin = one.begin,
              .end = SteadyClock::now()});
  }
  if (follows_) {
    std::ranges::move(under_way_, std::back_inserter(followed_));
  } else if (!under_way_.empty()) {
    bytes_sent_ += group_->bytes_sent() - sent_before_;
  }
  under_way_.clear();
  drop_followed();
  waited_seconds_ += std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

void CommunicatorPeers::keep(const Status& ended, std::string_view name) {
  if (!status_.ok() || ended.ok()) return;
  status_ = ended.with_context(std::string(name) + " among tensor peers");
}

// Those that have ended: a step starts hundreds of them.
void CommunicatorPeers::drop_followed() {
  while (!followed_.empty() && followed_.front().work.done()) {
    keep(followed_.front().work.wait(), followed_.front().name);
    followed_.pop_front();
  }
}

void CommunicatorPeers::finish() {
  for (UnderWay& one : followed_) keep(one.work.wait(), one.name);
  followed_.clear();
}

}  // namespace gradwire
