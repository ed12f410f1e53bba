// Two rounds for methods whose codes add up because all ranks use one scale:
//
//   round 0   max of fp32    scale{buckets}     every rank's own; what comes back is shared
//   round 1   sum of i32     words              codes on the shared scale, compress/shared_scale/
//                                               lane_words.h
//   mean = (2 sum - size most) half_unit / size
//
// A bucket that is not finite on any rank, or beyond fp32, has scale NaN on all of them, codes 0,
// and decodes to NaN. A scale that is negative or infinite is corrupt, and so is a sum above size *
// most.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/dither.h"
#include "compress/kernel_format.h"
#include "compress/little_endian.h"
#include "compress/shared_scale/lane_reader.h"
#include "compress/shared_scale/lane_words.h"
#include "compress/simd/line_writer.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

// Grid is a value with
//   static constexpr const char* kName;
//   std::size_t bucket_of(std::size_t rest) const;   elements of the next bucket, 1 ... rest, which
//                                                    share a scale
//   int most() const;                                codes are 0 ... most(), at most 255
//   static constexpr bool kPrepares;         prepare() writes what is coded, restore() undoes it
//   template <typename T> float prepare(const SliceKey&, std::size_t begin, std::span<const T> x,
//                                       std::span<T> prepared) const;   own scale; NaN: not finite
//   template <typename T> void restore(const SliceKey&, std::size_t begin, std::span<T> x) const;
//   double half_unit(float scale, std::size_t elems) const;   what a step of 1 in 2 code is worth
//   template <typename T> void code(std::span<const T> prepared, float own, float scale,
//                                   std::size_t begin, Dither&, std::uint8_t* codes) const;
// own is what prepare() gave, scale what ranks share: > 0, finite and not below own.
// `begin` counts elements of the tensor, buckets are handed over one by one.
template <typename Grid>
std::size_t scale_count(const Grid& grid, std::size_t elems) {
  std::size_t count = 0;
  for (; elems > 0; ++count) elems -= grid.bucket_of(elems);
  return count;
}

inline RoundKind shared_scale_round(int round) {
  return round == 0 ? RoundKind{Exchange::kAllReduceMax, DType::kF32, true}
                    : RoundKind{Exchange::kAllReduceSum, DType::kI32, true};
}

template <typename Grid>
std::size_t shared_scale_bytes(const Grid& grid, std::size_t elems, int round, int size) {
  if (round == 0) return scale_count(grid, elems) * sizeof(float);
  return LaneWords(grid.most(), size).bytes(elems);
}

