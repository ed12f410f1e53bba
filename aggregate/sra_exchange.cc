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
#include <algorithm>
#include <utility>

#include "aggregate/packed_gather.h"
#include "aggregate/packed_scatter.h"

namespace gradwire {
namespace {

// A large parameter is cut into strips, each an exchange of its own, so that one is packed or
// unpacked while another travels.
// Source: Peng, Zhu, Chen, Bao, Yi, Lan, Wu, Guo, "A generic communication scheduler for
// distributed DNN training acceleration", SOSP 2019, section 4 (partitions of a tensor).
constexpr int kMostStrips = 16;

// What the strips of a bucket share.
class Sra {
 public:
  Sra(const ExchangeContext& context, std::vector<PackedPart> parts, int strips)
      : context_(context), parts_(std::move(parts)), strips_(strips) {
    sums_.resize(parts_.size());
  }

  Status open() {
    GW_ASSIGN(scatter_, PackedScatter::open(context_, parts_, strips_));
    GW_ASSIGN(gather_,
              PackedGather::open(context_, parts_, PackedGather::Of::kSum, "error2", strips_));
    return {};
  }

  Result<std::size_t> encode(int phase, std::uint64_t step, int strip) {
    if (phase == 0) return scatter_->encode(step, strip);
    for (std::size_t t = 0; t < parts_.size(); ++t) GW_TRY(pack_sum(t, step, strip));
    return gather_->packed_bytes(strip);
  }
  Result<std::optional<Work>> issue(int phase, int strip) {
    return phase == 0 ? scatter_->issue(strip) : gather_->issue(strip);
  }
  Status absorb(int phase, int strip) {
    if (phase == 1) {
      GW_TRY(gather_->unpack(strip));
      return context_.await_lane();
    }
    for (std::size_t t = 0; t < parts_.size(); ++t) {
      if (gather_->folds(t)) continue;
      GW_ASSIGN(const TensorView sum, scatter_->sum(t, strip));
      sums_[t].resize(static_cast<std::size_t>(strips_));
      sums_[t][static_cast<std::size_t>(strip)] = sum;
    }
    return {};
  }

  std::size_t held_bytes() const { return scatter_->held_bytes() + gather_->held_bytes(); }

  std::vector<NamedTensor> state() {
    std::vector<NamedTensor> all = scatter_->state();
    for (NamedTensor& entry : gather_->state()) all.push_back(std::move(entry));
    return all;
  }

 private:
  // Sums go straight from the ranks' payloads into the result's where the format does that.
  Status pack_sum(std::size_t t, std::uint64_t step, int strip) {
    if (gather_->folds(t)) {
      return gather_->fold(t, scatter_->addends(t, strip), step, strip);
    }
    return gather_->pack(t, sums_[t][static_cast<std::size_t>(strip)], step, strip);
  }

  const ExchangeContext& context_;
  std::vector<PackedPart> parts_;
  int strips_;
  std::vector<std::vector<TensorView>> sums_;  // of this step, by part and strip: the scatter's
  std::unique_ptr<PackedScatter> scatter_;     // both are lent parts_
  std::unique_ptr<PackedGather> gather_;
};

class SraExchange final : public BucketExchange {
 public:
  SraExchange(std::shared_ptr<Sra> all, int strip) : all_(std::move(all)), strip_(strip) {}

  int phases() const override { return 2; }
  Result<std::size_t> encode(int phase, std::uint64_t step) override {
    return all_->encode(phase, step, strip_);
  }
  Result<std::optional<Work>> issue(int phase) override { return all_->issue(phase, strip_); }
  Status absorb(int phase, std::uint64_t) override { return all_->absorb(phase, strip_); }
  // The first speaks for all.
  std::size_t held_bytes() const override { return strip_ == 0 ? all_->held_bytes() : 0; }
  std::vector<NamedTensor> state() override {
    return strip_ == 0 ? all_->state() : std::vector<NamedTensor>();
  }

 private:
  std::shared_ptr<Sra> all_;
  int strip_;
};

// Equal on all ranks. Buckets of several parameters are small.
int strips_of(const ExchangeContext& context, std::span<const PackedPart> parts) {
  if (context.strip_bytes <= 0 || parts.size() != 1) return 1;
  if (!PackedScatter::goes_in_strips(context, parts.front())) return 1;
  const auto bytes = static_cast<std::int64_t>(parts.front().parameter->grad.bytes().size());
  return static_cast<int>(std::clamp<std::int64_t>(bytes / context.strip_bytes, 1, kMostStrips));
}

}  // namespace

Result<Exchanges> make_sra_exchange(const ExchangeContext& context, Members members) {
  GW_ASSIGN(auto parts, open_packed(context, members));
  const int strips = strips_of(context, parts);
  auto all = std::make_shared<Sra>(context, std::move(parts), strips);
  GW_TRY(all->open());
  Exchanges exchanges;
  for (int strip = 0; strip < strips; ++strip) {
    exchanges.push_back(std::make_unique<SraExchange>(all, strip));
  }
  return exchanges;
}

}  // namespace gradwire
