#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "compress/little_endian.h"
#include "compress/signsgd/signsgd_kernels.h"
#include "compress/signsgd/signsgd_plain.h"

namespace gradwire::cpu {
namespace {

constexpr std::size_t kLanes = 16;
constexpr std::size_t kWordElems = 64;

// As wide as the element, so that shifts and sign bits stay in one vector lane.
template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <typename T, bool Add>
void put(T value, T& dst) {
  if constexpr (Add) {
    dst += value;
  } else {
    dst = value;
  }
}

template <typename T, bool Add>
void unpack_run(const std::byte* bits, std::size_t first, T scale, std::span<T> dst) {
  using Bits = BitsOf<T>;
  constexpr std::size_t kWidth = sizeof(Bits) * 8;
  const Bits magnitude = std::bit_cast<Bits>(scale);
  const auto single = [&](std::size_t i) {
    const auto byte = std::to_integer<unsigned>(bits[(first + i) / 8]);
    put<T, Add>((byte >> ((first + i) % 8) & 1) != 0 ? -scale : scale, dst[i]);
  };
  std::size_t i = 0;
  for (; i < dst.size() && (first + i) % 8 != 0; ++i) single(i);
  for (; i + kWidth <= dst.size(); i += kWidth) {
    const auto word = load_le<Bits>(bits + (first + i) / 8);
    T* to = dst.data() + i;
    for (std::size_t j = 0; j < kWidth; ++j) {
      put<T, Add>(std::bit_cast<T>(magnitude ^ ((word >> j) << (kWidth - 1))), to[j]);
    }
  }
  for (; i < dst.size(); ++i) single(i);
}

// Bits [8 * byte, 8 * byte + 64) of a payload, zeros beyond its end.
std::uint64_t word_at(ConstByteSpan payload, std::size_t byte) {
  std::uint64_t word = 0;
  std::memcpy(&word, payload.data() + byte, std::min<std::size_t>(8, payload.size() - byte));
  return word;
}

template <typename T>
T sign_of(int x) {
  return static_cast<T>((x > 0) - (x < 0));
}

}  // namespace

namespace plain {

template <typename T>
void sum_and_pack(const Corrected<T>& p, double* lanes, std::byte* bits) {
  for (std::size_t i = 0; i < p.size; i += 8) {
    unsigned byte = 0;
    for (std::size_t j = 0; j < 8 && i + j < p.size; ++j) {
      const T value = p[i + j];
      lanes[(i + j) % kLanes] += std::abs(static_cast<double>(value));
      byte |= (value < T{0} ? 1u : 0u) << j;
    }
    if (bits != nullptr) bits[i / 8] = static_cast<std::byte>(byte);
  }
}

template <typename T>
void unpack_signs(const std::byte* bits, std::size_t first, T scale, bool add, std::span<T> dst) {
  if (add) {
    unpack_run<T, true>(bits, first, scale, dst);
  } else {
    unpack_run<T, false>(bits, first, scale, dst);
  }
}

template <typename T>
void take_away(const Corrected<T>& p, const std::byte* bits, std::size_t first, T scale, T* next) {
  for (std::size_t i = 0; i < p.size; ++i) {
    const auto byte = std::to_integer<unsigned>(bits[(first + i) / 8]);
    next[i] = p[i] - ((byte >> ((first + i) % 8) & 1) != 0 ? -scale : scale);
  }
}

template void sum_and_pack(const Corrected<float>&, double*, std::byte*);
template void unpack_signs(const std::byte*, std::size_t, float, bool, std::span<float>);
template void take_away(const Corrected<float>&, const std::byte*, std::size_t, float, float*);

}  // namespace plain

template <>
void sum_and_pack(const Corrected<double>& p, SumLanes& lanes, std::byte* bits) {
  plain::sum_and_pack(p, lanes.data(), bits);
}
template <>
void unpack_signs(const std::byte* bits, std::size_t first, double scale, bool add,
                  std::span<double> dst) {
  plain::unpack_signs(bits, first, scale, add, dst);
}
template <>
void take_away(const Corrected<double>& p, const std::byte* bits, std::size_t first, double scale,
               double* next) {
  plain::take_away(p, bits, first, scale, next);
}

template <typename T>
void count_votes(std::span<const ConstByteSpan> payloads, std::span<T> dst) {
  const int ranks = static_cast<int>(payloads.size());
  for (std::size_t i = 0; i < dst.size(); i += kWordElems) {
    std::array<std::uint16_t, kWordElems> minus{};
    for (const ConstByteSpan payload : payloads) {
      const std::uint64_t word = word_at(payload, i / 8);
      for (std::size_t j = 0; j < kWordElems; ++j) {
        minus[j] = static_cast<std::uint16_t>(minus[j] + (word >> j & 1));
      }
    }
    const std::size_t count = std::min(kWordElems, dst.size() - i);
    for (std::size_t j = 0; j < count; ++j) dst[i + j] = sign_of<T>(ranks - 2 * minus[j]);
  }
}

template <typename T>
void pack_votes(std::span<const T> sums, std::byte* votes) {
  for (std::size_t i = 0; i < sums.size(); i += 4) {
    unsigned byte = 0;
    for (std::size_t j = 0; j < 4 && i + j < sums.size(); ++j) {
      const T sum = sums[i + j];
      byte |= (sum > 0 ? 1u : sum < 0 ? 2u : 0u) << (2 * j);
    }
    votes[i / 4] = static_cast<std::byte>(byte);
  }
}

template <typename T>
bool unpack_votes(const std::byte* votes, bool add, std::span<T> dst) {
  static constexpr T kValue[4] = {0, 1, -1, 0};
  bool valid = true;
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const unsigned code = std::to_integer<unsigned>(votes[i / 4]) >> (2 * (i % 4)) & 3;
    valid &= code != 3;
    dst[i] = add ? dst[i] + kValue[code] : kValue[code];
  }
  return valid;
}

#define GW_SIGNSGD_KERNELS(T)                                                 \
  template void count_votes<T>(std::span<const ConstByteSpan>, std::span<T>); \
  template void pack_votes<T>(std::span<const T>, std::byte*);                \
  template bool unpack_votes<T>(const std::byte*, bool, std::span<T>)
GW_SIGNSGD_KERNELS(float);
GW_SIGNSGD_KERNELS(double);
#undef GW_SIGNSGD_KERNELS

}  // namespace gradwire::cpu
