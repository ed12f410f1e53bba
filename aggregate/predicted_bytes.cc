#include "aggregate/predicted_bytes.h"

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
  const DType dtype = parameter.grad.dtype();
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
    return parameter.compressor->max_payload_bytes(shard, parameter.grad.dtype(), 0, size);
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

}  // namespace

PredictedBytes predict_bytes(std::span<const Parameter> parameters, int rank, int size,
                             AggregateForm form) {
  PredictedBytes all;
  std::uint64_t worst = 0;
  for (const Parameter& parameter : parameters) {
    const std::uint64_t dense =
        size_of(parameter.grad.dtype()) *
        unsigned_of(ring_elems_sent(parameter.grad.elems(), rank, size, form));
    std::uint64_t bytes = 0;
    switch (parameter.path) {
      case Path::kDense:
      case Path::kOkTopk: bytes = dense; break;
      case Path::kSra: bytes = shard_bytes(parameter, rank, size, form); break;
      case Path::kSum:
      case Path::kGather:
        for (int round = 0; round < parameter.compressor->traits().rounds; ++round) {
          bytes += round_bytes(parameter, round, rank, size);
        }
        break;
    }
    all.most += bytes;
    all.dense += dense;
    all.exact = all.exact && lengths_are_fixed(parameter, size);
    if (bytes <= dense || bytes - dense <= worst) continue;
    worst = bytes - dense;
    all.spec = parameter.compressor->spec();
    all.path = parameter.path;
  }
  return all;
}

std::string more_than_dense(const std::string& compressor, const PredictedBytes& predicted,
                            std::uint64_t sent, std::uint64_t dense, int size) {
  const auto number = [](std::uint64_t bytes) { return static_cast<unsigned long long>(bytes); };
  std::string text = format(
      "compressor '%s': sends more than uncompressed gradients would: %llu bytes a rank and step "
      "measured, %s%llu predicted, %llu uncompressed",
      compressor.c_str(), number(sent), predicted.exact ? "" : "at most ", number(predicted.most),
      number(dense));
  if (predicted.spec.empty()) return text;
  return text + format(predicted.path == Path::kSum
                           ? " (most of it '%s', whose codes are as wide as their sum over %d "
                             "ranks)"
                           : " (most of it '%s', whose payloads each of %d ranks gets from all "
                             "others)",
                       predicted.spec.c_str(), size);
}

}  // namespace gradwire
