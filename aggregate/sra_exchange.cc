// Scatter, reduce, all-gather. Every parameter is cut into one shard per rank; rank i owns shard i,
// adds up what all ranks packed of it, and packs the sum for all.
//
//   packed_scatter.h   pack shards (stage 0), add up: sum
//   packed_gather.h    pack sum (stage 1), unpack everywhere: mean = unpacked / size
//
// Both packings have error feedback: `error` on every rank, `error2` of the shard that a rank owns,
// in units of the sum. Under ef14
//   p = g + error, error <- p - unpacked (0 on the own shard, which nobody packs)
//   sum + error2 is packed, error2 <- sum + error2 - unpacked
// with the invariant: sum of means + (sum over ranks of error + error2) / size == sum of average
// gradients. Under loco both residuals forget. Under ef21 `h` is what the owners believe a rank's
// gradient to be, `average` its average over ranks, kept by the owner, and `mean` what all believe
// that average to be; both differences are packed.
// A rank sends, with B(m) the packed bytes of m elements: sum of B over the others' shards, then
// (size - 1) B(own shard).
// Source of the second residual: Tang, Yu, Lian, Zhang, Liu, "DoubleSqueeze", ICML 2019, algorithm
// 1; of ef21 both ways: Fatkhullin, Sokolov, Gorbunov, Li, Richtarik, "EF21 with bells & whistles",
// 2021, EF21-BC. Here the server's part is cut over the ranks.
#include <utility>

#include "aggregate/packed_gather.h"
#include "aggregate/packed_scatter.h"

namespace gradwire {
namespace {

class SraExchange final : public BucketExchange {
 public:
  explicit SraExchange(std::vector<PackedPart> parts)
      : parts_(std::move(parts)), sums_(parts_.size()) {}

  Status open(const ExchangeContext& context) {
    GW_ASSIGN(scatter_, PackedScatter::open(context, parts_));
    GW_ASSIGN(gather_, PackedGather::open(context, parts_, PackedGather::Of::kSum, "error2"));
    return {};
  }

  int phases() const override { return 2; }

  Result<std::size_t> encode(int phase, std::uint64_t step) override {
    if (phase == 0) return scatter_->encode(step);
    for (std::size_t t = 0; t < parts_.size(); ++t) GW_TRY(pack_sum(t, step));
    return gather_->packed_bytes();
  }
  Result<std::optional<Work>> issue(int phase) override {
    return phase == 0 ? scatter_->issue() : gather_->issue();
  }
  Status absorb(int phase, std::uint64_t) override {
    if (phase == 1) return gather_->unpack();
    for (std::size_t t = 0; t < parts_.size(); ++t) {
      if (gather_->folds(t)) continue;
      GW_ASSIGN(sums_[t], scatter_->sum(t));
    }
    return {};
  }

  std::size_t held_bytes() const override { return scatter_->held_bytes() + gather_->held_bytes(); }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> all = scatter_->state();
    for (NamedTensor& entry : gather_->state()) all.push_back(std::move(entry));
    return all;
  }

 private:
  // Sums go straight from the ranks' payloads into the result's where the format does that.
  Status pack_sum(std::size_t t, std::uint64_t step) {
    if (gather_->folds(t)) return gather_->fold(t, scatter_->addends(t), step);
    return gather_->pack(t, sums_[t], step);
  }

  std::vector<PackedPart> parts_;
  std::vector<TensorView> sums_;            // of this step, by part; the scatter's memory
  std::unique_ptr<PackedScatter> scatter_;  // both are lent parts_
  std::unique_ptr<PackedGather> gather_;
};

}  // namespace

Result<std::unique_ptr<BucketExchange>> make_sra_exchange(const ExchangeContext& context,
                                                          Members members) {
  GW_ASSIGN(auto parts, open_packed(context, members));
  auto exchange = std::make_unique<SraExchange>(std::move(parts));
  GW_TRY(exchange->open(context));
  return std::unique_ptr<BucketExchange>(std::move(exchange));
}

}  // namespace gradwire
