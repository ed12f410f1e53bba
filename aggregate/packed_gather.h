// Every owner's shard, packed once, to all ranks: the second half of sra, and a compressed
// all-gather.
//
//   p = what error feedback makes of the own shard's values (slice_feedback.h)
//   pack p, to everybody
//   result = unpacked * share, the owner's own shard included, so that replicas stay equal
//
// Under ef21 the results run: mean <- mean + unpacked * share, kept whole on every rank, and the
// owner packs what the mean lacks of its values. With B(m) the packed bytes of m elements a rank
// sends (size - 1) B(own shard).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aggregate/exchange.h"
#include "aggregate/shards.h"
#include "aggregate/slice_feedback.h"
#include "gradwire/buffer.h"

namespace gradwire {

class PackedGather {
 public:
  // `values` of what: a sum over ranks, packed as such (Slice::stage 1), whose share is 1/size; or
  // the rank's own, as they are.
  enum class Of : std::uint8_t { kSum, kOwn };
  // Both are lent and outlive it. Residuals are called "<parameter>.<residual>".
  static Result<std::unique_ptr<PackedGather>> open(const ExchangeContext& context,
                                                    std::span<const PackedPart> parts, Of of,
                                                    std::string_view residual);

  // Packs part t's own shard, all parts once a step, one way or the other; pack() may change
  // `values`. Errors name the parameter.
  Status pack(std::size_t t, TensorView values, std::uint64_t step);
  bool folds(std::size_t t) const;
  Status fold(std::size_t t, std::span<const Addend> addends, std::uint64_t step);
  std::size_t packed_bytes() const { return send_.size(); }
  Result<std::optional<Work>> issue();
  // The results become the parameters' gradients, on all ranks alike.
  Status unpack();

  // Without state(): payloads, and one shard's values.
  std::size_t held_bytes() const {
    return send_.size() + receive_.size() + decoded_.bytes().size();
  }
  std::vector<NamedTensor> state();

 private:
  struct Held {
    std::unique_ptr<SliceFeedback> feedback;  // of a residual; null without
    Buffer mean_buffer;                       // of ef21
    TensorView mean;
  };

  PackedGather(const ExchangeContext& context, std::span<const PackedPart> parts, Of of,
               std::string_view residual);
  Status allocate();
  int stage() const { return of_ == Of::kSum ? 1 : 0; }
  double share(const PackedPart& part) const;
  ByteSpan own_wire(std::size_t t);
  Status pack_shard(std::size_t t, TensorView values);
  Status unpack_part(std::size_t t);

  const ExchangeContext& context_;
  std::span<const PackedPart> parts_;
  Of of_;
  std::string residual_;
  int rank_;
  int size_;
  std::vector<Held> held_;
  Buffer decoded_;  // one shard's values
  ShardLayout results_;
  std::vector<std::byte> send_, receive_;
  std::uint64_t step_ = 0;
};

}  // namespace gradwire
