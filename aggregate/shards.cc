#include "aggregate/shards.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/hash.h"
#include "compress/threaded_format.h"

namespace gradwire {

Range shard_of(const Parameter& parameter, int size, int rank) {
  const std::int64_t elems = parameter.grad.elems();
  if (parameter.owner >= 0) return rank == parameter.owner ? Range{0, elems} : Range{elems, elems};
  const int owners = parameter.owners > 0 ? parameter.owners : size;
  return rank < owners ? piece(elems, owners, rank) : Range{elems, elems};
}

void spread_over_owners(Parameter& parameter, Path path, int owners) {
  parameter.owners = owners;
  if (path == Path::kDense || parameter.compressor->traits().elementwise) return;
  parameter.owner =
      static_cast<int>(hash_name(parameter.name) % static_cast<std::uint64_t>(owners));
}

Compressor::Placement placement_of(const ExchangeContext& context, const PackedPart& part) {
  return {.dtype = part.parameter->grad.dtype(),
          .device = part.parameter->grad.device(),
          .rank = context.communicator.rank(),
          .size = context.communicator.size(),
          .seed = part.parameter->seed,
          .tensor = part.key};
}

Result<std::vector<PackedPart>> open_packed(const ExchangeContext& context,
                                            const Members& members) {
  std::vector<PackedPart> parts;
  for (const Parameter* member : members) {
    PackedPart part;
    part.parameter = member;
    part.key = hash_name(member->name);
    part.vote = !member->compressor->traits().mean_is_average_of_own;
    auto format = open_slices_on(context.workers, *member->compressor, member->grad.shape(),
                                 placement_of(context, part));
    if (!format.has_value()) return part.named(format.error());
    part.format = std::move(format).value();
    parts.push_back(std::move(part));
  }
  return parts;
}

bool turn_parts(std::span<const PackedPart> parts, std::uint64_t step) {
  bool follows = false;
  for (const PackedPart& part : parts) follows = part.format->turn_to(step) || follows;
  return follows;
}

Range strip_of(const PackedPart& part, int size, int owner, const Strip& strip) {
  const Range shard = shard_of(*part.parameter, size, owner);
  if (strip.count == 1) return shard;
  const std::int64_t unit = std::lcm(part.format->seam(0), part.format->seam(1));
  const Range units = piece((shard.size() + unit - 1) / unit, strip.count, strip.index);
  return {std::min(shard.begin + units.begin * unit, shard.end),
          std::min(shard.begin + units.end * unit, shard.end)};
}

std::size_t largest_shard_bytes(std::span<const PackedPart> parts, int size) {
  std::size_t most = 0;
  for (const PackedPart& part : parts) {
    for (int r = 0; r < size; ++r) {
      const auto elems = static_cast<std::size_t>(shard_of(*part.parameter, size, r).size());
      most = std::max(most, elems * size_of(part.parameter->grad.dtype()));
    }
  }
  return most;
}

}  // namespace gradwire
