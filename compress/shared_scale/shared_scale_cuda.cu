// The coder of methods whose ranks share scales, on a device.
#include <algorithm>
#include <string>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/cuda/hadamard_kernels.h"
#include "compress/cuda/placed_coder.h"
#include "compress/cuda/rest_of_own.h"
#include "compress/cuda/scale_means.h"
#include "compress/shared_scale/lane_words.h"
#include "compress/shared_scale/shared_scale_device.h"
#include "compress/shared_scale/shared_scale_kernels.h"
#include "compress/shared_scale/shared_scale_rounds.h"
#include "device/cuda/memory.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire::cuda {
namespace {

// Memory that lasts from step to step.
struct SharedScaleRooms {
  Buffer own_scales;
  Buffer buckets;
  Buffer own_words;  // this rank's codes
  Buffer work;       // transformed elements; of a method without a transform, none

  static Result<SharedScaleRooms> open(std::int64_t buckets, std::size_t words, std::size_t work,
                                       Device device) {
    const auto number = static_cast<std::size_t>(buckets);
    SharedScaleRooms rooms;
    GW_ASSIGN(rooms.own_scales, Buffer::allocate(number * sizeof(float), device));
    GW_ASSIGN(rooms.buckets, Buffer::allocate(number * sizeof(SharedBucket), device));
    GW_ASSIGN(rooms.own_words, Buffer::allocate(words, device));
    GW_ASSIGN(rooms.work, Buffer::allocate(work, device));
    return Result<SharedScaleRooms>(std::move(rooms));
  }
};

class SharedScaleDeviceCoder final : public PlacedCoder {
 public:
  SharedScaleDeviceCoder(const SharedScaleGrid& grid, const BucketPlaces& places,
                         const Compressor::Placement& where, SharedScaleRooms rooms,
                         Verdict verdict, Verdict left)
      : PlacedCoder(grid.name, places.elems, where.device, DType::kF32),
        grid_(grid),
        places_(places),
        words_(grid.most, where.size),
        where_(where),
        rooms_(std::move(rooms)),
        verdict_(std::move(verdict)),
        left_(std::move(left)) {}

