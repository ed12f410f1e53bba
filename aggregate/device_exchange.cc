#include "aggregate/device_exchange.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "aggregate/shards.h"
#include "base/elements.h"
#include "base/text.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire {
namespace {

// One all-reduce of the bucket's gradients where they lie, then one multiplication by 1/size: the
// sums of the exchange on the host, bit for bit, since both add up the same elements as one tensor.
// Gradients of 16 bits are added by owners, in fp32, and the mean is rounded once, as there.
class DenseOnDevice final : public BucketExchange {
 public:
  DenseOnDevice(const ExchangeContext& context, Members members)
      : context_(context), members_(std::move(members)) {}

  int phases() const override { return 1; }

  Result<std::size_t> encode(int, std::uint64_t) override {
    tensors_.clear();
    std::size_t bytes = 0;
    for (const Parameter* member : members_) {
      tensors_.push_back(member->grad);
      bytes += member->grad.bytes().size();
    }
    return bytes;
  }

  Result<std::optional<Work>> issue(int) override {
    const std::string_view algorithm =
        narrow() ? "canonical" : std::string_view(context_.algorithm);
    const ReduceOp op = narrow() ? ReduceOp::kMean : ReduceOp::kSum;
    GW_ASSIGN(Work work,
              context_.communicator.all_reduce_fused(
                  tensors_, op,
                  {.algorithm = algorithm, .deadline = std::nullopt, .stream = context_.stream()}));
    return std::optional<Work>(std::move(work));
  }

  Status absorb(int, std::uint64_t) override {
    if (const int size = context_.communicator.size(); size > 1 && !narrow()) {
      for (const TensorView& tensor : tensors_) {
        if (!tensor.empty()) GW_TRY(scale(tensor, 1.0 / size, context_.stream()));
      }
    }
    return context_.await_lane();
  }

 private:
  bool narrow() const { return is_narrow(members_.front()->grad.dtype()); }

  const ExchangeContext& context_;
  Members members_;
  std::vector<TensorView> tensors_;  // of this step
};

// Payloads one after another, a block a rank, gathered. Where lengths vary a table of them, i64 for
// each coder, goes ahead through host memory.
class GatherOnDevice final : public RoundExchange {
 public:
  GatherOnDevice(const ExchangeContext& context, std::vector<CodedParameter>& coders, int round)
      : context_(context),
        coders_(coders),
        round_(round),
        size_(static_cast<std::size_t>(context.communicator.size())),
        sums_(coders.size()) {}

  Status open() {
    std::size_t most = 0;
    std::size_t most_sum = 0;
    const Device device = context_.stream().device;
    for (std::size_t i = 0; i < coders_.size(); ++i) {
      const CodedRound* mine = round_of(coders_[i], round_);
      if (mine == nullptr) continue;
      most += mine->bytes;
      fixed_ = fixed_ && mine->kind.fixed;
      if (!mine->kind.reduces()) continue;
      most_sum = std::max(most_sum, mine->bytes);
      GW_ASSIGN(sums_[i], Buffer::allocate(mine->bytes, device));
    }
    GW_ASSIGN(own_, Buffer::allocate(most, device));
    GW_ASSIGN(all_, Buffer::allocate(fixed_ ? most * size_ : 0, device));
    GW_ASSIGN(next_, Buffer::allocate(most_sum, device));
    return {};
  }

  Result<std::size_t> encode() override {
    GW_ASSIGN(filled_,
              encode_all(coders_, round_, own_.bytes(), lengths_, nullptr, context_.stream()));
    return filled_;
  }

  Result<std::optional<Work>> issue() override {
    std::vector<std::int64_t> own(lengths_.begin(), lengths_.end());
    table_.clear();
    for (std::size_t rank = 0; rank < size_; ++rank) {
      table_.insert(table_.end(), own.begin(), own.end());
    }
    if (!fixed_) GW_TRY(learn_lengths(own));
    counts_.assign(size_, 0);
    for (std::size_t k = 0; k < table_.size(); ++k) counts_[k / coders_.size()] += table_[k];
    const auto total = std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
    if (total == 0) return std::optional<Work>();
    if (all_.bytes().size() < static_cast<std::size_t>(total)) {
      GW_ASSIGN(all_, Buffer::allocate(static_cast<std::size_t>(total), context_.stream().device));
    }
    const TensorView in = bytes_of(own_).slice(0, static_cast<std::int64_t>(filled_));
    const TensorView out = bytes_of(all_).slice(0, total);
    Communicator& communicator = context_.communicator;
    GW_ASSIGN(Work work,
              fixed_ ? communicator.all_gather(in, out, context_.payload_options())
                     : communicator.all_gather_v(in, out, counts_, context_.payload_options()));
    return std::optional<Work>(std::move(work));
  }

