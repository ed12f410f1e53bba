// Views of tensors: address, element type, shape and device. A view owns nothing and may be copied;
// the caller keeps the elements alive.
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

// Element types. Gradients of a Coder are kF32 or, on the CPU, kF64. Payloads and the collectives'
// tensors may have all of them:
//   kF64, kF32, kF16, kBF16   floating point of 64, 32, 16 and 16 bits (IEEE 754; bfloat16)
//   kI64, kI32, kI8, kU8      integers of 64, 32, 8 and 8 bits; kU8 also for opaque bytes
enum class DType : std::uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI8, kU8 };
// Where memory is: kHost, kPinnedHost (host memory that a GPU can copy without a detour, allocated
// by CUDA), or kCuda (a GPU's own).
enum class MemorySpace : std::uint8_t { kHost, kPinnedHost, kCuda };

// Bytes per element: 1, 2, 4 or 8; 0 for a number that is not a DType.
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

// True for kF64, kF32, kF16 and kBF16.
constexpr bool is_floating(DType type) {
  return type == DType::kF64 || type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

// How a reduction combines elements. Integers wrap around. The maximum or minimum of floating-point
// elements is a NaN if any of them is, and -0 counts as less than +0 (IEEE 754-2019, maximum and
// minimum).
enum class ReduceOp : std::uint8_t {
  kSum,      // the sum over ranks
  kMean,     // the sum, then one multiplication by 1/size; floating-point types only
  kMax,      // the largest element
  kMin,      // the smallest element
  kProduct,  // the product over ranks
  // Each rank multiplies its elements by its OpOptions::factor and rounds them to their type; then
  // the sum. Floating-point types only.
  kPreMulSum,
};

// "f32", "bf16", ...: the name in specs, flags and reports. Valid for the program's life.
std::string_view to_string(DType type);
// "sum", "mean", "max", "min", "product" or "pre_mul_sum". Valid for the program's life.
std::string_view to_string(ReduceOp op);

// A place for memory. The default is the host.
struct Device {
  MemorySpace space = MemorySpace::kHost;  // the kind of memory
  int ordinal = 0;                         // CUDA device number; 0 for the host
  friend bool operator==(const Device&, const Device&) = default;
};

// Up to four dimensions, row-major and contiguous: there are no strides. Unused dimensions are 1.
struct Shape {
  std::array<std::int64_t, 4> dim{1, 1, 1, 1};  // elements along each dimension, outermost first
  int rank = 1;                                 // number of dimensions, 1 to 4

  // The shape (n): n elements.
  static constexpr Shape vector(std::int64_t n) { return {{n, 1, 1, 1}, 1}; }
  // The shape (n, m): n rows of m elements.
  static constexpr Shape matrix(std::int64_t n, std::int64_t m) { return {{n, m, 1, 1}, 2}; }
  // The number of elements.
  constexpr std::int64_t elems() const { return dim[0] * dim[1] * dim[2] * dim[3]; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// "(128, 784)": for messages.
std::string to_string(const Shape& shape);

// Borrowed bytes that may be written (ByteSpan) or only read (ConstByteSpan).
using ByteSpan = std::span<std::byte>;
using ConstByteSpan = std::span<const std::byte>;

// A view of contiguous elements: address, shape, element type and device. `Byte` is std::byte for
// elements that may be written (TensorView), const std::byte for elements that are only read
// (ConstTensorView).
template <typename Byte>
class BasicTensorView {
 public:
  // An empty view: no elements, kF32, host.
  BasicTensorView() = default;
  // A view of shape.elems() elements from `data` on, which the caller keeps alive.
  BasicTensorView(Byte* data, Shape shape, DType dtype, Device device = {})
      : data_(data), shape_(shape), dtype_(dtype), device_(device) {}

  // A view that may be written converts to one that may only be read.
  operator BasicTensorView<const std::byte>() const  // NOLINT(google-explicit-constructor)
      requires(!std::is_const_v<Byte>) {
    return {data_, shape_, dtype_, device_};
  }
  // True if there are no elements.
  bool empty() const { return elems() == 0; }
  // The number of elements; 0 if data() is null.
  std::int64_t elems() const { return data_ == nullptr ? 0 : shape_.elems(); }
  // The address of the first element, on device().
  Byte* data() const { return data_; }
  // The same memory as elems() * size_of(dtype()) bytes.
  std::span<Byte> bytes() const {
    return {data_, static_cast<std::size_t>(elems()) * size_of(dtype_)};
  }
  // shape(), dtype() and device(): shape, element type and place, as given at construction.
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }

  // Elements [begin, begin + count) as a view of shape (count). Requires 0 <= begin, 0 <= count and
  // begin + count <= elems(); not checked.
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
// TensorView and ConstTensorView: views of elements that may be written, or only be read.
using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

// A tensor with a name, as entries of saved state are.
struct NamedTensor {
  std::string name;   // "layer1.weight.error"
  TensorView tensor;  // borrowed; the function that returns it says how long it is valid
};

// A point in time at which a wait ends. Every wait in gradwire has one.
using Deadline = std::chrono::steady_clock::time_point;

// The deadline `seconds` seconds from now; in the past if negative.
inline Deadline deadline_in(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(seconds));
}

}  // namespace gradwire
