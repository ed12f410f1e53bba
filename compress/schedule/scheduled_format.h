// Packs each step's slices as one of several formats of the same method would.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "gradwire/wire_format.h"

namespace gradwire {

class ScheduledFormat final : public WireFormat {
 public:
  // `firsts`: the step at which each format's time begins, ascending, the first 0.
  ScheduledFormat(std::vector<std::uint64_t> firsts,
                  std::vector<std::unique_ptr<WireFormat>> formats)
      : firsts_(std::move(firsts)), formats_(std::move(formats)) {}

  bool turn_to(std::uint64_t step) override {
    const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), step);
    now_ = static_cast<std::size_t>(after - firsts_.begin()) - 1;
    return true;
  }
  std::size_t bytes(std::int64_t elems, int stage) const override {
    return now().bytes(elems, stage);
  }
  Result<std::size_t> pack(ConstTensorView src, const Slice& slice, ByteSpan wire,
                           const Stream& stream) override {
    return now().pack(src, slice, wire, stream);
  }
  Status unpack(ConstByteSpan wire, const Slice& slice, TensorView dst,
                const Stream& stream) override {
    return now().unpack(wire, slice, dst, stream);
  }
  Status unpack_add(ConstByteSpan wire, const Slice& slice, TensorView acc,
                    const Stream& stream) override {
    return now().unpack_add(wire, slice, acc, stream);
  }
  // Where all of them may be cut: nowhere if that is further than any slice reaches.
  std::int64_t seam(int stage) const override {
    std::int64_t all = 1;
    for (const auto& format : formats_) {
      const std::int64_t seam = format->seam(stage);
      if (seam < 1) return 0;
      const std::int64_t more = seam / std::gcd(all, seam);
      if (more > kFarthestSeam / all) return 0;
      all *= more;
    }
    return all;
  }
  std::vector<std::size_t> sections(std::int64_t elems, int stage) const override {
    return now().sections(elems, stage);
  }
  bool takes_feedback() const override {
    return std::all_of(formats_.begin(), formats_.end(),
                       [](const auto& format) { return format->takes_feedback(); });
  }
  Result<std::size_t> pack_with_feedback(ConstTensorView src, const Feedback& feedback,
                                         const Slice& slice, ByteSpan wire,
                                         const Stream& stream) override {
    return now().pack_with_feedback(src, feedback, slice, wire, stream);
  }
  bool folds() const override {
    return std::all_of(formats_.begin(), formats_.end(),
                       [](const auto& format) { return format->folds(); });
  }
  Result<std::size_t> fold(std::span<const Addend> addends, std::int64_t elems, const Slice& sum,
                           ByteSpan wire, const Stream& stream) override {
    return now().fold(addends, elems, sum, wire, stream);
  }

 private:
  static constexpr std::int64_t kFarthestSeam = std::int64_t{1} << 40;

  WireFormat& now() const { return *formats_[now_]; }

  std::vector<std::uint64_t> firsts_;
  std::vector<std::unique_ptr<WireFormat>> formats_;
  std::size_t now_ = 0;
};

}  // namespace gradwire
