// A compressor of one's own, with gradwire's public headers alone: of each fp32 number the upper
// three bytes, sign, exponent and 15 bits of the significand. It says how a range of elements looks
// on the wire; gradwire makes of that coders, error feedback and scatter-reduce-gather.
#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "gradwire/gradwire.h"

namespace three_bytes {

using namespace gradwire;

template <typename T>
class Format : public WireFormat {
 public:
  std::size_t bytes(std::int64_t elems, int) const override { return 3 * elems; }
  Result<std::size_t> pack(ConstTensorView src, const Slice&, ByteSpan wire,
                           const Stream&) override {
    if (wire.size() < bytes(src.elems(), 0))
      return Status(Code::kInvalidArgument, "three_bytes: short payload");
    for (std::int64_t i = 0; i < src.elems(); ++i) {
      const auto x = static_cast<float>(reinterpret_cast<const T*>(src.data())[i]);
      const auto word = std::bit_cast<std::array<std::byte, 4>>(x);
      std::copy(word.begin() + 1, word.end(), wire.begin() + 3 * i);
    }
    return bytes(src.elems(), 0);
  }
  Status unpack(ConstByteSpan wire, const Slice&, TensorView dst, const Stream&) override {
    return read(wire, dst, [](T& to, T value) { to = value; });
  }
  Status unpack_add(ConstByteSpan wire, const Slice&, TensorView acc, const Stream&) override {
    return read(wire, acc, [](T& to, T value) { to += value; });
  }

 private:
  template <typename Put>
  Status read(ConstByteSpan wire, TensorView to, const Put& put) {
    if (wire.size() != bytes(to.elems(), 0))
      return {Code::kCorruptPayload, "three_bytes: a payload of another length"};
    for (std::int64_t i = 0; i < to.elems(); ++i) {
      std::array<std::byte, 4> word{};
      std::copy_n(wire.begin() + 3 * i, 3, word.begin() + 1);
      put(reinterpret_cast<T*>(to.data())[i], std::bit_cast<float>(word));
    }
    return {};
  }
};

// What it claims here, the laws test.
class ThreeBytes : public Compressor {
 public:
  std::string spec() const override { return "three_bytes"; }
  Traits traits() const override { return {.elementwise = true, .needs_error_feedback = false}; }
  ErrorBound bound(const Shape&) const override {
    return {ErrorBound::Kind::kContraction, 1 - 0x1p-29};
  }
  std::size_t max_payload_bytes(const Shape& shape, DType, int, int) const override {
    return 3 * shape.elems();
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    GW_ASSIGN(auto format, open_slices(shape, where));
    return make_slice_coder(std::move(format), shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&,
                                                  const Placement& where) const override {
    const bool host = where.device == Device();
    if (host && where.dtype == DType::kF32) return std::unique_ptr<WireFormat>(new Format<float>);
    if (host && where.dtype == DType::kF64) return std::unique_ptr<WireFormat>(new Format<double>);
    return Status(Code::kUnsupported, "three_bytes: f32 and f64 on the host alone");
  }
};

inline Registry::Method method() {
  const auto make = [](const Spec&) -> Result<std::unique_ptr<Compressor>> {
    return std::unique_ptr<Compressor>(new ThreeBytes);
  };
  return {"three_bytes", "the upper 24 of 32 bits", "", {}, make};
}

}  // namespace three_bytes
