#include "trainer/precision.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/small_floats.h"
#include "base/text.h"
#include "device/ops.h"

namespace gradwire {
namespace {

TensorView vector_at(const void* first, std::size_t elems, DType dtype, Device device) {
  return {const_cast<std::byte*>(static_cast<const std::byte*>(first)),
          Shape::vector(static_cast<std::int64_t>(elems)), dtype, device};
}

}  // namespace

std::string_view to_string(Precision precision) {
  switch (precision) {
    case Precision::kF32: return "fp32";
    case Precision::kBF16: return "bf16";
    case Precision::kF16: return "fp16";
  }
  return "?";
}

Result<Precision> parse_precision(std::string_view text) {
  for (const Precision each : {Precision::kF32, Precision::kBF16, Precision::kF16}) {
    if (text == to_string(each)) return each;
  }
  return Status(Code::kInvalidArgument, format("precision '%.*s' (expected fp32, bf16 or fp16)",
                                               static_cast<int>(text.size()), text.data()));
}

DType dtype_of(Precision precision) {
  switch (precision) {
    case Precision::kBF16: return DType::kBF16;
    case Precision::kF16: return DType::kF16;
    default: return DType::kF32;
  }
}

Precision precision_of(DType stored) {
  if (stored == DType::kBF16) return Precision::kBF16;
  return stored == DType::kF16 ? Precision::kF16 : Precision::kF32;
}

void store(Precision precision, std::span<const float> from, std::span<std::uint16_t> to) {
  GW_CHECK(from.size() == to.size() && precision != Precision::kF32);
  if (precision == Precision::kBF16) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = bf16_from_float(from[i]);
  } else {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = fp16_from_float(from[i]);
  }
}

void load(Precision precision, std::span<const std::uint16_t> from, std::span<float> to) {
  GW_CHECK(from.size() == to.size() && precision != Precision::kF32);
  if (precision == Precision::kBF16) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = float_from_bf16(from[i]);
  } else {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = float_from_fp16(from[i]);
  }
}

void add(Precision precision, std::span<const std::uint16_t> from, std::span<float> sums) {
  std::array<float, 1024> wide{};
  for (std::size_t at = 0; at < from.size(); at += wide.size()) {
    const std::size_t count = std::min(wide.size(), from.size() - at);
    load(precision, from.subspan(at, count), std::span(wide).first(count));
    for (std::size_t i = 0; i < count; ++i) sums[at + i] += wide[i];
  }
}

// A part at a time by way of the stack, since what is written lies where others were read.
std::span<std::uint16_t> store_in_place(Precision precision, std::span<float> values) {
  std::array<std::uint16_t, 1024> stored{};
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  for (std::size_t at = 0; at < values.size(); at += stored.size()) {
    const std::size_t count = std::min(stored.size(), values.size() - at);
    store(precision, values.subspan(at, count), std::span(stored).first(count));
    std::memcpy(bytes + at * sizeof(std::uint16_t), stored.data(), count * sizeof(std::uint16_t));
  }
  return {reinterpret_cast<std::uint16_t*>(bytes), values.size()};
}

void round_to(Precision precision, std::span<float> values) {
  std::array<std::uint16_t, 1024> stored{};
  while (!values.empty()) {
    const std::span<float> part = values.first(std::min(values.size(), stored.size()));
    store(precision, part, std::span(stored).first(part.size()));
    load(precision, std::span(stored).first(part.size()), part);
    values = values.subspan(part.size());
  }
}

Status store(Precision precision, std::span<const float> from, std::span<std::uint16_t> to,
             const Stream& stream) {
  if (stream.device.space != MemorySpace::kCuda) {
    store(precision, from, to);
    return {};
  }
  return cast(vector_at(from.data(), from.size(), DType::kF32, stream.device),
              vector_at(to.data(), to.size(), dtype_of(precision), stream.device), stream);
}

Status load(Precision precision, std::span<const std::uint16_t> from, std::span<float> to,
            const Stream& stream) {
  if (stream.device.space != MemorySpace::kCuda) {
    load(precision, from, to);
    return {};
  }
  return cast(vector_at(from.data(), from.size(), dtype_of(precision), stream.device),
              vector_at(to.data(), to.size(), DType::kF32, stream.device), stream);
}

}  // namespace gradwire
