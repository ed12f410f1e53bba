// The Communicator over schedules, an executor and a transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/executor.h"
#include "collectives/operation.h"
#include "collectives/progress.h"
#include "collectives/selection.h"
#include "gradwire/communicator.h"

namespace gradwire {

class GroupCommunicator final : public Communicator {
 public:
  // Claims nothing: `id` is the group's already, on every member's engine, and released by the
  // destructor. group: job ranks by group rank; group[rank] is this one.
  GroupCommunicator(std::shared_ptr<ProgressEngine> engine, std::vector<int> group, int rank,
                    int id, CommunicatorOptions options, Segmentation segmentation = {});
  ~GroupCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->size()); }
  int job_rank(int r) const override { return (*group_)[static_cast<std::size_t>(r)]; }
  Status status() const override { return engine_->status(); }
  TransportStats transport_stats() const override { return engine_->stats(); }
  std::uint64_t bytes_sent() const override { return bytes_sent_->load(std::memory_order_relaxed); }
  std::string describe() const override;

  Result<std::unique_ptr<Communicator>> split(int color, int key) override;
  Result<Work> all_reduce(TensorView tensor, ReduceOp op, const OpOptions& options) override;
  Result<Work> reduce_scatter(ConstTensorView in, TensorView out, ReduceOp op,
                              const OpOptions& options) override;
  Result<Work> all_gather(ConstTensorView in, TensorView out, const OpOptions& options) override;
  Result<Work> all_gather_v(ConstByteSpan in, ByteSpan out, std::span<const std::int64_t> bytes,
                            const OpOptions& options) override;
  Result<Work> all_gather_unsized(ConstByteSpan in, std::vector<std::byte>& out,
                                  std::vector<std::int64_t>& bytes,
                                  const OpOptions& options) override;
  Result<Work> all_to_all(ConstTensorView in, TensorView out, const OpOptions& options) override;
  Result<Work> all_to_all_v(ConstByteSpan in, std::span<const std::int64_t> send_bytes,
                            ByteSpan out, std::span<const std::int64_t> recv_bytes,
                            const OpOptions& options) override;
  Result<Work> broadcast(TensorView tensor, int root, const OpOptions& options) override;
  Result<Work> barrier(const OpOptions& options) override;
  Result<Work> send(ConstTensorView tensor, int peer, const OpOptions& options) override;
  Result<Work> recv(TensorView tensor, int peer, const OpOptions& options) override;

 private:
  struct Call {
    std::string_view name;
    Schedule schedule;
    Operands operands;
    std::int64_t elems = -1;   // where all ranks must agree on them
    int peer = -1;             // send and recv only
    std::uint64_t number = 0;  // send and recv only
  };
  Result<Work> start(Call call, const OpOptions& options);
  Result<Work> reduction(Collective collective, std::string_view name, ConstTensorView in,
                         TensorView out, ReduceOp op, const OpOptions& options);
  static constexpr int kTryAgain = -1;
  static constexpr int kNoGroup = -2;
  Result<int> agree_on_id(int color, const std::vector<std::int64_t>& colors, int attempt);

  std::shared_ptr<ProgressEngine> engine_;
  std::shared_ptr<const std::vector<int>> group_;
  int rank_;
  int id_;
  CommunicatorOptions options_;
  Segmentation segmentation_;
  std::shared_ptr<std::atomic<std::uint64_t>> bytes_sent_;
  std::uint64_t next_operation_ = 0;
  std::vector<std::uint64_t> next_send_;  // by peer
  std::vector<std::uint64_t> next_recv_;
};

}  // namespace gradwire
