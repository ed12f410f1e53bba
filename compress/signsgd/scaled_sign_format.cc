#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/little_endian.h"
#include "compress/signsgd/sign_formats.h"
#include "compress/signsgd/signsgd_kernels.h"
#include "compress/simd/line_writer.h"

namespace gradwire {
namespace {

constexpr std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

template <typename T>
class ScaledSignFormat final : public WireFormat {
 public:
  explicit ScaledSignFormat(std::int64_t bucket) : bucket_(static_cast<std::size_t>(bucket)) {}

  std::size_t bytes(std::int64_t elems, int) const override {
    const auto count = static_cast<std::size_t>(elems);
    return buckets(count) * sizeof(T) + divide_up(count, 8);
  }
  std::int64_t seam(int) const override {
    return std::lcm(static_cast<std::int64_t>(bucket_), std::int64_t{8});  // 0: one bucket
  }
  std::vector<std::size_t> sections(std::int64_t elems, int) const override {
    const auto count = static_cast<std::size_t>(elems);
    return {buckets(count) * sizeof(T), divide_up(count, 8)};
  }

  Result<std::size_t> pack(ConstTensorView src, const Slice&, ByteSpan wire,
                           const Stream&) override {
    GW_TRY(check_tensor("signsgd: src", src, src.elems(), DTypeOf<T>::kValue));
    if (src.empty()) return std::size_t{0};
    return encode(Corrected<T>(elements<T>(src)), nullptr, T{1}, wire);
  }
  bool takes_feedback() const override { return true; }
  Result<std::size_t> pack_with_feedback(ConstTensorView src, const Feedback& feedback,
                                         const Slice&, ByteSpan wire, const Stream&) override {
    GW_TRY(check_feedback("signsgd", src, feedback, DTypeOf<T>::kValue));
    if (src.empty()) return std::size_t{0};
    return encode(Corrected<T>(elements<T>(src), elements<T>(feedback.residual).data()),
                  elements<T>(feedback.next).data(), static_cast<T>(feedback.scale), wire);
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

  static constexpr std::size_t kRun = cpu::LineWriter::kRoom / sizeof(T);

  // Writes p - own * own_scale, one bucket behind the encoding and in turns with it, so that memory
  // is read and written at the same time.
  class Rest {
   public:
    Rest(T* next, T own_scale, std::size_t elems, const std::byte* signs)
        : to_(reinterpret_cast<std::byte*>(next), next == nullptr ? 0 : elems * sizeof(T)),
          own_scale_(own_scale),
          signs_(signs) {}

    // The next bucket that is encoded, from element `first` on. The one before is done.
    void take(const Corrected<T>& bucket, std::size_t first, T scale) {
      bucket_ = bucket;
      first_ = first;
      scale_ = scale * own_scale_;
      done_ = 0;
    }
    void write_run() {
      if (done_ == bucket_.size) return;
      const Corrected<T> run = bucket_.part(done_, std::min(kRun, bucket_.size - done_));
      cpu::take_away(run, signs_, first_ + done_, scale_, reinterpret_cast<T*>(to_.room()));
      to_.commit(run.size * sizeof(T));
      done_ += run.size;
    }
    void write_all() {
      while (done_ < bucket_.size) write_run();
    }
    void finish() {
      write_all();
      to_.finish();
    }

   private:
    cpu::LineWriter to_;
    T own_scale_;
    const std::byte* signs_;
    Corrected<T> bucket_{std::span<const T>()};
    std::size_t first_ = 0;
    T scale_ = 0;
    std::size_t done_ = 0;
  };

  // With `next`, p - own_scale * own into it.
  Result<std::size_t> encode(const Corrected<T>& p, T* next, T own_scale, ByteSpan wire) const {
    const std::size_t length = bytes(static_cast<std::int64_t>(p.size), 0);
    GW_TRY(check_room("signsgd: payload", wire.size(), length));
    const std::size_t count = buckets(p.size);
    const std::size_t size = bucket_of(p.size);
    std::byte* signs = wire.data() + count * sizeof(T);
    const bool together = size % 8 == 0 || count == 1;
    cpu::SumLanes unused{};
    if (!together) cpu::sum_and_pack(p, unused, signs);
    Rest rest(next, own_scale, p.size, signs);
    for (std::size_t b = 0; b < count; ++b) {
      const Corrected<T> bucket = p.part(b * size, std::min(size, p.size - b * size));
      const T scale = pack_bucket(bucket, together ? signs + b * size / 8 : nullptr, rest);
      if (!std::isfinite(scale)) return not_finite(bucket, b * size);
      store_le(wire.data(), scale, b);
      rest.write_all();
      if (next != nullptr) rest.take(bucket, b * size, scale);
    }
    rest.finish();
    return length;
  }

  // The mean of |v| over the bucket; with `signs`, its sign bits too, in the same pass over memory.
  static T pack_bucket(const Corrected<T>& bucket, std::byte* signs, Rest& rest) {
    cpu::SumLanes lanes{};
    for (std::size_t i = 0; i < bucket.size; i += kRun) {
      cpu::sum_and_pack(bucket.part(i, std::min(kRun, bucket.size - i)), lanes,
                        signs == nullptr ? nullptr : signs + i / 8);
      rest.write_run();
    }
    return static_cast<T>(cpu::total(lanes) / static_cast<double>(bucket.size));
  }

  static Status not_finite(const Corrected<T>& bucket, std::size_t first) {
    std::size_t i = 0;
    while (i < bucket.size && std::isfinite(bucket[i])) ++i;
    if (i == bucket.size) {
      return {Code::kInvalidArgument,
              format("signsgd: the absolute values of elements %zu to %zu of the slice add up to "
                     "more than a double holds",
                     first, first + i - 1)};
    }
    return {Code::kInvalidArgument,
            format("signsgd: element %zu of the slice is %g (expected a finite number)", first + i,
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
    cpu::LineWriter to(reinterpret_cast<std::byte*>(values.data()), add ? 0 : values.size_bytes());
    for (std::size_t b = 0; b < count; ++b) {
      const auto scale = load_le<T>(wire.data(), b);
      const std::size_t first = b * bucket_of(values.size());
      if (add) {
        cpu::unpack_signs(signs, first, scale, true, part(values, b));
      } else {
        put_signs(signs, first, scale, part(values, b).size(), to);
      }
    }
    to.finish();
    return {};
  }

  static void put_signs(const std::byte* signs, std::size_t first, T scale, std::size_t count,
                        cpu::LineWriter& to) {
    for (std::size_t i = 0; i < count; i += kRun) {
      const std::span<T> run(reinterpret_cast<T*>(to.room()), std::min(kRun, count - i));
      cpu::unpack_signs(signs, first + i, scale, false, run);
      to.commit(run.size_bytes());
    }
  }

  Status check_wire(ConstByteSpan wire, std::size_t count, std::size_t elems) const {
    for (std::size_t b = 0; b < count; ++b) {
      const auto scale = load_le<T>(wire.data(), b);
      if (scale >= 0 && scale <= std::numeric_limits<T>::max() && !std::signbit(scale)) continue;
      return {Code::kCorruptPayload,
              format("signsgd: the scale of bucket %zu is %g (expected finite and at least 0)", b,
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
