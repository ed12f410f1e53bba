#include "compress/error_feedback/stored_residual.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/elements.h"
#include "base/philox.h"
#include "base/small_floats.h"
#include "base/text.h"
#include "compress/error_feedback/residual_arithmetic.h"

namespace gradwire {
namespace {

// Draws in [0, 1), multiples of 2^-16, of up to a block of elements.
class Draws {
 public:
  Draws(const Compressor::Placement& where, int stage, std::uint64_t step)
      : stream_(where.seed, RandomUse::kResidualRounding, where.tensor, where.rank, stage, step) {}
  // Of elements first, first + 1, ...; `first` is even.
  void take(std::size_t first, std::size_t count) {
    stream_.words(first / 2, std::span(words_).first((count + 1) / 2));
  }
  std::uint32_t half(std::size_t i) const { return words_[i / 2] >> (16 * (i % 2)) & 0xffffu; }
  double uniform(std::size_t i) const { return half(i) * 0x1p-16; }

 private:
  RandomStream stream_;
  std::array<std::uint32_t, kResidualBlock / 2> words_{};
};

template <typename T>
float scale_of(std::span<const T> block) {
  T most = 0;
  for (const T x : block) most = std::max(most, std::abs(x));
  return residual_scale(static_cast<double>(most));
}

std::size_t blocks_of(std::size_t count) { return (count + kResidualBlock - 1) / kResidualBlock; }

const std::uint16_t* halves(ConstTensorView view) {
  return reinterpret_cast<const std::uint16_t*>(view.data());
}

}  // namespace

template <typename T>
StoredResidual<T>::StoredResidual(const Shape& shape, ResidualStorage storage,
                                  const Compressor::Placement& where, int stage)
    : shape_(shape),
      storage_(storage),
      count_(static_cast<std::size_t>(shape.elems())),
      where_(where),
      stage_(stage),
      full_(storage == ResidualStorage::kFull ? count_ : 0),
      halves_(storage == ResidualStorage::kBf16 ? count_ : 0),
      codes_(storage == ResidualStorage::kInt8 ? count_ : 0),
      scales_(storage == ResidualStorage::kInt8 ? blocks_of(count_) : 0) {}

template <typename T>
void StoredResidual<T>::load(std::size_t first, std::span<T> out) const {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t at = first + i;
    switch (storage_) {
      case ResidualStorage::kFull: out[i] = full_[at]; break;
      case ResidualStorage::kBf16: out[i] = static_cast<T>(float_from_bf16(halves_[at])); break;
      case ResidualStorage::kInt8:
        out[i] = static_cast<T>(codes_[at]) * static_cast<T>(scales_[at / kResidualBlock]);
        break;
    }
  }
}

template <typename T>
Status StoredResidual<T>::store(std::span<const T> values, std::uint64_t step) {
  if (storage_ == ResidualStorage::kFull) {
    std::copy(values.begin(), values.end(), full_.begin());
    return {};
  }
  constexpr double kMost = std::numeric_limits<float>::max();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::abs(static_cast<double>(values[i])) <= kMost) continue;
    return {Code::kInvalidArgument,
            format("error feedback: element %zu of the new residual is %g, beyond what ef_storage "
                   "holds (expected at most %g in magnitude); the residual is kept as it was",
                   i, static_cast<double>(values[i]), kMost)};
  }
  if (storage_ == ResidualStorage::kBf16) {
    store_bf16(values, step);
  } else {
    store_int8(values, step);
  }
  return {};
}

template <typename T>
void StoredResidual<T>::store_bf16(std::span<const T> values, std::uint64_t step) {
  Draws draws(where_, stage_, step);
  for (std::size_t first = 0; first < values.size(); first += kResidualBlock) {
    const std::size_t count = std::min(kResidualBlock, values.size() - first);
    draws.take(first, count);
    for (std::size_t i = 0; i < count; ++i) {
      halves_[first + i] = bf16_stochastic(static_cast<float>(values[first + i]), draws.half(i));
    }
  }
}

template <typename T>
void StoredResidual<T>::store_int8(std::span<const T> values, std::uint64_t step) {
  Draws draws(where_, stage_, step);
  for (std::size_t first = 0; first < values.size(); first += kResidualBlock) {
    const std::size_t count = std::min(kResidualBlock, values.size() - first);
    draws.take(first, count);
    const float scale = scale_of<T>(values.subspan(first, count));
    scales_[first / kResidualBlock] = scale;
    for (std::size_t i = 0; i < count; ++i) {
      codes_[first + i] =
          residual_code(static_cast<double>(values[first + i]), scale, draws.uniform(i));
    }
  }
}

template <typename T>
std::vector<NamedTensor> StoredResidual<T>::state() {
  const auto named = [](std::string_view name, void* data, const Shape& shape, DType type) {
    return NamedTensor{std::string(name), {static_cast<std::byte*>(data), shape, type}};
  };
  switch (storage_) {
    case ResidualStorage::kFull:
      return {named(kResidualState, full_.data(), shape_, DTypeOf<T>::kValue)};
    case ResidualStorage::kBf16:
      return {named(kResidualState, halves_.data(), shape_, DType::kBF16)};
    case ResidualStorage::kInt8: break;
  }
  const Shape blocks = Shape::vector(static_cast<std::int64_t>(scales_.size()));
  return {named(kResidualState, codes_.data(), shape_, DType::kI8),
          named(kResidualScales, scales_.data(), blocks, DType::kF32)};
}

template class StoredResidual<float>;
template class StoredResidual<double>;

double stored_value(ConstTensorView view, ConstTensorView scales, std::size_t i) {
  switch (view.dtype()) {
    case DType::kF64: return elements<double>(view)[i];
    case DType::kBF16: return static_cast<double>(float_from_bf16(halves(view)[i]));
    case DType::kI8:
      return static_cast<double>(elements<std::int8_t>(view)[i]) *
             static_cast<double>(elements<float>(scales)[i / kResidualBlock]);
    default: return static_cast<double>(elements<float>(view)[i]);
  }
}

void put_stored_values(std::span<const double> values, TensorView view, TensorView scales) {
  const DType type = view.dtype();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == DType::kF64) elements<double>(view)[i] = values[i];
    if (type == DType::kF32) elements<float>(view)[i] = static_cast<float>(values[i]);
    if (type == DType::kBF16) {
      reinterpret_cast<std::uint16_t*>(view.data())[i] =
          bf16_from_float(static_cast<float>(values[i]));
    }
    if (type != DType::kI8) continue;
    const std::size_t first = i / kResidualBlock * kResidualBlock;
    float& scale = elements<float>(scales)[i / kResidualBlock];
    if (i == first) {
      scale = scale_of<double>(
          values.subspan(first).first(std::min(kResidualBlock, values.size() - first)));
    }
    elements<std::int8_t>(view)[i] = residual_code(values[i], scale, 0.5);
  }
}

}  // namespace gradwire
