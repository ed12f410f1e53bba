#include "tests/fuzz/decoder_target.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/elements.h"

namespace gradwire::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

void check(const Status& status) {
  GW_CHECK(status.ok() || status.code() == Code::kCorruptPayload);
}

// As long as the decoder wants it, if asked for. A fresh allocation of the exact size: the address
// sanitizer sees reads beyond it.
Bytes fitted(ConstByteSpan payload, std::size_t wanted, bool fit) {
  Bytes bytes(fit ? wanted : payload.size());
  std::copy_n(payload.begin(), std::min(payload.size(), bytes.size()), bytes.begin());
  return bytes;
}

struct Plan {
  Shape shape;
  DType dtype = DType::kF32;
  bool fit = false;
  int stage = 0;
  int round = 0;
};

TensorView view(Bytes& memory, const Plan& plan) { return {memory.data(), plan.shape, plan.dtype}; }

// Rank 0 of two goes through a step in which rank 1's payload of one round (of those that reduce:
// the sum) is not what it should be. Rank 1 is told the truth.
Status attack_coder(const Compressor& compressor, const Plan& plan, ConstByteSpan payload) {
  const Traits traits = compressor.traits();
  Bytes gradient(static_cast<std::size_t>(plan.shape.elems()) * size_of(plan.dtype));
  std::array<std::unique_ptr<Coder>, 2> coders;
  for (const int rank : {0, 1}) {
    const Compressor::Placement where{
        .dtype = plan.dtype, .rank = rank, .size = 2, .seed = 1, .tensor = 2};
    auto& coder = coders[static_cast<std::size_t>(rank)];
    GW_ASSIGN(coder, compressor.open(plan.shape, where));
    GW_TRY(coder->begin(view(gradient, plan), 3, {}));
  }
  std::vector<Bytes> kept;  // lent until finish()
  kept.reserve(3 * static_cast<std::size_t>(traits.rounds));
  for (int round = 0; round < traits.rounds; ++round) {
    const std::size_t first = kept.size();
    for (auto& coder : coders) {
      Bytes own(compressor.max_payload_bytes(plan.shape, plan.dtype, round, 2));
      GW_ASSIGN(const std::size_t count, coder->encode(round, own, {}));
      own.resize(count);
      kept.push_back(std::move(own));
    }
    kept.push_back(round == plan.round ? fitted(payload, kept[first + 1].size(), plan.fit)
                                       : kept[first + 1]);
    std::vector<ConstByteSpan> told;
    if (!compressor.round_kind(round, plan.dtype, 2).reduces()) told.emplace_back(kept[first]);
    told.emplace_back(kept[first + 1]);
    GW_TRY(coders[1]->absorb(round, told, {}));
    told.back() = kept[first + 2];
    GW_TRY(coders[0]->absorb(round, told, {}));
  }
  Bytes mean(gradient.size());
  Bytes own(gradient.size());
  return coders[0]->finish(view(mean, plan), view(own, plan), {});
}

void attack_slices(const Compressor& compressor, const Plan& plan, ConstByteSpan payload) {
  const Compressor::Placement where{.dtype = plan.dtype, .size = 2, .seed = 1, .tensor = 2};
  auto slices = compressor.open_slices(plan.shape, where);
  GW_CHECK(slices.has_value());
  const Slice slice{.step = 3, .tensor = 2, .rank = 1, .stage = plan.stage};
  const Bytes wire =
      fitted(payload, slices.value()->bytes(plan.shape.elems(), plan.stage), plan.fit);
  Bytes memory(static_cast<std::size_t>(plan.shape.elems()) * size_of(plan.dtype));
  const TensorView flat(memory.data(), Shape::vector(plan.shape.elems()), plan.dtype);
  check(slices.value()->unpack(wire, slice, flat, {}));
  check(slices.value()->unpack_add(wire, slice, flat, {}));
}

}  // namespace

Shape shape_of(std::uint8_t choice) {
  constexpr Shape kAll[kShapes] = {Shape::vector(7), Shape::matrix(3, 4), Shape::vector(65),
                                   Shape::matrix(20, 35), Shape::vector(1)};
  return kAll[choice % kShapes];
}

void feed_decoder(const Compressor& compressor, ConstByteSpan input) {
  if (input.size() < kHeaderBytes) return;
  const auto flags = static_cast<unsigned>(input[1]);
  Plan plan{shape_of(static_cast<std::uint8_t>(input[0])),
            (flags & 1u) != 0 ? DType::kF64 : DType::kF32, (flags & 2u) != 0,
            (flags & 4u) != 0 ? 1 : 0};
  plan.round = static_cast<int>(input[2]) % compressor.traits().rounds;
  const ConstByteSpan payload = input.subspan(kHeaderBytes);
  check(attack_coder(compressor, plan, payload));
  if (compressor.traits().elementwise) attack_slices(compressor, plan, payload);
}

}  // namespace gradwire::fuzz