template <typename T, typename Grid>
class SharedScaleCoder final : public Coder {
 public:
  SharedScaleCoder(const Grid& grid, const Shape& shape, const Compressor::Placement& where)
      : grid_(grid),
        elems_(static_cast<std::size_t>(shape.elems())),
        where_(where),
        lanes_(grid.most(), where.size),
        work_(Grid::kPrepares ? elems_ : 0),
        own_scales_(scale_count(grid, elems_)),
        scales_(own_scales_.size()),
        codes_(elems_) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    GW_TRY(check_tensor(what("grad"), grad, shape_elems(), where_.dtype));
    grad_ = grad.empty() ? std::span<const T>() : elements<T>(grad);
    key_ = {where_.seed, {step, where_.tensor, where_.rank, 0, 0}};
    absorbed_ = 0;
    for_buckets([this](std::size_t b, std::size_t begin, std::size_t count) {
      own_scales_[b] = grid_.template prepare<T>(
          key_, begin, grad_.subspan(begin, count),
          Grid::kPrepares ? std::span<T>(work_).subspan(begin, count) : std::span<T>());
    });
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    GW_TRY(check_turn("encode", round));
    const std::size_t bytes = shared_scale_bytes(grid_, elems_, round, where_.size);
    GW_TRY(check_room(what("payload"), payload.size(), bytes));
    if (round == 0) {
      for (std::size_t b = 0; b < own_scales_.size(); ++b) {
        store_le(payload.data(), own_scales_[b], b);
      }
    } else {
      write_codes();
      lanes_.pack(codes_, payload.data());
    }
    return bytes;
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_turn("absorb", round));
    if (payloads.size() != 1) {
      return {Code::kInvalidArgument, what("one reduced payload wanted")};
    }
    GW_TRY(check_length(what(round == 0 ? "scales" : "sum"), payloads[0].size(),
                        shared_scale_bytes(grid_, elems_, round, where_.size)));
    if (round == 0) {
      GW_TRY(read_scales(payloads[0]));
    } else {
      sum_ = payloads[0];
    }
    absorbed_ = round + 1;
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream&) override {
    GW_TRY(check_turn("finish", 2));
    GW_TRY(check_tensor(what("mean"), mean, shape_elems(), where_.dtype));
    if (!own.empty()) GW_TRY(check_tensor(what("own"), own, shape_elems(), where_.dtype));
    absorbed_ = -1;
    if (mean.empty()) return {};
    if (!own.empty()) {
      const std::uint8_t* codes = codes_.data();
      decode([&codes](std::size_t count) { return std::exchange(codes, codes + count); }, 1,
             elements<T>(own));
    }
    LaneReader sums(lanes_, sum_.data(), elems_);
    decode([&sums](std::size_t count) { return sums.next(count); }, where_.size, elements<T>(mean));
    if (sums.sound()) return {};
    return {Code::kCorruptPayload, what(format("a sum above %d codes of at most %d, or a free bit",
                                               where_.size, grid_.most()))};
  }

  std::vector<NamedTensor> state() override { return {}; }

 private:
  static std::string what(const std::string& text) {
    return std::string(Grid::kName) + ": " + text;
  }
  std::int64_t shape_elems() const { return static_cast<std::int64_t>(elems_); }
  std::span<const T> values() const { return Grid::kPrepares ? std::span<const T>(work_) : grad_; }

  // f(bucket, its first element, its elements)
  template <typename F>
  void for_buckets(const F& f) const {
    std::size_t begin = 0;
    for (std::size_t b = 0; b < scales_.size(); ++b) {
      const std::size_t count = grid_.bucket_of(elems_ - begin);
      f(b, begin, count);
      begin += count;
    }
  }

  Status check_turn(const char* call, int round) const {
    if (round == absorbed_) return {};
    return {Code::kInvalidArgument,
            what(format("%s of round %d out of turn (begin, then encode and absorb of rounds 0 and "
                        "1, then finish)",
                        call, round))};
  }

  Status read_scales(ConstByteSpan payload) {
    for (std::size_t b = 0; b < scales_.size(); ++b) {
      const auto scale = load_le<float>(payload.data(), b);
      if (!std::isnan(scale) && !(scale >= 0 && scale <= std::numeric_limits<float>::max())) {
        return {Code::kCorruptPayload,
                what(format("scale %zu is %g (0 or a positive finite number wanted)", b,
                            static_cast<double>(scale)))};
      }
      scales_[b] = scale;
    }
    return {};
  }

  static bool codes_something(float scale) { return scale > 0; }  // not of NaN

  void write_codes() {
    Dither dither(key_);
    for_buckets([&](std::size_t b, std::size_t begin, std::size_t count) {
      if (codes_something(scales_[b])) {
        grid_.template code<T>(values().subspan(begin, count), own_scales_[b], scales_[b], begin,
                               dither, codes_.data() + begin);
      } else {
        std::fill_n(codes_.begin() + static_cast<std::ptrdiff_t>(begin), count, std::uint8_t{0});
      }
    });
  }

  // What codes summed over `ranks` ranks say of their mean; next(count): the next sums.
  template <typename Next>
  void decode(const Next& next, int ranks, std::span<T> out) const {
    constexpr std::size_t kRun = cpu::LineWriter::kRoom / sizeof(T);
    static_assert(kRun <= LaneReader::kMost);
    // Long ranges that nothing is done to afterwards go past the caches.
    cpu::LineWriter lines(reinterpret_cast<std::byte*>(out.data()),
                          Grid::kPrepares ? 0 : out.size_bytes());
    const std::int64_t zero = std::int64_t{ranks} * grid_.most();
    for_buckets([&](std::size_t b, std::size_t begin, std::size_t count) {
      const bool codes = codes_something(scales_[b]);
      const auto factor = codes ? static_cast<T>(grid_.half_unit(scales_[b], count) / ranks) : T{0};
      for (std::size_t at = 0; at < count; at += kRun) {
        const std::size_t some = std::min(kRun, count - at);
        T* const to =
            Grid::kPrepares ? out.data() + begin + at : reinterpret_cast<T*>(lines.room());
        const auto* const sums = next(some);
        if (codes) {
          cpu::values_of<T>(sums, zero, factor, {to, some});
        } else {
          std::fill_n(to, some, static_cast<T>(scales_[b]));  // 0, or NaN
        }
        if constexpr (!Grid::kPrepares) lines.commit(some * sizeof(T));
      }
      if constexpr (Grid::kPrepares) {
        if (codes) grid_.template restore<T>(key_, begin, out.subspan(begin, count));
      }
    });
    if constexpr (!Grid::kPrepares) lines.finish();
  }

  Grid grid_;
  std::size_t elems_;
  Compressor::Placement where_;
  LaneWords lanes_;
  SliceKey key_;
  std::span<const T> grad_;
  int absorbed_ = -1;              // rounds of this step; -1: no step
  std::vector<T> work_;            // prepared values
  std::vector<float> own_scales_;  // of this rank
  std::vector<float> scales_;      // shared
  std::vector<std::uint8_t> codes_;
  ConstByteSpan sum_;  // lent until finish()
};

// With check_placement(). kUnsupported when a sum over so many ranks fits no 32-bit word.
template <typename Grid>
Result<std::unique_ptr<Coder>> make_shared_scale_coder(const Grid& grid, const Shape& shape,
                                                       const Compressor::Placement& where) {
  GW_TRY(check_placement(Grid::kName, where));
  if (!LaneWords(grid.most(), where.size).fits()) {
    return Status(Code::kUnsupported,
                  format("%s: sums of %d ranks' codes of up to %d fit no 32-bit word", Grid::kName,
                         where.size, grid.most()));
  }
  if (where.dtype == DType::kF64) {
    return std::unique_ptr<Coder>(
        std::make_unique<SharedScaleCoder<double, Grid>>(grid, shape, where));
  }
  return std::unique_ptr<Coder>(
      std::make_unique<SharedScaleCoder<float, Grid>>(grid, shape, where));
}

}  // namespace gradwire
