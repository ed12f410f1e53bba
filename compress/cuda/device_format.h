// The WireFormat of a method on a device: arguments are checked here once, kernels are two calls.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "compress/contract.h"
#include "compress/cuda/device_contract.h"
#include "compress/cuda/slices.h"
#include "compress/cuda/verdict.h"
#include "compress/kernel_format.h"
#include "device/cuda/memory.h"

namespace gradwire::cuda {

// Kernels is a value with
//   std::size_t bytes(std::size_t elems, int stage) const;
//   std::int64_t seam(int stage) const;
//   std::vector<std::size_t> sections(std::size_t elems, int stage) const;
//   Status encode(const SliceKey&, const Source&, std::byte* wire, std::uint64_t* verdict, stream)
//   Status decode(const SliceKey&, const std::byte* wire, bool add, std::span<float> dst,
//                 std::uint64_t* verdict, stream)
//   Status refused(Finding) const;   what a finding of encode() is called: kInvalidArgument
//   Status corrupt(Finding) const;   of decode(), unless kTakesAnyBytes: kCorruptPayload
//   bool refuses(const Source&) const;   whether encode() may find anything
//   static constexpr bool kTakesAnyBytes   decode() never finds anything
//   static constexpr bool kTakesFeedback   encode() keeps a source's next
// There is at least one element, and all memory is the device's. The calls enqueue; the format
// waits for the stream wherever something may have been found. `Base` is WireFormat, or what a
// method's coder wants of a format beside that.
template <class Kernels, class Base = WireFormat>
class DeviceFormat : public Base {
 public:
  DeviceFormat(std::string name, Kernels kernels, Verdict verdict,
               const Compressor::Placement& where)
      : name_(std::move(name)),
        kernels_(std::move(kernels)),
        verdict_(std::move(verdict)),
        device_(where.device),
        seed_(where.seed) {}

  std::size_t bytes(std::int64_t elems, int stage) const override {
    return elems == 0 ? 0 : kernels_.bytes(static_cast<std::size_t>(elems), stage);
  }
  std::int64_t seam(int stage) const override { return kernels_.seam(stage); }
  std::vector<std::size_t> sections(std::int64_t elems, int stage) const override {
    return kernels_.sections(static_cast<std::size_t>(elems), stage);
  }
  Result<std::size_t> pack(ConstTensorView src, const Slice& slice, ByteSpan wire,
                           const Stream& stream) override {
    GW_TRY(check("src", src, src.elems()));
    return encode(source_of(src, {}), slice, wire, stream);
  }
  bool takes_feedback() const override { return Kernels::kTakesFeedback; }
  Result<std::size_t> pack_with_feedback(ConstTensorView src, const Feedback& feedback,
                                         const Slice& slice, ByteSpan wire,
                                         const Stream& stream) override {
    if constexpr (Kernels::kTakesFeedback) {
      GW_TRY(check("src", src, src.elems()));
      GW_TRY(check("residual", feedback.residual, src.elems()));
      GW_TRY(check("next", feedback.next, src.elems()));
      return encode(source_of(src, feedback), slice, wire, stream);
    } else {
      return Base::pack_with_feedback(src, feedback, slice, wire, stream);
    }
  }
  Status unpack(ConstByteSpan wire, const Slice& slice, TensorView dst,
                const Stream& stream) override {
    return decode(wire, slice, false, dst, stream);
  }
  Status unpack_add(ConstByteSpan wire, const Slice& slice, TensorView acc,
                    const Stream& stream) override {
    return decode(wire, slice, true, acc, stream);
  }

 protected:
  const Kernels& kernels() const { return kernels_; }
  Device device() const { return device_; }
  Verdict& verdict() { return verdict_; }

  // kInvalidArgument unless `elems` elements of kF32 on this device.
  Status check(const char* what, ConstTensorView tensor, std::int64_t elems) const {
    return check_tensor_on(device_, name_ + ": " + what, tensor, elems, DType::kF32);
  }

 private:
  Result<std::size_t> encode(const Source& source, const Slice& slice, ByteSpan wire,
                             const Stream& stream) {
    const std::size_t count = bytes(source.count, slice.stage);
    GW_TRY(check_room(name_ + ": payload", wire.size(), count));
    if (count == 0) return count;
    const OnDevice here(device_);
    GW_TRY(here.status());
    const bool refuses = kernels_.refuses(source);
    if (refuses) GW_TRY(verdict_.clear(stream));
    GW_TRY(kernels_.encode({seed_, slice}, source, wire.data(), verdict_.word(), stream));
    if (!refuses) return count;
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind != 0) return kernels_.refused(finding).with_context(name_);
    return count;
  }

  Status decode(ConstByteSpan wire, const Slice& slice, bool add, TensorView dst,
                const Stream& stream) {
    GW_TRY(check("dst", dst, dst.elems()));
    GW_TRY(check_length(name_, wire.size(), bytes(dst.elems(), slice.stage)));
    if (dst.empty()) return {};
    const OnDevice here(device_);
    GW_TRY(here.status());
    if constexpr (!Kernels::kTakesAnyBytes) GW_TRY(verdict_.clear(stream));
    GW_TRY(kernels_.decode({seed_, slice}, wire.data(), add, elements<float>(dst), verdict_.word(),
                           stream));
    if constexpr (Kernels::kTakesAnyBytes) {
      return {};
    } else {
      GW_ASSIGN(const Finding finding, verdict_.read(stream));
      return finding.kind == 0 ? Status() : kernels_.corrupt(finding).with_context(name_);
    }
  }

  std::string name_;
  Kernels kernels_;
  Verdict verdict_;
  Device device_;
  std::uint64_t seed_;
};

// kUnsupported unless `where` is for kF32.
template <class Kernels>
Result<std::unique_ptr<WireFormat>> make_device_format(const std::string& name, Kernels kernels,
                                                       const Compressor::Placement& where) {
  GW_TRY(check_device_placement(name, where));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  return std::unique_ptr<WireFormat>(
      std::make_unique<DeviceFormat<Kernels>>(name, std::move(kernels), std::move(verdict), where));
}

}  // namespace gradwire::cuda
