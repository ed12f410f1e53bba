// randomk on a device.
#include <utility>

#include "compress/contract.h"
#include "compress/cuda/placed_coder.h"
#include "compress/randomk/place_kernels.h"
#include "compress/randomk/randomk_device.h"
#include "compress/sparse/choice_on_device.h"
#include "compress/sparse/chosen_count.h"
#include "device/cuda/memory.h"

namespace gradwire::cuda {
namespace {

class RandomkDeviceCoder final : public PlacedCoder {
 public:
  RandomkDeviceCoder(bool exact, ChoiceOnDevice choice, const Shape& shape,
                     const Compressor::Placement& where, Verdict verdict)
      : PlacedCoder("randomk", shape.elems(), where.device, DType::kF32),
        exact_(exact),
        choice_(std::move(choice)),
        where_(where),
        verdict_(std::move(verdict)) {}

  bool takes_feedback() const override { return exact_; }
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round("randomk", round, 1));
    if (elems_ > 0) GW_TRY(draw(stream));
    return choice_.encode(source_of(grad_, feedback_), step_, payload, stream);
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_round("randomk", round, 1));
    return choice_.absorb(payloads, stream);
  }
  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check("mean", mean));
    if (!own.empty()) GW_TRY(check("own", own));
    return choice_.finish(mean, own, stream);
  }

 private:
  Status draw(const Stream& stream) {
    const OnDevice here(where_.device);
    GW_TRY(here.status());
    const PlaceDraws draws{{where_.seed, RandomUse::kPlaces, where_.tensor, kSharedRank, 0, step_},
                           static_cast<std::uint64_t>(elems_),
                           choice_.k()};
    const auto k = static_cast<std::int64_t>(choice_.k());
    const std::size_t table = static_cast<std::size_t>(elems_) * sizeof(std::uint32_t);
    GW_ASSIGN(const Scratch first, Scratch::allocate(table, stream));
    GW_CUDA(cudaMemsetAsync(first.as<std::byte>(), 0, table, native(stream)));
    GW_TRY(choice_.clear(stream));
    GW_TRY(launch("randomk: first samples", PlaceFirsts{draws, first.as<std::uint32_t>()},
                  blocks_for(k, PlaceFirsts::kThreads), stream));
    GW_TRY(launch("randomk: places", PlaceBits{draws, first.as<std::uint32_t>(), choice_.bits()},
                  blocks_for(k, PlaceBits::kThreads), stream));
    return choice_.count(verdict_.word(), stream);  // as many as were drawn: nothing is found
  }

  bool exact_;
  ChoiceOnDevice choice_;
  Compressor::Placement where_;
  Verdict verdict_;
};

}  // namespace

Result<std::unique_ptr<Coder>> make_randomk_coder(const RandomkChoice& choice,
                                                  std::unique_ptr<Coder> inner, const Shape& shape,
                                                  const Compressor::Placement& where) {
  GW_TRY(check_device_placement("randomk", where));
  GW_TRY(check_index_range("randomk", shape, kMostSparseElems - 1));
  GW_ASSIGN(auto places, ChoiceOnDevice::open("randomk", choice.k, shape.elems(), choice.factor,
                                              std::move(inner), where.device));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  return std::unique_ptr<Coder>(std::make_unique<RandomkDeviceCoder>(
      choice.exact, std::move(places), shape, where, std::move(verdict)));
}

}  // namespace gradwire::cuda
