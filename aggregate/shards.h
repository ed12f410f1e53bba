// Which rank owns which elements of a parameter, and where packed shards stand in a buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aggregate/exchange.h"
#include "gradwire/buffer.h"
#include "gradwire/schedule.h"
#include "gradwire/wire_format.h"

namespace gradwire {

// Rank `rank`'s elements of the parameter among `size` ranks: one piece each, or as the parameter's
// owners say.
Range shard_of(const Parameter& parameter, int size, int rank);

// Spreads a parameter over the first `owners` ranks of a node, as the exchange between nodes by
// `path` wants it: a piece for each, or all of it for one, picked by the parameter's name.
void spread_over_owners(Parameter& parameter, Path path, int owners);

// A parameter that travels packed.
struct PackedPart {
  const Parameter* parameter = nullptr;
  std::uint64_t key = 0;  // hash of the name
  std::unique_ptr<WireFormat> format;
  bool vote = false;  // what is packed of a sum is its sign, and so is the result

  Slice slice(std::uint64_t step, int packer, int stage, const Range& elems) const {
    return {step, key, packer, stage, elems.begin};
  }
  bool feeds_back() const { return parameter->error_feedback; }
  // Results are running means of what was sent.
  bool runs() const {
    return feeds_back() && (parameter->feedback.kind == FeedbackKind::kEf21 ||
                            parameter->feedback.kind == FeedbackKind::kEf21Sgdm);
  }
  Status named(const Status& status) const {
    return status.with_context("parameter '" + parameter->name + "'");
  }
};
// Where the part's coders and residuals are, on this rank.
Compressor::Placement placement_of(const ExchangeContext& context, const PackedPart& part);
// Errors as the compressor's open_slices(), naming the parameter.
Result<std::vector<PackedPart>> open_packed(const ExchangeContext& context, const Members& members);

// Turns all parts' formats to `step`; whether any of them has lengths that follow it.
bool turn_parts(std::span<const PackedPart> parts, std::uint64_t step);

// One of the strips in which a bucket travels: every shard is cut into `count` of them, and strips
// of one index travel together. What is packed, added up and left over is the same bits whatever
// their count.
struct Strip {
  int index = 0;
  int count = 1;
  bool last() const { return index + 1 == count; }
};
// The strip's elements of the shard that rank `owner` of `size` owns: whole units of
// WireFormat::seam(), which has to be above 0 for more than one strip. Of small shards some strips
// are empty.
Range strip_of(const PackedPart& part, int size, int owner, const Strip& strip);

// All of a buffer's bytes.
inline TensorView bytes_of(const Buffer& buffer) {
  return buffer.tensor(Shape::vector(static_cast<std::int64_t>(buffer.bytes().size())), DType::kU8);
}

// Bytes for the largest shard of any of the parts, unpacked.
std::size_t largest_shard_bytes(std::span<const PackedPart> parts, int size);

// Where packed shards stand: by rank, then by part.
struct ShardLayout {
  std::vector<std::int64_t> rank_bytes;
  std::vector<std::vector<Range>> slots;  // [rank][part]
  std::size_t total = 0;

  // owner_of(r): whose shards, or strips of them, stand in rank r's place, -1 for none.
  template <typename OwnerOf>
  static ShardLayout of(std::span<const PackedPart> parts, int size, int stage, const Strip& strip,
                        OwnerOf owner_of) {
    ShardLayout layout;
    std::int64_t end = 0;
    for (int r = 0; r < size; ++r) {
      const std::int64_t begin = end;
      const int owner = owner_of(r);
      layout.slots.emplace_back();
      for (const PackedPart& part : parts) {
        const std::int64_t elems = owner < 0 ? 0 : strip_of(part, size, owner, strip).size();
        const auto bytes = static_cast<std::int64_t>(part.format->bytes(elems, stage));
        layout.slots.back().push_back({end, end + bytes});
        end += bytes;
      }
      layout.rank_bytes.push_back(end - begin);
    }
    layout.total = static_cast<std::size_t>(end);
    return layout;
  }

  Range slot(int rank, std::size_t part) const {
    return slots[static_cast<std::size_t>(rank)][part];
  }
  ByteSpan at(const Buffer& buffer, int rank, std::size_t part) const {
    const Range where = slot(rank, part);
    return buffer.bytes().subspan(static_cast<std::size_t>(where.begin),
                                  static_cast<std::size_t>(where.size()));
  }
};

}  // namespace gradwire
