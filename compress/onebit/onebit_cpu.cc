#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/text.h"
#include "compress/finite.h"
#include "compress/little_endian.h"
#include "compress/onebit/onebit_kernels.h"
#include "compress/signsgd/signsgd_kernels.h"

namespace gradwire {
namespace {

constexpr std::size_t kLanes = 16;
// Small enough that a block read for its sums is still in the cache for its signs.
constexpr std::size_t kBlock = 4096;

// A group's sums on either side of zero.
template <typename T>
class SideSums {
 public:
  // Calls but the last take multiples of 16 elements.
  void add(std::span<const T> x) {
    std::size_t i = 0;
    for (; i + kLanes <= x.size(); i += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) add_one(j, x[i + j]);
    }
    for (std::size_t j = 0; i + j < x.size(); ++j) add_one(j, x[i + j]);
  }
  double plus() const { return total(plus_); }
  double minus() const { return total(minus_); }
  std::size_t below() const {
    std::size_t count = 0;
    for (const std::size_t lane : below_) count += lane;
    return count;
  }

 private:
  using Lanes = std::array<double, kLanes>;

  // A NaN is not below zero and stays in the sum.
  void add_one(std::size_t lane, T x) {
    const bool negative = x < T{0};
    plus_[lane] += negative ? 0.0 : static_cast<double>(x);
    minus_[lane] += negative ? -static_cast<double>(x) : 0.0;
    below_[lane] += negative ? 1 : 0;
  }
  static double total(const Lanes& lanes) {
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return sum;
  }

  Lanes plus_{};
  Lanes minus_{};
  std::array<std::size_t, kLanes> below_{};
};

template <typename T>
T mean_of(double sum, std::size_t count) {
  return count == 0 ? T{0} : static_cast<T>(sum / static_cast<double>(count)) + T{0};
}

// False if a mean is not finite.
template <typename T>
bool encode_group(std::span<const T> x, std::byte* wire) {
  SideSums<T> sums;
  std::byte* signs = wire + 2 * sizeof(T);
  for (std::size_t at = 0; at < x.size(); at += kBlock) {
    const auto block = x.subspan(at, std::min(kBlock, x.size() - at));
    sums.add(block);
    cpu::pack_signs(block, signs + at / 8);
  }
  const T plus = mean_of<T>(sums.plus(), x.size() - sums.below());
  const T minus = mean_of<T>(sums.minus(), sums.below());
  store_le(wire, plus, 0);
  store_le(wire, minus, 1);
  return std::isfinite(plus) && std::isfinite(minus);
}

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

// Signs are read by words as wide as an element, so that each stays in its vector lane.
template <bool Add, typename T>
void put(const std::byte* signs, T plus, T minus, std::span<T> dst) {
  constexpr std::size_t kWidth = 8 * sizeof(T);
  const Bits<T> above = std::bit_cast<Bits<T>>(plus);
  const Bits<T> change = above ^ std::bit_cast<Bits<T>>(-minus);
  for (std::size_t i = 0; i < dst.size(); i += kWidth) {
    const std::size_t count = std::min(kWidth, dst.size() - i);
    Bits<T> word = 0;
    std::memcpy(&word, signs + i / 8, (count + 7) / 8);
    T* to = dst.data() + i;
    const auto one = [&](std::size_t j) {
      const T value = std::bit_cast<T>(above ^ (change & (Bits<T>{0} - (word >> j & 1u))));
      to[j] = Add ? to[j] + value : value;
    };
    if (count == kWidth) {
      for (std::size_t j = 0; j < kWidth; ++j) one(j);
    } else {
      for (std::size_t j = 0; j < count; ++j) one(j);
    }
  }
}

template <typename T>
Status decode_group(const std::byte* wire, bool add, std::span<T> dst) {
  const T plus = load_le<T>(wire, 0);
  const T minus = load_le<T>(wire, 1);
  for (const T mean : {plus, minus}) {
    if (std::isfinite(mean) && !std::signbit(mean)) continue;
    return {Code::kCorruptPayload,
            format("a mean is %g (finite and at least 0 wanted)", static_cast<double>(mean))};
  }
  const std::byte* signs = wire + 2 * sizeof(T);
  if (!cpu::unused_bits_clear(signs[(dst.size() - 1) / 8], dst.size(), 1)) {
    return {Code::kCorruptPayload, "unused bits of the last byte are set (0 wanted)"};
  }
  if (add) {
    put<true>(signs, plus, minus, dst);
  } else {
    put<false>(signs, plus, minus, dst);
  }
  return {};
}

}  // namespace

template <typename T>
Status OnebitKernel::encode(const SliceKey&, std::span<const T> x, ByteSpan wire) const {
  const std::size_t size = group_of(x.size());
  std::byte* to = wire.data();
  for (std::size_t begin = 0; begin < x.size(); begin += size) {
    const auto part = x.subspan(begin, std::min(size, x.size() - begin));
    if (!encode_group(part, to)) {
      GW_TRY(name_not_finite("onebit", x));
      return {Code::kInvalidArgument,
              format("onebit: the magnitudes of elements %zu to %zu of the slice add up to more "
                     "than a double holds (a finite sum wanted)",
                     begin, begin + part.size() - 1)};
    }
    to += group_bytes(part.size(), sizeof(T));
  }
  return {};
}

template <typename T>
Status OnebitKernel::decode(const SliceKey&, ConstByteSpan wire, bool add, std::span<T> dst) const {
  const std::size_t size = group_of(dst.size());
  const std::byte* from = wire.data();
  for (std::size_t begin = 0; begin < dst.size(); begin += size) {
    const auto part = dst.subspan(begin, std::min(size, dst.size() - begin));
    const Status status = decode_group(from, add, part);
    if (!status.ok()) return status.with_context(format("onebit: group at element %zu", begin));
    from += group_bytes(part.size(), sizeof(T));
  }
  return {};
}

template Status OnebitKernel::encode<float>(const SliceKey&, std::span<const float>,
                                            ByteSpan) const;
template Status OnebitKernel::encode<double>(const SliceKey&, std::span<const double>,
                                             ByteSpan) const;
template Status OnebitKernel::decode<float>(const SliceKey&, ConstByteSpan, bool,
                                            std::span<float>) const;
template Status OnebitKernel::decode<double>(const SliceKey&, ConstByteSpan, bool,
                                             std::span<double>) const;

}  // namespace gradwire
