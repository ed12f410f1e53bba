#include "bench/nmse_ways.h"

#include <algorithm>

#include "base/elements.h"
#include "compress/contract.h"

namespace gradwire {
namespace {

constexpr std::uint64_t kTensor = 77;

// Encodes and decodes slices for any rank: the packer's place is part of the slice, not of the
// format.
class Codec {
 public:
  static Result<Codec> open(const Compressor& compressor, std::int64_t elems, std::uint64_t seed) {
    GW_ASSIGN(auto format,
              compressor.open_slices(Shape::vector(elems), {.seed = seed, .tensor = kTensor}));
    format->turn_to(seed);  // as coders do: slices name it as their step
    return Codec(std::move(format), seed);
  }

  // acc += what rank `rank`'s encoding of x decodes to. Stages count a rank's encodings.
  Status add(std::span<const float> x, int rank, int stage, std::int64_t first,
             std::span<float> acc) {
    const Slice slice{
        .step = seed_, .tensor = kTensor, .rank = rank, .stage = stage, .first = first};
    wire_.resize(format_->bytes(static_cast<std::int64_t>(x.size()), stage));
    GW_ASSIGN(const std::size_t count, format_->pack(const_view_of<float>(x), slice, wire_, {}));
    GW_TRY(check_length("nmse", count, wire_.size()));
    return format_->unpack_add(wire_, slice, view_of(acc), {});
  }
  std::size_t bytes(std::size_t elems) const {
    return format_->bytes(static_cast<std::int64_t>(elems), 0);
  }

 private:
  Codec(std::unique_ptr<WireFormat> format, std::uint64_t seed)
      : format_(std::move(format)), seed_(seed) {}

