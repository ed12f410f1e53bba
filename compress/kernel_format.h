// The WireFormat of a method whose kernels are two functions over a slice: arguments are checked
// here once, in the words of contract.h, and elements get their type.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "compress/block_feedback.h"
#include "compress/contract.h"
#include "compress/corrected.h"
#include "gradwire/compressor.h"
#include "gradwire/wire_format.h"

namespace gradwire {

// What a kernel's random numbers hang on.
struct SliceKey {
  std::uint64_t seed = 0;
  Slice slice;
};

// One of several slices that are added up.
template <typename T>
struct KernelAddend {
  const T* values = nullptr;  // or, if null,
  ConstByteSpan wire;         // bytes() of what encode() wrote under
  SliceKey key;
};

// Kernel is a value with
//   std::size_t bytes(std::size_t elems, std::size_t element_bytes) const;
//   template <typename T> Status encode(const SliceKey&, std::span<const T>, ByteSpan) const;
//   template <typename T> Status decode(const SliceKey&, ConstByteSpan, bool add, std::span<T>)
//   const;
// T is float or double, the spans hold at least one element, and the bytes are exactly bytes().
// encode() answers kInvalidArgument for elements that have no code; decode() answers
// kCorruptPayload. It may have, as of WireFormat's pack_with_feedback() (without which a kernel
// with seams is fed back in blocks) and fold(),
//   template <typename T> Status encode_with_feedback(const SliceKey&, const Corrected<T>&, T*
//   next,
//                                                     T own_scale, ByteSpan) const;
//   template <typename T> Status fold(const SliceKey&, std::span<const KernelAddend<T>>,
//                                     std::size_t elems, ByteSpan) const;
// and, where slices may be cut for threads (WireFormat),
//   std::int64_t seam() const;
//   std::vector<std::size_t> sections(std::size_t elems) const;    if there are several
template <typename Kernel>
concept FeedbackKernel = requires(const Kernel& kernel, const SliceKey& key,
                                  const Corrected<float>& p, float* next, ByteSpan wire) {
  kernel.template encode_with_feedback<float>(key, p, next, 1.0f, wire);
};
template <typename Kernel>
concept FoldingKernel = requires(const Kernel& kernel, const SliceKey& key,
                                 std::span<const KernelAddend<float>> addends, ByteSpan wire) {
  kernel.template fold<float>(key, addends, std::size_t{1}, wire);
};

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
  std::int64_t seam(int stage) const override {
    if constexpr (requires { kernel_.seam(); }) return kernel_.seam();
    return WireFormat::seam(stage);
  }
  std::vector<std::size_t> sections(std::int64_t elems, int stage) const override {
    if constexpr (requires { kernel_.sections(std::size_t{}); }) {
      return kernel_.sections(static_cast<std::size_t>(elems));
    }
    return WireFormat::sections(elems, stage);
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
  bool takes_feedback() const override {
    return FeedbackKernel<Kernel> || fits_in_blocks(*this, 0);
  }
  Result<std::size_t> pack_with_feedback(ConstTensorView src, const Feedback& feedback,
                                         const Slice& slice, ByteSpan wire,
                                         const Stream& stream) override {
    if constexpr (FeedbackKernel<Kernel>) {
      GW_TRY(check_feedback(name_, src, feedback, dtype_));
      return dtype_ == DType::kF64 ? feed_back<double>(src, feedback, slice, wire)
                                   : feed_back<float>(src, feedback, slice, wire);
    }
    return pack_in_blocks(name_, *this, dtype_, src, feedback, slice, wire, stream);
  }
  bool folds() const override { return FoldingKernel<Kernel>; }
  Result<std::size_t> fold(std::span<const Addend> addends, std::int64_t elems, const Slice& sum,
                           ByteSpan wire, const Stream& stream) override {
    if constexpr (FoldingKernel<Kernel>) {
      return dtype_ == DType::kF64 ? fold_typed<double>(addends, elems, sum, wire)
                                   : fold_typed<float>(addends, elems, sum, wire);
    }
    return WireFormat::fold(addends, elems, sum, wire, stream);
  }
  Status unpack(ConstByteSpan wire, const Slice& slice, TensorView dst, const Stream&) override {
    return decode(wire, slice, false, dst);
  }
  Status unpack_add(ConstByteSpan wire, const Slice& slice, TensorView acc,
                    const Stream&) override {
    return decode(wire, slice, true, acc);
  }

 private:
  template <typename T>
  Result<std::size_t> feed_back(ConstTensorView src, const Feedback& feedback, const Slice& slice,
                                ByteSpan wire) const {
    const std::size_t count = bytes(src.elems(), slice.stage);
    GW_TRY(check_room(name_ + ": payload", wire.size(), count));
    if (src.empty()) return count;
    const Corrected<T> p(elements<T>(src), elements<T>(feedback.residual).data());
    const Status status = kernel_.template encode_with_feedback<T>(
        {seed_, slice}, p, elements<T>(feedback.next).data(), static_cast<T>(feedback.scale),
        wire.first(count));
    if (!status.ok()) return status.with_context(name_);
    return count;
  }

  template <typename T>
  Result<std::size_t> fold_typed(std::span<const Addend> addends, std::int64_t elems,
                                 const Slice& sum, ByteSpan wire) const {
    const std::size_t count = bytes(elems, sum.stage);
    GW_TRY(check_room(name_ + ": payload", wire.size(), count));
    if (elems == 0) return count;
    if (addends.empty()) return Status(Code::kInvalidArgument, name_ + ": no addends");
    std::vector<KernelAddend<T>> parts;
    for (const Addend& addend : addends) {
      if (addend.values.empty()) {
        GW_TRY(check_length(name_, addend.wire.size(), bytes(elems, addend.slice.stage)));
        parts.push_back({nullptr, addend.wire, {seed_, addend.slice}});
      } else {
        GW_TRY(check_tensor(name_ + ": addend", addend.values, elems, dtype_));
        parts.push_back({elements<T>(addend.values).data(), {}, {seed_, addend.slice}});
      }
    }
    const Status status = kernel_.template fold<T>(
        {seed_, sum}, parts, static_cast<std::size_t>(elems), wire.first(count));
    if (!status.ok()) return status.with_context(name_);
    return count;
  }

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
