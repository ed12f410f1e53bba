#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "compress/finite.h"
#include "compress/little_endian.h"
#include "compress/onebit/onebit_kernels.h"
#include "compress/onebit/onebit_loops.h"
#include "compress/signsgd/signsgd_kernels.h"
#include "compress/simd/line_writer.h"

namespace gradwire {
namespace {

double total(const std::array<double, cpu::SideSums::kLanes>& lanes) {  // in order
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <typename T>
T mean_of(double sum, std::size_t count) {
  return count == 0 ? T{0} : static_cast<T>(sum / static_cast<double>(count)) + T{0};
}

// False if a mean is not finite.
template <typename T>
bool encode_group(std::span<const T> x, std::byte* wire) {
  cpu::SideSums sums;
  cpu::OnebitLoops<T>::kSum(x, sums, wire + 2 * sizeof(T));
  const T plus = mean_of<T>(total(sums.plus), x.size() - sums.below);
  const T minus = mean_of<T>(total(sums.minus), sums.below);
  store_le(wire, plus, 0);
  store_le(wire, minus, 1);
  return std::isfinite(plus) && std::isfinite(minus);
}

// dst = or += the group at `wire`; what is not added is written by `to`.
template <typename T>
Status decode_group(const std::byte* wire, bool add, std::span<T> dst, cpu::LineWriter& to) {
  const T plus = load_le<T>(wire, 0);
  const T minus = load_le<T>(wire, 1);
  for (const T mean : {plus, minus}) {
    if (std::isfinite(mean) && !std::signbit(mean)) continue;
    return {Code::kCorruptPayload,
            format("a mean is %g (expected finite and at least 0)", static_cast<double>(mean))};
  }
  const std::byte* signs = wire + 2 * sizeof(T);
  if (!cpu::unused_bits_clear(signs[(dst.size() - 1) / 8], dst.size(), 1)) {
    return {Code::kCorruptPayload, "unused bits of the last byte are set (expected 0)"};
  }
  if (add) {
    cpu::OnebitLoops<T>::kPut(signs, plus, minus, dst.data(), dst);
    return {};
  }
  constexpr std::size_t kRun = cpu::LineWriter::kRoom / sizeof(T);
  for (std::size_t at = 0; at < dst.size(); at += kRun) {
    const std::span<T> run(reinterpret_cast<T*>(to.room()), std::min(kRun, dst.size() - at));
    cpu::OnebitLoops<T>::kPut(signs + at / 8, plus, minus, nullptr, run);
    to.commit(run.size_bytes());
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
                     "than a double holds (expected a finite sum)",
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
  cpu::LineWriter to(reinterpret_cast<std::byte*>(dst.data()), add ? 0 : dst.size_bytes());
  for (std::size_t begin = 0; begin < dst.size(); begin += size) {
    const auto part = dst.subspan(begin, std::min(size, dst.size() - begin));
    const Status status = decode_group(from, add, part, to);
    if (!status.ok()) return status.with_context(format("onebit: group at element %zu", begin));
    from += group_bytes(part.size(), sizeof(T));
  }
  if (!add) to.finish();
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