  std::unique_ptr<WireFormat> format_;
  std::uint64_t seed_;
  std::vector<std::byte> wire_;
};

using Gradients = std::span<const std::vector<float>>;

Status gather(Codec& codec, Gradients grads, NmseSum& result) {
  for (std::size_t r = 0; r < grads.size(); ++r) {
    GW_TRY(codec.add(grads[r], static_cast<int>(r), 0, 0, result.sum));
  }
  result.payload = codec.bytes(grads[0].size());
  return {};
}

// Chunks [c d / n, (c + 1) d / n).
struct Chunk {
  std::size_t first;
  std::size_t count;
  std::span<const float> of(const std::vector<float>& x) const {
    return std::span(x).subspan(first, count);
  }
};
Chunk chunk_of(std::size_t c, std::size_t parts, std::size_t elems) {
  const std::size_t first = c * elems / parts;
  return {first, (c + 1) * elems / parts - first};
}

Status sra(Codec& codec, Gradients grads, NmseSum& result) {
  for (std::size_t owner = 0; owner < grads.size(); ++owner) {
    const Chunk chunk = chunk_of(owner, grads.size(), grads[0].size());
    const auto first = static_cast<std::int64_t>(chunk.first);
    const auto own = chunk.of(grads[owner]);
    std::vector<float> sum(own.begin(), own.end());
    for (std::size_t r = 0; r < grads.size(); ++r) {
      if (r == owner) continue;
      GW_TRY(codec.add(chunk.of(grads[r]), static_cast<int>(r), 0, first, sum));
    }
    GW_TRY(codec.add(sum, static_cast<int>(owner), 1, first,
                     std::span(result.sum).subspan(chunk.first, chunk.count)));
    result.payload += codec.bytes(chunk.count);
  }
  return {};
}

Status ring(Codec& codec, Gradients grads, NmseSum& result) {
  const std::size_t ranks = grads.size();
  for (std::size_t c = 0; c < ranks; ++c) {
    const Chunk chunk = chunk_of(c, ranks, grads[0].size());
    const auto first = static_cast<std::int64_t>(chunk.first);
    std::size_t at = (c + 1) % ranks;
    const auto start = chunk.of(grads[at]);
    std::vector<float> sum(start.begin(), start.end());
    for (std::size_t hop = 1; hop < ranks; ++hop) {
      const std::size_t next = (at + 1) % ranks;
      const auto own = chunk.of(grads[next]);
      std::vector<float> more(own.begin(), own.end());
      GW_TRY(codec.add(sum, static_cast<int>(at), 0, first, more));
      sum = std::move(more);
      at = next;
    }
    GW_TRY(codec.add(sum, static_cast<int>(at), 1, first,
                     std::span(result.sum).subspan(chunk.first, chunk.count)));
    result.payload += codec.bytes(chunk.count);
  }
  return {};
}

Status doubling(Codec& codec, Gradients grads, NmseSum& result) {
  std::vector<std::vector<float>> sums(grads.begin(), grads.end());
  const std::size_t elems = grads[0].size();
  int stage = 0;
  for (std::size_t distance = 1; distance < sums.size(); distance *= 2, ++stage) {
    std::vector<std::vector<float>> next(sums.size(), std::vector<float>(elems));
    for (std::size_t r = 0; r < sums.size(); ++r) {
      GW_TRY(codec.add(sums[r], static_cast<int>(r), stage, 0, next[r]));
    }
    for (std::size_t r = 0; r < sums.size(); ++r) {
      const auto& low = next[std::min(r, r ^ distance)];
      const auto& high = next[std::max(r, r ^ distance)];
      for (std::size_t i = 0; i < elems; ++i) sums[r][i] = low[i] + high[i];
    }
  }
  result.sum = sums[0];
  result.payload = codec.bytes(elems);
  return {};
}

}  // namespace

Result<NmseSum> combine_by_slices(const Compressor& compressor, NmseCombine way, std::uint64_t seed,
                                  Gradients grads) {
  GW_ASSIGN(Codec codec, Codec::open(compressor, static_cast<std::int64_t>(grads[0].size()), seed));
  NmseSum result;
  result.sum.resize(grads[0].size());
  switch (way) {
    case NmseCombine::kGather: GW_TRY(gather(codec, grads, result)); break;
    case NmseCombine::kSra: GW_TRY(sra(codec, grads, result)); break;
    case NmseCombine::kRing: GW_TRY(ring(codec, grads, result)); break;
    case NmseCombine::kDoubling: GW_TRY(doubling(codec, grads, result)); break;
    case NmseCombine::kNone:
      return Status(Code::kInvalidArgument, "nmse: one gradient has nothing to combine");
  }
  return result;
}

Result<NmseSum> through_coder(const Compressor& compressor, std::uint64_t seed,
                              const std::vector<float>& grad, int matrix_rows) {
  const auto elems = static_cast<std::int64_t>(grad.size());
  const Shape shape =
      matrix_rows == 0 ? Shape::vector(elems) : Shape::matrix(matrix_rows, elems / matrix_rows);
  GW_ASSIGN(auto coder, compressor.open(shape, {.seed = seed, .tensor = kTensor}));
  GW_TRY(coder->begin({reinterpret_cast<const std::byte*>(grad.data()), shape, DType::kF32}, seed,
                      {}));
  NmseSum result;
  result.sum.resize(grad.size());
  std::vector<std::vector<std::byte>> payloads;  // lent until finish()
  for (int round = 0; round < compressor.traits().rounds; ++round) {
    auto& payload = payloads.emplace_back(compressor.max_payload_bytes(shape, DType::kF32, round));
    GW_ASSIGN(const std::size_t count, coder->encode(round, payload, {}));
    const ConstByteSpan sent = ConstByteSpan(payload).first(count);
    GW_TRY(coder->absorb(round, std::span(&sent, 1), {}));
    result.payload += count;
  }
  GW_TRY(
      coder->finish({reinterpret_cast<std::byte*>(result.sum.data()), shape, DType::kF32}, {}, {}));
  return result;
}

}  // namespace gradwire
