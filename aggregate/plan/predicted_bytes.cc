#include "aggregate/plan/predicted_bytes.h"

#include <algorithm>

#include "aggregate/shards.h"
#include "base/text.h"

namespace gradwire {
namespace {

// Of a gathered block: its own length, and one for each payload, where lengths vary.
constexpr std::uint64_t kLengths = 16;

std::uint64_t unsigned_of(std::int64_t bytes) { return static_cast<std::uint64_t>(bytes); }

std::uint64_t round_bytes(const Parameter& parameter, int round, int rank, int size) {
  const Compressor& method = *parameter.compressor;
  const DType dtype = parameter.coded_dtype();
  const RoundKind kind = method.round_kind(round, dtype, size);
  const std::size_t payload = method.max_payload_bytes(parameter.grad.shape(), dtype, round, size);
  const auto others = static_cast<std::uint64_t>(size - 1);
  if (parameter.path == Path::kSum && kind.reduces()) {
    const std::size_t unit = size_of(kind.payload);
    return unit *
           unsigned_of(ring_elems_sent(static_cast<std::int64_t>(payload / unit), rank, size));
  }
  return others * (payload + (kind.fixed ? 0 : kLengths));
}

std::uint64_t shard_bytes(const Parameter& parameter, int rank, int size, AggregateForm form) {
  const auto packed = [&](int owner) {
    const Shape shard = Shape::vector(shard_of(parameter, size, owner).size());
    return parameter.compressor->max_payload_bytes(shard, parameter.coded_dtype(), 0, size);
  };
  std::uint64_t bytes = 0;
  for (int owner = 0; owner < size; ++owner) {
    const bool scatters = owner != rank && form != AggregateForm::kAllGather;
    const bool gathers = owner != rank && form != AggregateForm::kReduceScatter;
    if (scatters) bytes += packed(owner);
    if (gathers) bytes += packed(rank);
  }
  return bytes;
}

bool lengths_are_fixed(const Parameter& parameter, int size) {
  if (parameter.path == Path::kDense) return true;
  if (parameter.path == Path::kOkTopk || !parameter.compressor->traits().fixed_payload)
    return false;
  const auto rounds = rounds_of(parameter, size);
  return std::all_of(rounds.begin(), rounds.end(),
                     [](const RoundKind& kind) { return kind.fixed; });
}

std::uint64_t bytes_of(const Parameter& parameter, int rank, int size, AggregateForm form,
                       std::uint64_t dense) {
  switch (parameter.path) {
    case Path::kDense:
    case Path::kOkTopk: return dense;
    case Path::kSra: return shard_bytes(parameter, rank, size, form);
    case Path::kSum:
    case Path::kGather: break;
  }
  std::uint64_t bytes = 0;
  for (int round = 0; round < parameter.compressor->traits().rounds; ++round) {
    bytes += round_bytes(parameter, round, rank, size);
  }
  return bytes;
}

// What this rank's node sends of it from here, on the way between nodes; only its shape counts.
Parameter between_nodes(const Parameter& parameter, const NodeGroups& nodes) {
  Parameter own = parameter;
  spread_over_owners(own, own.path, nodes.owners);
  const Range range = shard_of(own, nodes.inner->size(), nodes.inner->rank());
  const bool whole = range.size() == own.grad.elems();
  own.grad = TensorView(own.grad.data(), whole ? own.grad.shape() : Shape::vector(range.size()),
                        own.grad.dtype());
  own.owners = 0;
  own.owner = -1;
  return own;
}

}  // namespace

PredictedBytes predict_bytes(std::span<const Parameter> parameters, int rank, int size,
                             AggregateForm form, const NodeGroups* nodes) {
  PredictedBytes all;
  std::uint64_t worst = 0;
  for (const Parameter& parameter : parameters) {
    const bool levels = nodes != nullptr && parameter.inner != nullptr;
    const Parameter own = levels ? between_nodes(parameter, *nodes) : parameter;
    const int place = levels ? nodes->node : rank;
    const int ranks = levels ? nodes->nodes : size;
    if (ranks == 1 || own.grad.elems() == 0) continue;
    const std::uint64_t dense = size_of(own.grad.dtype()) *
                                unsigned_of(ring_elems_sent(own.grad.elems(), place, ranks, form));
    const std::uint64_t bytes = bytes_of(own, place, ranks, form, dense);
    all.most += bytes;
    all.dense += dense;
    all.exact = all.exact && lengths_are_fixed(own, ranks);
    if (bytes <= dense || bytes - dense <= worst) continue;
    worst = bytes - dense;
    all.spec = own.compressor->spec();
    all.path = own.path;
    all.ranks = ranks;
  }
  return all;
}

std::string more_than_dense(const std::string& compressor, const PredictedBytes& predicted,
                            std::uint64_t sent, std::uint64_t dense, bool between_nodes) {
  const auto number = [](std::uint64_t bytes) { return static_cast<unsigned long long>(bytes); };
  std::string text = format(
      "compressor '%s': sends more than uncompressed gradients would: %llu bytes a rank and step "
      "measured%s, %s%llu predicted, %llu uncompressed",
      compressor.c_str(), number(sent), between_nodes ? " between nodes" : "",
      predicted.exact ? "" : "at most ", number(predicted.most), number(dense));
  if (predicted.spec.empty()) return text;
  return text + format(predicted.path == Path::kSum
                           ? " (most of it '%s', whose codes are as wide as their sum over %d "
                             "ranks)"
                           : " (most of it '%s', whose payloads each of %d ranks gets from all "
                             "others)",
                       predicted.spec.c_str(), predicted.ranks);
}

}  // namespace gradwire
