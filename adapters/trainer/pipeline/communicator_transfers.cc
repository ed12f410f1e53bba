#include "adapters/trainer/pipeline/communicator_transfers.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/text.h"

namespace gradwire {
// A group that has NCCL knows the name as an algorithm's.
PipelineLinks links_of(Communicator& group, Device device) {
  const bool by_nccl = device.space == MemorySpace::kCuda &&
                       group.algorithm_for(OpKind::kSend, 1, "nccl").has_value();
  return by_nccl ? PipelineLinks::kOrdered : PipelineLinks::kTagged;
}

Result<CommunicatorTransfers> CommunicatorTransfers::create(Communicator& group,
                                                            const PipelineSchedule& schedule,
                                                            PipelineLinks links,
                                                            const Stream& stream) {
  if (group.size() != schedule.size()) {
    return Status(Code::kInvalidArgument,
                  format("a pipeline schedule for %d ranks on a group of %d (expected as many)",
                         schedule.size(), group.size()));
  }
  const std::int64_t tags = 2 * std::int64_t{schedule.stages()} * schedule.micro_batches;
  if (links == PipelineLinks::kTagged && tags > kMostTag + 1) {
    return Status(Code::kUnsupported,
                  format("%d stages times %d micro-batches (expected a product of at most %d)",
                         schedule.stages(), schedule.micro_batches, (kMostTag + 1) / 2));
  }
  CommunicatorTransfers made(group, schedule.micro_batches, links, stream);
  made.follows_ = links_of(group, stream.device) == PipelineLinks::kOrdered;
  if (made.follows_ && links != PipelineLinks::kOrdered) {
    return Status(Code::kInvalidArgument,
                  format("a pipeline schedule for %s links by NCCL (expected ordered ones)",
                         std::string(to_string(links)).c_str()));
  }
  return made;
}

// By the stage that sends.
int CommunicatorTransfers::tag_of(const PipelineOp& op) const {
  if (links_ == PipelineLinks::kOrdered) return 0;
  int stage = op.stage;
  if (op.kind == PipelineOpKind::kReceiveForward) --stage;
  if (op.kind == PipelineOpKind::kReceiveBackward) ++stage;
  const bool back =
      op.kind == PipelineOpKind::kSendBackward || op.kind == PipelineOpKind::kReceiveBackward;
  return (2 * stage + (back ? 1 : 0)) * micro_batches_ + op.micro;
}

OpOptions CommunicatorTransfers::options() const { return {.deadline = {}, .stream = stream_}; }

Status CommunicatorTransfers::prepare(std::size_t count) {
  under_way_.resize(std::max(under_way_.size(), count));
  followed_.reserve(under_way_.size());
  return {};
}

Status CommunicatorTransfers::send(std::size_t number, const PipelineOp& op, int peer,
                                   std::span<const std::byte> bytes) {
  const ConstTensorView message{bytes.data(),
                                Shape::vector(static_cast<std::int64_t>(bytes.size())), DType::kU8,
                                stream_.device};
  GW_ASSIGN(Work work, group_->start(OpCall::send(message, peer, tag_of(op)), options()));
  const bool forward = op.kind == PipelineOpKind::kSendForward;
  bytes_of(sent_, forward ? TrafficClass::kActivations : TrafficClass::kActivationGradients) +=
      bytes.size();
  under_way_[number].emplace(std::move(work));
  return {};
}

Status CommunicatorTransfers::receive(std::size_t number, const PipelineOp& op, int peer,
                                      std::span<std::byte> bytes) {
  const TensorView message{bytes.data(), Shape::vector(static_cast<std::int64_t>(bytes.size())),
                           DType::kU8, stream_.device};
  GW_ASSIGN(Work work, group_->start(OpCall::recv(message, peer, tag_of(op)), options()));
  under_way_[number].emplace(std::move(work));
  return {};
}

Result<bool> CommunicatorTransfers::done(std::size_t number) {
  if (!follows_ && !under_way_[number]->done()) return false;
  GW_TRY(end(number));
  return true;
}

// Others' lateness, and what of the messages' own time this rank had nothing else to do for.
Status CommunicatorTransfers::wait(std::size_t number) {
  const auto begin = std::chrono::steady_clock::now();
  const Status status = end(number);
  waited_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return status;
}

Status CommunicatorTransfers::end(std::size_t number) {
  std::optional<Work>& work = under_way_[number];
  if (!work.has_value()) return {};
  if (!follows_) {
    const Status status = work->wait();
    work.reset();
    return status;
  }
  const Status status = work->wait_on(stream_);
  followed_.push_back(std::move(*work));
  work.reset();
  return status;
}

Status CommunicatorTransfers::finish() {
  Status first;
  for (Work& work : followed_) {
    Status status = work.wait();
    if (first.ok()) first = std::move(status);
  }
  followed_.clear();
  return first;
}

void CommunicatorTransfers::stop() {
  for (std::optional<Work>& work : under_way_) work.reset();
  followed_.clear();
}

}  // namespace gradwire
