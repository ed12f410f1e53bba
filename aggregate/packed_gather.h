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
#include "compress/error_feedback/slice_feedback.h"
#include "gradwire/buffer.h"

namespace gradwire {

class PackedGather {
 public:
  // `values` of what: a sum over ranks, packed as such (Slice::stage 1), whose share is 1/size; or
  // the rank's own, as they are.
  enum class Of : std::uint8_t { kSum, kOwn };
  // Both are lent and outlive it. Residuals are called "<parameter>.<residual>". Strips as
  // PackedScatter's.
  static Result<std::unique_ptr<PackedGather>> open(const ExchangeContext& context,
                                                    std::span<const PackedPart> parts, Of of,
                                                    std::string_view residual, int strips = 1);

  // Packs part t's own shard, all parts once a step, one way or the other; pack() may change
  // `values`. Errors name the parameter.
  Status pack(std::size_t t, TensorView values, std::uint64_t step, int strip = 0);
  bool folds(std::size_t t) const;
  Status fold(std::size_t t, std::span<const Addend> addends, std::uint64_t step, int strip = 0);
  std::size_t packed_bytes(int strip = 0) const {
    return lanes_[static_cast<std::size_t>(strip)].send.bytes().size();
  }
  Result<std::optional<Work>> issue(int strip = 0);
  // The results become the parameters' gradients, on all ranks alike.
  Status unpack(int strip = 0);

  // Without state(): payloads, and one shard's values.
  std::size_t held_bytes() const;
  std::vector<NamedTensor> state();

 private:
  struct Held {
    std::unique_ptr<SliceFeedback> feedback;  // of a residual; null without
    Buffer mean_buffer;                       // of ef21
    TensorView mean;
  };
  // What is under way of one strip.
  struct Lane {
    Strip strip;
    ShardLayout results;
    Buffer send, receive;
  };

  PackedGather(const ExchangeContext& context, std::span<const PackedPart> parts, Of of,
               std::string_view residual, int strips);
  void lay_out(Lane& lane) const;
  Status allocate();
  Status allocate(Lane& lane) const;
  // The first of a step's calls, where lengths follow the step: all strips' layouts, and memory
  // that fits them.
  Status turn_to(std::uint64_t step);
  Stream stream() const { return context_.stream(); }
  int stage() const { return of_ == Of::kSum ? 1 : 0; }
  double share(const PackedPart& part) const;
  Lane& lane(int strip) { return lanes_[static_cast<std::size_t>(strip)]; }
  ByteSpan own_wire(std::size_t t, Lane& lane) const;
  Status pack_shard(std::size_t t, TensorView values, Lane& lane);
  Status pack_strip(std::size_t t, TensorView values, const Range& own, ByteSpan wire);
  Status unpack_part(std::size_t t, Lane& lane);

  const ExchangeContext& context_;
  std::span<const PackedPart> parts_;
  Of of_;
  std::string residual_;
  int rank_;
  int size_;
  std::vector<Held> held_;
  Buffer decoded_;  // one shard's values
  std::vector<Lane> lanes_;
  std::uint64_t step_ = 0;
  std::optional<std::uint64_t> laid_out_;  // the step, where turn_to() was called
};

}  // namespace gradwire
