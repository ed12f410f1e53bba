// The coder of methods whose ranks share scales: compress/shared_scale/shared_scale_rounds.h.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/corrected.h"
#include "compress/dither.h"
#include "compress/kernel_format.h"
#include "compress/little_endian.h"
#include "compress/residual_writer.h"
#include "compress/shared_scale/lane_reader.h"
#include "compress/shared_scale/lane_words.h"
#include "compress/shared_scale/magnitudes.h"
#include "compress/shared_scale/shared_scale_rounds.h"
#include "compress/simd/line_writer.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

template <typename T, typename Grid>
class SharedScaleCoder final : public Coder {
 public:
  SharedScaleCoder(const Grid& grid, const Shape& shape, const Compressor::Placement& where)
      : grid_(grid),
        shape_(shape),
        elems_(static_cast<std::size_t>(shape.elems())),
        where_(where),
        lanes_(grid.most(), where.size),
        work_(Grid::kPrepares ? elems_ : 0),
        block_(work_.empty() ? 0 : grid.bucket_of(elems_)),
        own_scales_(scale_count(grid, elems_)),
        scales_(own_scales_.size()),
        codes_(elems_) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    feedback_.reset();
    return start(grad, step);
  }
  bool takes_feedback() const override { return true; }
  Status begin_with_feedback(ConstTensorView grad, const Feedback& feedback, std::uint64_t step,
                             const Stream&) override {
    GW_TRY(check_feedback(Grid::kName, grad, feedback, where_.dtype));
    feedback_ = feedback;
    sums_.resize(std::min(kRun, elems_));
    if (!Grid::kPrepares) block_.resize(sums_.size());
    return start(grad, step);
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    GW_TRY(check_shared_turn(Grid::kName, "encode", round, absorbed_));
    const std::size_t bytes = shared_scale_bytes(grid_, elems_, round, where_.size);
    GW_TRY(check_room(what("payload"), payload.size(), bytes));
    if (round == 0) {
      if (feedback_.has_value()) GW_TRY(check_finite());
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
    GW_TRY(check_shared_turn(Grid::kName, "absorb", round, absorbed_));
    if (payloads.size() != 1) {
      return {Code::kInvalidArgument, what("expected one reduced payload")};
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
    GW_TRY(check_shared_turn(Grid::kName, "finish", 2, absorbed_));
    GW_TRY(check_tensor(what("mean"), mean, shape_.elems(), where_.dtype));
    if (!own.empty()) GW_TRY(check_tensor(what("own"), own, shape_.elems(), where_.dtype));
    absorbed_ = -1;
    if (mean.empty()) return {};
    GW_TRY(left_);
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
  static constexpr std::size_t kRun = cpu::LineWriter::kRoom / sizeof(T);  // elements at a time
  static_assert(kRun <= LaneReader::kMost);

  static std::string what(const std::string& text) {
    return std::string(Grid::kName) + ": " + text;
  }

  Status start(ConstTensorView grad, std::uint64_t step) {
    GW_TRY(check_tensor(what("grad"), grad, shape_.elems(), where_.dtype));
    p_ = Corrected<T>(grad.empty() ? std::span<const T>() : elements<T>(grad));
    if (feedback_.has_value() && elems_ > 0) {
      p_.residual = elements<T>(feedback_->residual).data();
    }
    key_ = {where_.seed, {step, where_.tensor, where_.rank, 0, 0}};
    absorbed_ = 0;
    left_ = Status();
    take_scales();
    return {};
  }

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
  // f(first, elements) of runs of at most kRun, which lie in the nearest cache.
  template <typename F>
  static void for_runs(std::size_t begin, std::size_t count, const F& f) {
    for (std::size_t at = 0; at < count; at += kRun) f(begin + at, std::min(kRun, count - at));
  }

  // The values of a run. Valid until the next call.
  std::span<const T> values(std::size_t first, std::size_t count) {
    const Corrected<T> run = p_.part(first, count);
    if (run.residual == nullptr) return {run.grad, count};
    sum_ahead(run, sums_.data());
    return {sums_.data(), count};
  }

  void take_scales() {
    cpu::LineWriter work(reinterpret_cast<std::byte*>(work_.data()), work_.size() * sizeof(T));
    for_buckets([&](std::size_t b, std::size_t begin, std::size_t count) {
      BucketMagnitudes magnitudes(grid_.needs_squares());
      for_runs(begin, count, [&](std::size_t first, std::size_t some) {
        const std::span<const T> x = values(first, some);
        if constexpr (Grid::kPrepares) {
          std::copy(x.begin(), x.end(), block_.data() + (first - begin));
        } else {
          magnitudes.add(x);
        }
      });
      if constexpr (Grid::kPrepares) {
        const auto block = std::span<T>(block_).first(count);
        grid_.template prepare<T>(key_, begin, block);
        magnitudes.add(std::span<const T>(block));
        put(block, work);
      }
      own_scales_[b] = grid_.scale_of(magnitudes);
    });
    work.finish();
  }

  // Of gradient + residual: a bucket that is not finite has no scale.
  Status check_finite() const {
    Status status;
    for_buckets([&](std::size_t b, std::size_t begin, std::size_t count) {
      if (!status.ok() || !std::isnan(own_scales_[b])) return;
      for (std::size_t i = begin; i < begin + count; ++i) {
        if (std::isfinite(p_[i])) continue;
        status = {Code::kInvalidArgument,
                  what(format("element %zu of %s is %g (expected finite numbers)", i,
                              to_string(shape_).c_str(), static_cast<double>(p_[i])))};
        return;
      }
    });
    return status;
  }

  static void put(std::span<const T> block, cpu::LineWriter& lines) {
    for_runs(0, block.size(), [&](std::size_t first, std::size_t some) {
      std::memcpy(lines.room(), block.data() + first, some * sizeof(T));
      lines.commit(some * sizeof(T));
    });
  }

  Status read_scales(ConstByteSpan payload) {
    for (std::size_t b = 0; b < scales_.size(); ++b) {
      const auto scale = load_le<float>(payload.data(), b);
      if (!std::isnan(scale) && !(scale >= 0 && scale <= std::numeric_limits<float>::max())) {
        return {Code::kCorruptPayload,
                what(format("scale %zu is %g (expected 0 or a positive finite number)", b,
                            static_cast<double>(scale)))};
      }
      scales_[b] = scale;
    }
    return {};
  }

  bool codes_something(std::size_t b) const { return scales_[b] > 0; }  // not of NaN

  void code(std::size_t b, std::size_t first, std::span<const T> x, Dither& dither) {
    std::uint8_t* const codes = codes_.data() + first;
    if (codes_something(b)) {
      grid_.template code<T>(x, own_scales_[b], scales_[b], first, dither, codes);
    } else {
      std::fill_n(codes, x.size(), std::uint8_t{0});
    }
  }

  void write_codes() {
    Dither dither(key_);
    std::optional<ResidualWriter<T>> next;
    if (p_.residual != nullptr) next.emplace(*feedback_);
    for_buckets([&](std::size_t b, std::size_t begin, std::size_t count) {
      const std::uint8_t* codes = codes_.data() + begin;
      const auto own_codes = [&codes](std::size_t some) {
        return std::exchange(codes, codes + some);
      };
      if constexpr (Grid::kPrepares) {
        code(b, begin, std::span<const T>(work_).subspan(begin, count), dither);
        if (next.has_value()) decode_block(own_codes, 1, b, begin, count);
      }
      if (Grid::kPrepares && !next.has_value()) return;
      for_runs(begin, count, [&](std::size_t first, std::size_t some) {
        const std::span<const T> x = values(first, some);
        if constexpr (Grid::kPrepares) {
          next->put(x.data(), block_.data() + (first - begin), some);
        } else {
          code(b, first, x, dither);
          if (!next.has_value()) return;
          decode_run(own_codes(some), 1, b, count, std::span<T>(block_).first(some));
          next->put(x.data(), block_.data(), some);
        }
      });
    });
    if (next.has_value()) left_ = next->finish(shape_);
  }

  // What codes of bucket b, summed over `ranks` ranks, say of their mean.
  template <typename Sum>
  void decode_run(const Sum* sums, int ranks, std::size_t b, std::size_t bucket,
                  std::span<T> out) const {
    if (codes_something(b)) {
      const auto factor = static_cast<T>(grid_.half_unit(scales_[b], bucket) / ranks);
      cpu::values_of<T>(sums, std::int64_t{ranks} * grid_.most(), factor, out);
    } else {
      std::fill(out.begin(), out.end(), static_cast<T>(scales_[b]));  // 0, or NaN
    }
  }
  // A whole bucket, restored, into block_; next(count): the next sums.
  template <typename Next>
  void decode_block(const Next& next, int ranks, std::size_t b, std::size_t begin,
                    std::size_t count) {
    const auto block = std::span<T>(block_).first(count);
    for_runs(0, count, [&](std::size_t first, std::size_t some) {
      decode_run(next(some), ranks, b, count, block.subspan(first, some));
    });
    if (codes_something(b)) grid_.template restore<T>(key_, begin, block);
  }

  // What codes summed over `ranks` ranks say of their mean.
  template <typename Next>
  void decode(const Next& next, int ranks, std::span<T> out) {
    cpu::LineWriter lines(reinterpret_cast<std::byte*>(out.data()), out.size_bytes());
    for_buckets([&](std::size_t b, std::size_t begin, std::size_t count) {
      if constexpr (Grid::kPrepares) {
        decode_block(next, ranks, b, begin, count);
        put(std::span<const T>(block_).first(count), lines);
      } else {
        for_runs(begin, count, [&](std::size_t, std::size_t some) {
          T* const to = reinterpret_cast<T*>(lines.room());
          decode_run(next(some), ranks, b, count, {to, some});
          lines.commit(some * sizeof(T));
        });
      }
    });
    lines.finish();
  }

  Grid grid_;
  Shape shape_;
  std::size_t elems_;
  Compressor::Placement where_;
  LaneWords lanes_;
  SliceKey key_;
  std::optional<Feedback> feedback_;
  Corrected<T> p_{std::span<const T>()};
  int absorbed_ = -1;              // rounds of this step; -1: no step
  std::vector<T> work_;            // prepared values
  std::vector<T> block_;           // of one bucket: prepared or decoded; or a decoded run
  std::vector<T> sums_;            // a run of gradient + residual
  std::vector<float> own_scales_;  // of this rank
  std::vector<float> scales_;      // shared
  std::vector<std::uint8_t> codes_;
  Status left_;        // what is left for the next step is finite
  ConstByteSpan sum_;  // lent until finish()
};

// With check_placement(). kUnsupported when a sum over so many ranks fits no 32-bit word.
template <typename Grid>
Result<std::unique_ptr<Coder>> make_shared_scale_coder(const Grid& grid, const Shape& shape,
                                                       const Compressor::Placement& where) {
  GW_TRY(check_placement(Grid::kName, where));
  GW_TRY(check_shared_lanes(Grid::kName, grid.most(), where.size));
  if (where.dtype == DType::kF64) {
    return std::unique_ptr<Coder>(
        std::make_unique<SharedScaleCoder<double, Grid>>(grid, shape, where));
  }
  return std::unique_ptr<Coder>(
      std::make_unique<SharedScaleCoder<float, Grid>>(grid, shape, where));
}

}  // namespace gradwire