  bool takes_feedback() const override { return true; }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_shared_turn(method_, "encode", round, absorbed_));
    const std::size_t count = bytes(round);
    GW_TRY(check_room(method_ + ": payload", payload.size(), count));
    if (count == 0) return count;
    const OnDevice here(device_);
    GW_TRY(here.status());
    GW_TRY(round == 0 ? write_scales(payload.first(count), stream)
                      : write_codes(payload.data(), stream));
    return count;
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_shared_turn(method_, "absorb", round, absorbed_));
    if (payloads.size() != 1) {
      return {Code::kInvalidArgument, method_ + ": expected one reduced payload"};
    }
    GW_TRY(check_length(method_ + (round == 0 ? ": scales" : ": sum"), payloads[0].size(),
                        bytes(round)));
    if (round == 0 && elems_ > 0) GW_TRY(read_scales(payloads[0], stream));
    if (round == 1) sum_ = payloads[0];
    absorbed_ = round + 1;
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check_shared_turn(method_, "finish", 2, absorbed_));
    GW_TRY(check("mean", mean));
    if (!own.empty()) GW_TRY(check("own", own));
    absorbed_ = -1;
    if (mean.empty()) return {};
    const OnDevice here(device_);
    GW_TRY(here.status());
    if (feedback_.has_value()) GW_TRY(check_left(stream));
    GW_TRY(verdict_.clear(stream));
    if (!own.empty()) GW_TRY(decode(rooms_.own_words.bytes(), false, own, stream));
    GW_TRY(decode(sum_, true, mean, stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind == 0) return {};
    return {
        Code::kCorruptPayload,
        method_ + format(": a sum above %d codes of at most %d, or a free bit, at element %llu",
                         where_.size, grid_.most, static_cast<unsigned long long>(finding.place))};
  }

 private:
  void forget() override { absorbed_ = 0; }

  std::size_t bytes(int round) const {
    return round == 0 ? static_cast<std::size_t>(places_.number()) * sizeof(float)
                      : words_.bytes(static_cast<std::size_t>(elems_));
  }
  SharedLanes lanes() const {
    return {static_cast<int>(words_.lanes()), words_.width(), words_.limit()};
  }
  SharedBucket* buckets() const {
    return reinterpret_cast<SharedBucket*>(rooms_.buckets.bytes().data());
  }

  Status write_scales(ByteSpan payload, const Stream& stream) {
    const bool feeds = feedback_.has_value();
    const ScaleMeans means{places_, grid_.scale, grid_.clip, feeds && !grid_.hadamard};
    const ByteSpan scales = rooms_.own_scales.bytes().first(payload.size());
    if (feeds) GW_TRY(verdict_.clear(stream));
    Source source = source_of(grad_, feedback_);
    if (grid_.hadamard) {
      if (feeds) {
        const SharedFinite finite{source, all_packed(source), verdict_.word()};
        GW_TRY(launch(grid_.name, finite, eights(), stream));
      }
      GW_TRY(put_hadamard(grid_.name, source, work(), transform(), false, AllCoded{}, stream));
      source = transformed();
    }
    GW_TRY(put_scales(grid_.name, source, means, scales.data(), verdict_.word(), stream));
    GW_TRY(copy_bytes(scales, device_, payload, device_, stream));
    if (!feeds) return {};
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind == 0) return {};
    return {
        Code::kInvalidArgument,
        method_ +
            format(
                ": an element from %llu on, in its bucket, is not finite (expected finite numbers)",
                static_cast<unsigned long long>(finding.place))};
  }

  std::int64_t eights() const { return blocks_for(elems_, kEight * SharedFinite::kThreads); }
  static bool all_packed(const Source& source) {
    return starts_at(source.grad, 16) && starts_at(source.residual, 16) &&
           starts_at(source.next, 16);
  }
  float* work() const { return reinterpret_cast<float*>(rooms_.work.bytes().data()); }
  Source transformed() const { return {.grad = work(), .count = elems_}; }
  HadamardPlaces transform() const {
    return HadamardPlaces::of(elems_, places_.bucket, where_.seed, where_.tensor, 0, step_, 0);
  }

  Status read_scales(ConstByteSpan scales, const Stream& stream) {
    const OnDevice here(device_);
    GW_TRY(here.status());
    GW_TRY(verdict_.clear(stream));
    const SharedBuckets kernel{
        scales.data(), places_,        grid_.most, where_.size, grid_.hadamard ? grid_.clip : 0,
        buckets(),     verdict_.word()};
    GW_TRY(
        launch(grid_.name, kernel, blocks_for(places_.number(), SharedBuckets::kThreads), stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind == 0) return {};
    return {
        Code::kCorruptPayload,
        method_ +
            format(": scale %llu is negative or infinite (expected 0 or a positive finite number)",
                   static_cast<unsigned long long>(finding.place))};
  }

  Status write_codes(std::byte* payload, const Stream& stream) {
    const Source source = source_of(grad_, feedback_);
    if (feedback_.has_value()) GW_TRY(left_.clear(stream));
    if (!grid_.hadamard) {
      const LevelCoding levels{static_cast<float>(grid_.most / 2), grid_.clips_to_own};
      return code(levels, source, payload, stream);
    }
    const CellCoding cells{static_cast<float>(0.5 * grid_.most), static_cast<float>(grid_.most),
                           grid_.cells};
    GW_TRY(code(cells, transformed(), payload, stream));
    if (!feedback_.has_value()) return {};
    const TensorView own(rooms_.work.bytes().data(), Shape::vector(elems_), DType::kF32, device_);
    GW_TRY(decode(rooms_.own_words.bytes(), false, own, stream));
    const RestOfOwn rest{source, work(), all_packed(source), kSharedLeft, left_.word()};
    return launch(grid_.name, rest, eights(), stream);
  }

  template <class Coding>
  Status code(const Coding& coding, const Source& source, std::byte* payload,
              const Stream& stream) {
    const SharedCodes<Coding> kernel{
        source,
        places_,
        coding,
        grid_.most,
        lanes(),
        buckets(),
        rooms_.own_scales.bytes().data(),
        {where_.seed, RandomUse::kDither, where_.tensor, where_.rank, 0, step_},
        payload,
        reinterpret_cast<std::uint32_t*>(rooms_.own_words.bytes().data()),
        all_packed(source),
        starts_at(payload, 4),
        left_.word()};
    return launch(grid_.name, kernel, std::min(kernel.tiles(), kMostBlocks), stream);
  }

  Status check_left(const Stream& stream) {
    GW_ASSIGN(const Finding finding, left_.read(stream));
    if (finding.kind == 0) return {};
    return {Code::kInvalidArgument,
            method_ + format(": the residual of element %llu is not finite (expected a finite "
                             "number: the method's range overflowed)",
                             static_cast<unsigned long long>(finding.place))};
  }

  Status decode(ConstByteSpan words, bool mean, TensorView dst, const Stream& stream) {
    const int ranks = mean ? where_.size : 1;
    const SharedValues kernel{words.data(),
                              starts_at(words.data(), 4),
                              places_,
                              lanes(),
                              buckets(),
                              mean,
                              std::int64_t{ranks} * grid_.most,
                              elements<float>(dst).data(),
                              starts_at(dst.data(), 16),
                              verdict_.word()};
    GW_TRY(launch(grid_.name, kernel, blocks_for(elems_, kEight * SharedValues::kThreads), stream));
    if (!grid_.hadamard) return {};
    auto* const values = reinterpret_cast<float*>(dst.data());
    return put_hadamard(grid_.name, {.grad = values, .count = elems_}, values, transform(), true,
                        CodedBlocks{buckets(), places_}, stream);
  }

  SharedScaleGrid grid_;
  BucketPlaces places_;
  LaneWords words_;
  Compressor::Placement where_;
  SharedScaleRooms rooms_;
  Verdict verdict_;
  Verdict left_;       // of what error feedback keeps
  int absorbed_ = -1;  // rounds of this step; -1: no step
  ConstByteSpan sum_;  // lent until finish()
};

}  // namespace

Result<std::unique_ptr<Coder>> make_shared_scale_coder(const SharedScaleGrid& grid,
                                                       const Shape& shape,
                                                       const Compressor::Placement& where) {
  GW_TRY(check_device_placement(grid.name, where));
  GW_TRY(check_shared_lanes(grid.name, grid.most, where.size));
  const std::int64_t elems = shape.elems();
  const std::int64_t bucket = grid.bucket == 0 ? std::max<std::int64_t>(elems, 1) : grid.bucket;
  const BucketPlaces places{elems, bucket, grid.hadamard};
  const std::size_t words = LaneWords(grid.most, where.size).bytes(static_cast<std::size_t>(elems));
  const std::size_t work = grid.hadamard ? static_cast<std::size_t>(elems) * sizeof(float) : 0;
  GW_ASSIGN(SharedScaleRooms rooms,
            SharedScaleRooms::open(places.number(), words, work, where.device));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  GW_ASSIGN(Verdict left, Verdict::open(where.device));
  return std::unique_ptr<Coder>(std::make_unique<SharedScaleDeviceCoder>(
      grid, places, where, std::move(rooms), std::move(verdict), std::move(left)));
}

}  // namespace gradwire::cuda
