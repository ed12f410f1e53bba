// Every rank's shards, packed, to their owners, who add them up in rank order: the first half of
// sra, and a compressed reduce-scatter.
//
//   p = what error feedback makes of the gradient (slice_feedback.h), else the gradient
//   stage 0   pack every shard but one's own, each to its owner
//   sum = own p and the received shards, added in rank order
//
// Under ef21 what was sent are differences, and the sum is `size` times a running average:
// average <- average + sum / size. A majority vote counts its own shard as signs. Where error
// feedback scales (1/(1+omega)), every unpacked value is multiplied by the scale. With B(m) the
// packed bytes of m elements a rank sends the sum of B over the others' shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "aggregate/exchange.h"
#include "aggregate/shards.h"
#include "compress/error_feedback/slice_feedback.h"
#include "gradwire/buffer.h"

namespace gradwire {

class PackedScatter {
 public:
  // Both are lent and outlive it. More than one strip: each does what follows once a step, in the
  // order of their indices, and `parts` are of a kind that goes_in_strips().
  static Result<std::unique_ptr<PackedScatter>> open(const ExchangeContext& context,
                                                     std::span<const PackedPart> parts,
                                                     int strips = 1);
  // Whether a part's shards can be packed strip by strip: not where error feedback wants the whole
  // tensor at once, or a majority is asked.
  static bool goes_in_strips(const ExchangeContext& context, const PackedPart& part);

  // Packs all parts; returns the bytes written.
  Result<std::size_t> encode(std::uint64_t step, int strip = 0);
  Result<std::optional<Work>> issue(int strip = 0);
  // What follows is for after the exchange, once a step for every part: one or the other.
  //
  // The sum over ranks of part t's own shard: memory of this object's, which the caller may change.
  Result<TensorView> sum(std::size_t t, int strip = 0);
  // The same as addends, by rank, for WireFormat::fold(); without error feedback and votes only.
  std::vector<Addend> addends(std::size_t t, int strip = 0);

  // Without state(): payloads, sums of the own shards, and one shard's values.
  std::size_t held_bytes() const;
  // "<parameter>.error" and the like.
  std::vector<NamedTensor> state();

 private:
  struct Held {
    std::unique_ptr<SliceFeedback> feedback;  // null without
    TensorView values;                        // of this step: what is packed
    Buffer sum_buffer;
    Buffer average_buffer;  // of ef21
    TensorView sum;
    TensorView average;
  };
  // What is under way of one strip.
  struct Lane {
    Strip strip;
    ShardLayout sent, received;
    Buffer send, receive;
  };

  PackedScatter(const ExchangeContext& context, std::span<const PackedPart> parts, int strips);
  void lay_out(Lane& lane) const;
  Status allocate();
  Status allocate(Lane& lane) const;
  // Where lengths follow the step: all strips' layouts, and memory that fits them.
  Status turn_to(std::uint64_t step);
  Stream stream() const { return context_.stream(); }
  // Error feedback and packing, the own shard aside, are one pass over memory.
  bool packs_in_one_pass(std::size_t t) const;
  Lane& lane(int strip) { return lanes_[static_cast<std::size_t>(strip)]; }
  TensorView sum_of(std::size_t t, const Range& own) const;
  Status pack(std::size_t t, Lane& lane);
  Status pack_shard(std::size_t t, int owner, Lane& lane);
  Status add_own(std::size_t t, const Range& own, bool first);
  Status add_received(std::size_t t, const Range& own, int r, Lane& lane);
  Status run_average(std::size_t t);

  const ExchangeContext& context_;
  std::span<const PackedPart> parts_;
  int rank_;
  int size_;
  std::vector<Held> held_;
  Buffer decoded_;  // one shard's values
  std::vector<Lane> lanes_;
  Buffer own_vote_;  // where a part votes
  std::uint64_t step_ = 0;
};

}  // namespace gradwire
