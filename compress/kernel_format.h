// The WireFormat of a method whose kernels are two functions over a slice: arguments are checked
// here once, in the words of contract.h, and elements get their type.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "base/elements.h"
#include "compress/contract.h"
#include "gradwire/compressor.h"
#include "gradwire/wire_format.h"

namespace gradwire {

// What a kernel's random numbers hang on.
struct SliceKey {
  std::uint64_t seed = 0;
  Slice slice;
};

// Kernel is a value with
//   std::size_t bytes(std::size_t elems, std::size_t element_bytes) const;
//   template <typename T> Status encode(const SliceKey&, std::span<const T>, ByteSpan) const;
//   template <typename T> Status decode(const SliceKey&, ConstByteSpan, bool add, std::span<T>)
//   const;
// T is float or double, the spans hold at least one element, and the bytes are exactly bytes().
// encode() answers kInvalidArgument for elements that have no code; decode() answers
// kCorruptPayload.
template <typename Kernel>
class KernelFormat final : public WireFormat {
 public:
  KernelFormat(std::string name, Kernel kernel, const Compressor::Placement& where)
      : name_(std::move(name)),
        kernel_(std::move(kernel)),
        dtype_(where.dtype),
        seed_(where.seed) {}

  std::size_t bytes(std::int64_t elems, int) const override {
    return elems == 0 ? 0 : kernel_.bytes(static_cast<std::size_t>(elems), size_of(dtype_));
  }
  Result<std::size_t> pack(ConstTensorView src, const Slice& slice, ByteSpan wire,
                           const Stream&) override {
    GW_TRY(check_tensor(name_ + ": src", src, src.elems(), dtype_));
    const std::size_t count = bytes(src.elems(), slice.stage);
    GW_TRY(check_room(name_ + ": payload", wire.size(), count));
    if (src.empty()) return count;
    const SliceKey key{seed_, slice};
    if (dtype_ == DType::kF64) {
      GW_TRY(kernel_.template encode<double>(key, elements<double>(src), wire.first(count)));
    } else {
      GW_TRY(kernel_.template encode<float>(key, elements<float>(src), wire.first(count)));
    }
    return count;
  }
  Status unpack(ConstByteSpan wire, const Slice& slice, TensorView dst, const Stream&) override {
    return decode(wire, slice, false, dst);
  }
  Status unpack_add(ConstByteSpan wire, const Slice& slice, TensorView acc,
                    const Stream&) override {
    return decode(wire, slice, true, acc);
  }

 private:
  Status decode(ConstByteSpan wire, const Slice& slice, bool add, TensorView dst) const {
    GW_TRY(check_tensor(name_ + ": dst", dst, dst.elems(), dtype_));
    GW_TRY(check_length(name_, wire.size(), bytes(dst.elems(), slice.stage)));
    if (dst.empty()) return {};
    const SliceKey key{seed_, slice};
    return dtype_ == DType::kF64
               ? kernel_.template decode<double>(key, wire, add, elements<double>(dst))
               : kernel_.template decode<float>(key, wire, add, elements<float>(dst));
  }

  std::string name_;
  Kernel kernel_;
  DType dtype_;
  std::uint64_t seed_;
};

// With check_placement() under the method's name.
template <typename Kernel>
Result<std::unique_ptr<WireFormat>> make_kernel_format(const std::string& name, Kernel kernel,
                                                       const Compressor::Placement& where) {
  GW_TRY(check_placement(name, where));
  return std::unique_ptr<WireFormat>(
      std::make_unique<KernelFormat<Kernel>>(name, std::move(kernel), where));
}

}  // namespace gradwire
