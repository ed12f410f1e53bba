// randomk on a device.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "compress/contract.h"
#include "compress/cuda/placed_coder.h"
#include "compress/randomk/place_kernels.h"
#include "compress/randomk/randomk_device.h"
#include "compress/sparse/choice_kernels.h"
#include "compress/sparse/chosen_count.h"
#include "compress/sparse/pair_kernels.h"
#include "gradwire/buffer.h"

namespace gradwire::cuda {
namespace {

// Memory that lasts from step to step.
struct RandomkRooms {
  Buffer bitmap;  // a bit an element, whole tiles
  Buffer starts;  // of the tiles, and the end
  Buffer picked;  // k elements each
  Buffer mean;
  Buffer own;

  static Result<RandomkRooms> open(std::size_t k, std::int64_t elems, Device device) {
    const auto tiles = static_cast<std::size_t>(blocks_for(elems, kSelectTile));
    RandomkRooms rooms;
    GW_ASSIGN(rooms.bitmap, Buffer::allocate(tiles * (kSelectTile / 8), device));
    GW_ASSIGN(rooms.starts, Buffer::allocate((tiles + 1) * sizeof(std::uint32_t), device));
    for (Buffer* const values : {&rooms.picked, &rooms.mean, &rooms.own}) {
      GW_ASSIGN(*values, Buffer::allocate(k * sizeof(float), device));
    }
    return Result<RandomkRooms>(std::move(rooms));
  }
};

class RandomkDeviceCoder final : public PlacedCoder {
 public:
  RandomkDeviceCoder(const RandomkChoice& choice, std::unique_ptr<Coder> inner, const Shape& shape,
                     const Compressor::Placement& where, RandomkRooms rooms, Verdict verdict)
      : PlacedCoder("randomk", shape.elems(), where.device, DType::kF32),
        choice_(choice),
        inner_(std::move(inner)),
        where_(where),
        rooms_(std::move(rooms)),
        verdict_(std::move(verdict)) {}

  bool takes_feedback() const override { return choice_.exact; }
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round("randomk", round, 1));
    if (elems_ > 0) {
      const OnDevice here(where_.device);
      GW_TRY(here.status());
      GW_TRY(draw(stream));
      GW_TRY(pick(stream));
    }
    GW_TRY(inner_->begin(values(rooms_.picked), step_, stream));
    return inner_->encode(0, payload, stream);
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_round("randomk", round, 1));
    return inner_->absorb(0, payloads, stream);
  }
  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check("mean", mean));
    if (!own.empty()) GW_TRY(check("own", own));
    GW_TRY(inner_->finish(values(rooms_.mean), own.empty() ? TensorView() : values(rooms_.own),
                          stream));
    if (mean.empty()) return {};
    const OnDevice here(where_.device);
    GW_TRY(here.status());
    if (!own.empty()) GW_TRY(spread(rooms_.own, own, stream));
    return spread(rooms_.mean, mean, stream);
  }

 private:
  std::int64_t tiles() const { return blocks_for(elems_, kSelectTile); }
  std::int64_t blocks() const { return std::min(tiles(), kMostBlocks); }
  std::uint32_t* bitmap() const {
    return reinterpret_cast<std::uint32_t*>(rooms_.bitmap.bytes().data());
  }
  std::uint32_t* starts() const {
    return reinterpret_cast<std::uint32_t*>(rooms_.starts.bytes().data());
  }
  TensorView values(const Buffer& of) const {
    return {of.bytes().data(), Shape::vector(static_cast<std::int64_t>(choice_.k)), DType::kF32,
            where_.device};
  }

  Status draw(const Stream& stream) {
    const PlaceDraws draws{{where_.seed, RandomUse::kPlaces, where_.tensor, kSharedRank, 0, step_},
                           static_cast<std::uint64_t>(elems_),
                           choice_.k};
    const auto k = static_cast<std::int64_t>(choice_.k);
    const std::size_t table = static_cast<std::size_t>(elems_) * sizeof(std::uint32_t);
    GW_ASSIGN(const Scratch first, Scratch::allocate(table, stream));
    GW_CUDA(cudaMemsetAsync(first.as<std::byte>(), 0, table, native(stream)));
    GW_CUDA(cudaMemsetAsync(bitmap(), 0, rooms_.bitmap.bytes().size(), native(stream)));
    GW_TRY(launch("randomk: first draws", PlaceFirsts{draws, first.as<std::uint32_t>()},
                  blocks_for(k, PlaceFirsts::kThreads), stream));
    GW_TRY(launch("randomk: places", PlaceBits{draws, first.as<std::uint32_t>(), bitmap()},
                  blocks_for(k, PlaceBits::kThreads), stream));
    const auto* const bytes = reinterpret_cast<const std::byte*>(bitmap());
    GW_TRY(verdict_.clear(stream));
    GW_TRY(launch("randomk: bits", BitmapCounts{bytes, elems_, tiles(), starts(), verdict_.word()},
                  blocks(), stream));
    return launch("randomk: starts", BitmapStarts{tiles(), k, starts(), verdict_.word()}, 1,
                  stream);
  }

  Status pick(const Stream& stream) {
    const Source source = source_of(grad_, feedback_);
    const bool packed =
        starts_at(source.grad, 16) && starts_at(source.residual, 16) && starts_at(source.next, 16);
    const PickChosen kernel{source,         tiles(),
                            bitmap(),       starts(),
                            choice_.factor, reinterpret_cast<float*>(rooms_.picked.bytes().data()),
                            packed,         verdict_.word()};
    GW_TRY(launch("randomk: pick", kernel, blocks(), stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind == 0) return {};
    return {Code::kInvalidArgument,
            format("randomk: element %llu is not finite (finite numbers wanted: most are not sent, "
                   "and would be forgotten)",
                   static_cast<unsigned long long>(finding.place))};
  }

  Status spread(const Buffer& from, TensorView dst, const Stream& stream) const {
    const SpreadChosen kernel{reinterpret_cast<const float*>(from.bytes().data()),
                              elems_,
                              tiles(),
                              bitmap(),
                              starts(),
                              starts_at(dst.data(), 16),
                              reinterpret_cast<float*>(dst.data())};
    return launch("randomk: spread", kernel, blocks(), stream);
  }

  RandomkChoice choice_;
  std::unique_ptr<Coder> inner_;
  Compressor::Placement where_;
  RandomkRooms rooms_;
  Verdict verdict_;
};

}  // namespace

Result<std::unique_ptr<Coder>> make_randomk_coder(const RandomkChoice& choice,
                                                  std::unique_ptr<Coder> inner, const Shape& shape,
                                                  const Compressor::Placement& where) {
  GW_TRY(check_device_placement("randomk", where));
  GW_TRY(check_index_range("randomk", shape, kMostSparseElems - 1));
  GW_ASSIGN(RandomkRooms rooms, RandomkRooms::open(choice.k, shape.elems(), where.device));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  return std::unique_ptr<Coder>(std::make_unique<RandomkDeviceCoder>(
      choice, std::move(inner), shape, where, std::move(rooms), std::move(verdict)));
}

}  // namespace gradwire::cuda