  Status absorb() override {
    for (std::size_t i = 0; i < coders_.size(); ++i) {
      if (round_of(coders_[i], round_) == nullptr) continue;
      const Status status = absorb_one(i);
      if (!status.ok()) {
        return status.with_context("parameter '" + coders_[i].parameter->name + "'");
      }
    }
    return {};
  }

  std::size_t held_bytes() const override {
    std::size_t bytes = own_.bytes().size() + all_.bytes().size() + next_.bytes().size();
    for (const Buffer& sum : sums_) bytes += sum.bytes().size();
    return bytes;
  }

 private:
  std::int64_t length(std::size_t rank, std::size_t coder) const {
    return table_[rank * coders_.size() + coder];
  }

  // Of all ranks' payloads, which come from the network.
  Status learn_lengths(const std::vector<std::int64_t>& own) {
    GW_ASSIGN(Work work, context_.communicator.all_gather(const_view_of(std::span(own)),
                                                          view_of(std::span(table_))));
    GW_TRY(work.wait());
    for (std::size_t k = 0; k < table_.size(); ++k) {
      const CodedParameter& coded = coders_[k % coders_.size()];
      const CodedRound* mine = round_of(coded, round_);
      const std::size_t most = mine == nullptr ? 0 : mine->bytes;
      if (table_[k] >= 0 && static_cast<std::uint64_t>(table_[k]) <= most) continue;
      return {Code::kCorruptPayload,
              format("rank %zu's payload of parameter '%s' has %lld bytes (expected at most %zu)",
                     k / coders_.size(), coded.parameter->name.c_str(),
                     static_cast<long long>(table_[k]), most)};
    }
    return {};
  }

  // By rank.
  std::vector<ConstByteSpan> payloads_of(std::size_t coder) const {
    std::vector<ConstByteSpan> payloads;
    std::int64_t block = 0;
    for (std::size_t rank = 0; rank < size_; ++rank) {
      std::int64_t begin = block;
      for (std::size_t i = 0; i < coder; ++i) begin += length(rank, i);
      payloads.push_back(all_.bytes().subspan(static_cast<std::size_t>(begin),
                                              static_cast<std::size_t>(length(rank, coder))));
      block += counts_[rank];
    }
    return payloads;
  }

  Status absorb_one(std::size_t i) {
    const Stream stream = context_.stream();
    const std::vector<ConstByteSpan> payloads = payloads_of(i);
    const RoundKind& kind = round_of(coders_[i], round_)->kind;
    if (!kind.reduces()) return coders_[i].coder->absorb(round_, payloads, stream);
    GW_TRY(reduce_payloads(payloads, kind, stream, sums_[i], next_));
    const std::array<ConstByteSpan, 1> sum{sums_[i].bytes().first(payloads[0].size())};
    return coders_[i].coder->absorb(round_, sum, stream);
  }

  const ExchangeContext& context_;
  std::vector<CodedParameter>& coders_;
  int round_;
  std::size_t size_;
  bool fixed_ = true;
  Buffer own_;
  Buffer all_;                // as much as was received so far
  std::vector<Buffer> sums_;  // by coder: where payloads reduce
  Buffer next_;
  std::size_t filled_ = 0;            // bytes of own payloads
  std::vector<std::size_t> lengths_;  // of each of them
  std::vector<std::int64_t> table_;   // of all ranks': by rank, then by coder
  std::vector<std::int64_t> counts_;  // bytes by rank
};

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_dense_exchange_on_device(
    const ExchangeContext& context, Members members) {
  return std::unique_ptr<BucketExchange>(
      std::make_unique<DenseOnDevice>(context, std::move(members)));
}

Result<std::unique_ptr<RoundExchange>> make_gather_round_on_device(
    const ExchangeContext& context, std::vector<CodedParameter>& coders, int round) {
  auto exchange = std::make_unique<GatherOnDevice>(context, coders, round);
  GW_TRY(exchange->open());
  return std::unique_ptr<RoundExchange>(std::move(exchange));
}

}  // namespace gradwire
