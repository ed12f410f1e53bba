// What layers exchange with the ranks that share their tensors, as operations of a communicator.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/work.h"
#include "trainer/layer_peers.h"
#include "trainer/spans.h"

namespace gradwire {

// Sums are folded in rank order ("canonical"), so that their bits depend on nothing but the ranks'
// parts; on a device whose group has NCCL they are NCCL's, which the stream waits for. Over
// messages the host waits in await(). Deadlines are the communicator's: each exchange has one.
class CommunicatorPeers final : public LayerPeers {
 public:
  // The group, of Scope::kTensor, is borrowed. stream: where layers compute; memory is that
  // device's.
  explicit CommunicatorPeers(Communicator& group, const Stream& stream = {});

  int ranks() const override { return group_->size(); }
  int rank() const override { return group_->rank(); }
  void await() override;
  void finish() override;
  Status status() const override { return status_; }

  double waited_seconds() const override { return waited_seconds_; }

  // Bytes that this rank has sent in exchanges that have ended, since this object's birth; over
  // NCCL that were started, and the least that they send. The group may be one that others send
  // over, too.
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  // Exchanges that were started since its birth.
  std::int64_t exchanges() const { return exchanges_; }
  // Tells `told` of every exchange, for this object's life, and layers of what they compute beside
  // one; null: nothing is told.
  void tell(const OnTrainerSpan* told) { told_ = told; }
  const OnTrainerSpan* told() const override { return under_way_.empty() ? nullptr : told_; }

 private:
  struct UnderWay {
    Work work;
    std::string_view name;
    std::chrono::steady_clock::time_point begin;
  };
  void sum(ByteSpan values, DType type) override;
  void max(ByteSpan values, DType type) override;
  void gather(ConstByteSpan mine, ByteSpan all, DType type) override;
  void scatter_sum(ConstByteSpan all, ByteSpan mine, DType type) override;
  void exchange(std::span<const Bytes> messages, DType type) override;
  template <typename Byte>
  BasicTensorView<Byte> view(std::span<Byte> bytes, DType type) const;
  std::uint64_t least_sent(const OpCall& call) const;
  void start(const OpCall& call, std::string_view name);
  void keep(const Status& ended, std::string_view name);
  void drop_followed();
  void start_all(std::span<const OpCall> calls, std::string_view algorithm, std::string_view name);

  Communicator* group_;
  Stream stream_;
  bool follows_;  // the stream waits, not the host
  Status status_;
  std::vector<UnderWay> under_way_;
  std::deque<UnderWay> followed_;  // awaited by the stream, oldest first
  std::uint64_t sent_before_ = 0;  // the oldest that is under way, by the group
  std::uint64_t bytes_sent_ = 0;
  double waited_seconds_ = 0;
  std::int64_t exchanges_ = 0;
  const OnTrainerSpan* told_ = nullptr;
};

}  // namespace gradwire
