// The two halves of sra by themselves, for sharded training.
//
//   reduce-scatter   packed_scatter.h; the own shard's gradient <- sum / size
//   all-gather       packed_gather.h, of the own shard as it is: all ranks, the owner included, go
//                    on with what it decodes to
//
// A vote's sum is packed and unpacked at home, so that its result is the sign and a tie 0, as under
// sra. Under ef21 the all-gather sends what the others' copies lack of the owner's values: weights
// as differences to what everybody has (as in Jia et al., "SDP4Bit", NeurIPS 2024).
#include <algorithm>
#include <utility>

#include "aggregate/packed_gather.h"
#include "aggregate/packed_scatter.h"
#include "device/ops.h"

namespace gradwire {
namespace {

class PackedReduceScatter final : public BucketExchange {
 public:
  PackedReduceScatter(const ExchangeContext& context, std::vector<PackedPart> parts)
      : context_(context), parts_(std::move(parts)) {}

  Status open() {
    GW_ASSIGN(scatter_, PackedScatter::open(context_, parts_));
    std::size_t vote = 0;
    for (const PackedPart& part : parts_) {
      if (part.vote) vote = std::max(vote, part.format->bytes(own_of(part).size(), 1));
    }
    GW_ASSIGN(vote_, Buffer::allocate(vote, context_.stream().device));
    return {};
  }

  int phases() const override { return 1; }
  Result<std::size_t> encode(int, std::uint64_t step) override { return scatter_->encode(step); }
  Result<std::optional<Work>> issue(int) override { return scatter_->issue(); }
  Status absorb(int, std::uint64_t step) override {
    for (std::size_t t = 0; t < parts_.size(); ++t) {
      GW_ASSIGN(const TensorView sum, scatter_->sum(t));
      const Status status = conclude(parts_[t], sum, step);
      if (!status.ok()) return parts_[t].named(status);
    }
    return context_.await_lane();
  }
  std::size_t held_bytes() const override { return scatter_->held_bytes(); }
  std::vector<NamedTensor> state() override { return scatter_->state(); }

 private:
  Range own_of(const PackedPart& part) const {
    return shard_of(*part.parameter, context_.communicator.size(), context_.communicator.rank());
  }
  Status conclude(const PackedPart& part, TensorView sum, std::uint64_t step) {
    if (sum.elems() == 0) return {};
    const Stream stream = context_.stream();
    const Range own = own_of(part);
    const TensorView result = part.parameter->grad.slice(own.begin, own.size());
    if (!part.vote) return scaled_copy(sum, 1.0 / context_.communicator.size(), result, stream);
    const Slice slice = part.slice(step, context_.communicator.rank(), 1, own);
    const ByteSpan room = vote_.bytes().first(part.format->bytes(own.size(), 1));
    GW_ASSIGN(const std::size_t wrote, part.format->pack(sum, slice, room, stream));
    return part.format->unpack(room.first(wrote), slice, result, stream);
  }

  const ExchangeContext& context_;
  std::vector<PackedPart> parts_;
  std::unique_ptr<PackedScatter> scatter_;  // lent parts_
  Buffer vote_;                             // where a part votes
};

class PackedAllGather final : public BucketExchange {
 public:
  PackedAllGather(const ExchangeContext& context, std::vector<PackedPart> parts)
      : context_(context), parts_(std::move(parts)) {}

  Status open() {
    GW_ASSIGN(gather_, PackedGather::open(context_, parts_, PackedGather::Of::kOwn, "shard_error"));
    return {};
  }

  int phases() const override { return 1; }
  Result<std::size_t> encode(int, std::uint64_t step) override {
    const Communicator& communicator = context_.communicator;
    for (std::size_t t = 0; t < parts_.size(); ++t) {
      const Parameter& parameter = *parts_[t].parameter;
      const Range own = shard_of(parameter, communicator.size(), communicator.rank());
      GW_TRY(gather_->pack(t, parameter.grad.slice(own.begin, own.size()), step));
    }
    return gather_->packed_bytes();
  }
  Result<std::optional<Work>> issue(int) override { return gather_->issue(); }
  Status absorb(int, std::uint64_t) override {
    GW_TRY(gather_->unpack());
    return context_.await_lane();
  }
  std::size_t held_bytes() const override { return gather_->held_bytes(); }
  std::vector<NamedTensor> state() override { return gather_->state(); }

 private:
  const ExchangeContext& context_;
  std::vector<PackedPart> parts_;
  std::unique_ptr<PackedGather> gather_;  // lent parts_
};

template <typename Exchange>
Result<std::unique_ptr<BucketExchange>> make_packed(const ExchangeContext& context,
                                                    const Members& members) {
  GW_ASSIGN(auto parts, open_packed(context, members));
  auto exchange = std::make_unique<Exchange>(context, std::move(parts));
  GW_TRY(exchange->open());
  return std::unique_ptr<BucketExchange>(std::move(exchange));
}

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_packed_shards(const ExchangeContext& context,
                                                           const Members& members) {
  return context.form == AggregateForm::kReduceScatter
             ? make_packed<PackedReduceScatter>(context, members)
             : make_packed<PackedAllGather>(context, members);
}

}  // namespace gradwire
