#include <algorithm>
#include <array>

#include "base/elements.h"
#include "base/small_floats.h"
#include "compress/cast/cast_kernels.h"
#include "compress/cast/half_runs.h"
#include "compress/little_endian.h"
#include "compress/simd/line_writer.h"

namespace gradwire::cpu {
namespace {

struct Fp16 {
  static std::uint16_t round(float value) { return fp16_from_float(value); }
  static float widen(std::uint16_t half) { return float_from_fp16(half); }
};
struct Bf16 {
  static std::uint16_t round(float value) { return bf16_from_float(value); }
  static float widen(std::uint16_t half) { return float_from_bf16(half); }
};

// Calls visit(half) with the type that `type` names.
template <typename Visit>
void with_half(HalfType type, const Visit& visit) {
  type == HalfType::kFp16 ? visit(Fp16{}) : visit(Bf16{});
}

constexpr std::size_t kRun = LineWriter::kRoom / sizeof(float);  // elements at a time

void halves_of_floats(HalfType type, std::span<const float> from, float factor, ByteSpan wire) {
  LineWriter to(wire.data(), wire.size());
  for (std::size_t i = 0; i < from.size(); i += kRun) {
    const std::size_t count = std::min(kRun, from.size() - i);
    half_run(type, from.data() + i, count, factor, to.room());
    to.commit(2 * count);
  }
  to.finish();
}

void floats_of_halves(HalfType type, ConstByteSpan wire, float factor, std::span<float> dst) {
  LineWriter to(reinterpret_cast<std::byte*>(dst.data()), dst.size_bytes());
  for (std::size_t i = 0; i < dst.size(); i += kRun) {
    const std::size_t count = std::min(kRun, dst.size() - i);
    float_run(type, wire.data() + 2 * i, count, factor, false, reinterpret_cast<float*>(to.room()));
    to.commit(4 * count);
  }
  to.finish();
}

}  // namespace

void to_half(HalfType type, ConstTensorView src, double factor, ByteSpan wire) {
  if (src.empty()) return;
  if (src.dtype() == DType::kF32) {
    return halves_of_floats(type, elements<float>(src), static_cast<float>(factor), wire);
  }
  const auto from = elements<double>(src);
  with_half(type, [&](auto half) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      store_le(wire.data(), half.round(static_cast<float>(from[i] * factor)), i);
    }
  });
}

void from_half(HalfType type, ConstByteSpan wire, double factor, TensorView dst) {
  if (dst.empty()) return;
  if (dst.dtype() == DType::kF32) {
    return floats_of_halves(type, wire, static_cast<float>(factor), elements<float>(dst));
  }
  const auto to = elements<double>(dst);
  with_half(type, [&](auto half) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<double>(half.widen(load_le<std::uint16_t>(wire.data(), i))) * factor;
    }
  });
}

void add_half(HalfType type, ConstByteSpan wire, double factor, TensorView acc) {
  if (acc.empty()) return;
  if (acc.dtype() == DType::kF32) {
    const auto to = elements<float>(acc);
    return float_run(type, wire.data(), to.size(), static_cast<float>(factor), true, to.data());
  }
  const auto to = elements<double>(acc);
  with_half(type, [&](auto half) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] += static_cast<double>(half.widen(load_le<std::uint16_t>(wire.data(), i))) * factor;
    }
  });
}

void through_half(HalfType type, ConstTensorView src, double factor, double inverse,
                  TensorView dst) {
  if (src.empty()) return;
  if (src.dtype() == DType::kF32) {
    const auto from = elements<float>(src);
    const auto to = elements<float>(dst);
    std::array<std::byte, 2 * kRun> half;
    for (std::size_t i = 0; i < from.size(); i += kRun) {
      const std::size_t count = std::min(kRun, from.size() - i);
      half_run(type, from.data() + i, count, static_cast<float>(factor), half.data());
      float_run(type, half.data(), count, static_cast<float>(inverse), false, to.data() + i);
    }
    return;
  }
  const auto from = elements<double>(src);
  const auto to = elements<double>(dst);
  with_half(type, [&](auto half) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      to[i] = static_cast<double>(half.widen(half.round(static_cast<float>(from[i] * factor)))) *
              inverse;
    }
  });
}

}  // namespace gradwire::cpu
