// Borrowed tensors: where elements are, what they are, how many. Views own nothing and copy freely.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace gradwire {

// Element types. Coders take kF32, and on the CPU kF64 too; the rest are payloads and collectives'
// types.
enum class DType : std::uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI8, kU8 };
enum class MemorySpace : std::uint8_t { kHost, kPinnedHost, kCuda };

// Bytes per element.
constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kI8:
    case DType::kU8: return 1;
  }
  return 0;
}

// f64, f32, f16, bf16.
constexpr bool is_floating(DType type) {
  return type == DType::kF64 || type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

// How elements combine in a reduction. Integers wrap around. A maximum or minimum of floating
// numbers that holds a NaN is a NaN, and -0 is below +0 (IEEE 754-2019, maximum and minimum).
enum class ReduceOp : std::uint8_t {
  kSum,
  kMean,  // the sum, then one multiplication by 1/size; floating types only
  kMax,
  kMin,
  kProduct,
  // Each rank's elements times OpOptions::factor, rounded to their type, then the sum; floating
  // types only.
  kPreMulSum,
};

// "f32", "bf16", ...: the spelling of specs, flags and reports.
std::string_view to_string(DType type);
// "sum", "mean", "max", "min", "product", "pre_mul_sum".
std::string_view to_string(ReduceOp op);

struct Device {
  MemorySpace space = MemorySpace::kHost;
  int ordinal = 0;  // CUDA device number; 0 for the host
  friend bool operator==(const Device&, const Device&) = default;
};

// Up to four dimensions, row-major. Gradients are contiguous by contract, so there are no strides.
struct Shape {
  std::array<std::int64_t, 4> dim{1, 1, 1, 1};
  int rank = 1;

  static constexpr Shape vector(std::int64_t n) { return {{n, 1, 1, 1}, 1}; }
  static constexpr Shape matrix(std::int64_t n, std::int64_t m) { return {{n, m, 1, 1}, 2}; }
  constexpr std::int64_t elems() const { return dim[0] * dim[1] * dim[2] * dim[3]; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// "(128, 784)".
std::string to_string(const Shape& shape);

using ByteSpan = std::span<std::byte>;
using ConstByteSpan = std::span<const std::byte>;

// Byte is std::byte or const std::byte, so constness of the data is in the type.
template <typename Byte>
class BasicTensorView {
 public:
  BasicTensorView() = default;
  BasicTensorView(Byte* data, Shape shape, DType dtype, Device device = {})
      : data_(data), shape_(shape), dtype_(dtype), device_(device) {}

  operator BasicTensorView<const std::byte>() const  // NOLINT(google-explicit-constructor)
      requires(!std::is_const_v<Byte>) {
    return {data_, shape_, dtype_, device_};
  }
  bool empty() const { return elems() == 0; }
  std::int64_t elems() const { return data_ == nullptr ? 0 : shape_.elems(); }
  Byte* data() const { return data_; }
  std::span<Byte> bytes() const {
    return {data_, static_cast<std::size_t>(elems()) * size_of(dtype_)};
  }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }

  // Elements [begin, begin + count) as a vector. Requires 0 <= begin, begin + count <= elems().
  BasicTensorView slice(std::int64_t begin, std::int64_t count) const {
    return {data_ + static_cast<std::size_t>(begin) * size_of(dtype_), Shape::vector(count), dtype_,
            device_};
  }

 private:
  Byte* data_ = nullptr;
  Shape shape_{{0, 1, 1, 1}, 1};
  DType dtype_ = DType::kF32;
  Device device_;
};
using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

struct NamedTensor {
  std::string name;
  TensorView tensor;
};

// Every wait in gradwire ends at one of these.
using Deadline = std::chrono::steady_clock::time_point;

inline Deadline deadline_in(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(seconds));
}

}  // namespace gradwire
