#include <algorithm>
#include <cmath>
#include <limits>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/little_endian.h"
#include "compress/signsgd/sign_formats.h"
#include "compress/signsgd/signsgd_kernels.h"

namespace gradwire {
namespace {

// Small enough that a block read for its sum is still in the cache for its signs.
constexpr std::size_t kBlock = 4096;

constexpr std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

template <typename T>
class ScaledSignFormat final : public WireFormat {
 public:
  explicit ScaledSignFormat(std::int64_t bucket) : bucket_(static_cast<std::size_t>(bucket)) {}

  std::size_t bytes(std::int64_t elems, int) const override {
    const auto count = static_cast<std::size_t>(elems);
    return buckets(count) * sizeof(T) + divide_up(count, 8);
  }

  Result<std::size_t> pack(ConstTensorView src, const Slice&, ByteSpan wire,
                           const Stream&) override {
    GW_TRY(check_tensor("signsgd: src", src, src.elems(), DTypeOf<T>::kValue));
    const std::size_t length = bytes(src.elems(), 0);
    GW_TRY(check_room("signsgd: payload", wire.size(), length));
    if (src.empty()) return length;
    const auto values = elements<T>(src);
    std::byte* signs = wire.data() + buckets(values.size()) * sizeof(T);
    const bool together = bucket_of(values.size()) % 8 == 0 || buckets(values.size()) == 1;
    if (!together) cpu::pack_signs(values, signs);
    for (std::size_t b = 0; b < buckets(values.size()); ++b) {
      const auto bucket = part(values, b);
      const T scale =
          pack_bucket(bucket, together ? signs + b * bucket_of(values.size()) / 8 : nullptr);
      if (!std::isfinite(scale)) return not_finite(values, b);
      store_le(wire.data(), scale, b);
    }
    return length;
  }

  Status unpack(ConstByteSpan wire, const Slice&, TensorView dst, const Stream&) override {
    return decode(wire, false, dst);
  }
  Status unpack_add(ConstByteSpan wire, const Slice&, TensorView acc, const Stream&) override {
    return decode(wire, true, acc);
  }

 private:
  std::size_t bucket_of(std::size_t count) const { return bucket_ == 0 ? count : bucket_; }
  std::size_t buckets(std::size_t count) const {
    return count == 0 ? 0 : divide_up(count, bucket_of(count));
  }
  template <typename U>
  std::span<U> part(std::span<U> values, std::size_t b) const {
    const std::size_t size = bucket_of(values.size());
    return values.subspan(b * size, std::min(size, values.size() - b * size));
  }

  // The mean of |v| over the bucket; with `signs`, its sign bits too, in the same pass over memory.
  T pack_bucket(std::span<const T> bucket, std::byte* signs) const {
    cpu::AbsSum sum;
    for (std::size_t i = 0; i < bucket.size(); i += kBlock) {
      const auto block = bucket.subspan(i, std::min(kBlock, bucket.size() - i));
      sum.add(block);
      if (signs != nullptr) cpu::pack_signs(block, signs + i / 8);
    }
    return static_cast<T>(sum.total() / static_cast<double>(bucket.size()));
  }

  Status not_finite(std::span<const T> values, std::size_t b) const {
    const auto bucket = part(values, b);
    std::size_t i = 0;
    while (i < bucket.size() && std::isfinite(bucket[i])) ++i;
    const std::size_t first = b * bucket_of(values.size());
    if (i == bucket.size()) {
      return {Code::kInvalidArgument,
              format("signsgd: the absolute values of elements %zu to %zu of the slice add up to "
                     "more than a double holds",
                     first, first + i - 1)};
    }
    return {Code::kInvalidArgument,
            format("signsgd: element %zu of the slice is %g (a finite number wanted)", first + i,
                   static_cast<double>(bucket[i]))};
  }

  Status decode(ConstByteSpan wire, bool add, TensorView dst) const {
    GW_TRY(check_tensor("signsgd: dst", dst, dst.elems(), DTypeOf<T>::kValue));
    GW_TRY(check_length("signsgd", wire.size(), bytes(dst.elems(), 0)));
    if (dst.empty()) return {};
    const auto values = elements<T>(dst);
    const std::size_t count = buckets(values.size());
    GW_TRY(check_wire(wire, count, values.size()));
    const std::byte* signs = wire.data() + count * sizeof(T);
    for (std::size_t b = 0; b < count; ++b) {
      const auto scale = load_le<T>(wire.data(), b);
      cpu::unpack_signs(signs, b * bucket_of(values.size()), scale, add, part(values, b));
    }
    return {};
  }

  Status check_wire(ConstByteSpan wire, std::size_t count, std::size_t elems) const {
    for (std::size_t b = 0; b < count; ++b) {
      const auto scale = load_le<T>(wire.data(), b);
      if (scale >= 0 && scale <= std::numeric_limits<T>::max() && !std::signbit(scale)) continue;
      return {Code::kCorruptPayload,
              format("signsgd: the scale of bucket %zu is %g (finite and at least 0 wanted)", b,
                     static_cast<double>(scale))};
    }
    return cpu::unused_bits_clear(wire.back(), elems, 1)
               ? Status()
               : Status(Code::kCorruptPayload, "signsgd: unused bits of the last byte are set");
  }

  std::size_t bucket_;
};

}  // namespace

std::unique_ptr<WireFormat> make_scaled_sign_format(DType dtype, std::int64_t bucket) {
  if (dtype == DType::kF64) return std::make_unique<ScaledSignFormat<double>>(bucket);
  return std::make_unique<ScaledSignFormat<float>>(bucket);
}

}  // namespace gradwire
