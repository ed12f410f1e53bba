#include "adapters/trainer/tensor/communicator_peers.h"

#include <chrono>
#include <string>
#include <utility>

namespace gradwire {

using SteadyClock = std::chrono::steady_clock;

template <typename Byte>
BasicTensorView<Byte> CommunicatorPeers::view(std::span<Byte> bytes, DType type) const {
  const auto elems = static_cast<std::int64_t>(bytes.size() / size_of(type));
  return {bytes.data(), Shape::vector(elems), type, stream_.device};
}

void CommunicatorPeers::start(const OpCall& call, std::string_view name) {
  if (!status_.ok()) return;
  const auto begin = SteadyClock::now();
  if (under_way_.empty()) sent_before_ = group_->bytes_sent();
  OpOptions options;
  options.algorithm = call.kind == OpKind::kAllGather ? "auto" : "canonical";
  options.stream = stream_;
  auto work = group_->start(call, options);
  if (!work.has_value()) {
    status_ = work.error().with_context(std::string(name) + " among tensor peers");
    return;
  }
  ++exchanges_;
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

void CommunicatorPeers::await() {
  const auto begin = SteadyClock::now();
  for (UnderWay& one : under_way_) {
    const Status ended = one.work.wait_on(stream_);
    if (status_.ok() && !ended.ok()) {
      status_ = ended.with_context(std::string(one.name) + " among tensor peers");
    }
    if (told_ == nullptr) continue;
    (*told_)({.kind = TrainerSpan::Kind::kPeers,
              .layer = one.name,
              .step = TrainerSpan::kUnderWay,
              .begin = one.begin,
              .end = SteadyClock::now()});
  }
  if (!under_way_.empty()) bytes_sent_ += group_->bytes_sent() - sent_before_;
  under_way_.clear();
  waited_seconds_ += std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

}  // namespace gradwire
