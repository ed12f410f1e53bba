// The Compressor of an elementwise method whose kernel depends on the shape alone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "compress/kernel_format.h"

namespace gradwire {

// What such a method says of itself.
struct KernelClaims {
  std::string name;
  std::string spec;  // canonical
  Traits traits;
  std::function<ErrorBound(const Shape&)> bound;
};

template <typename Kernel>
class KernelCompressor final : public Compressor {
 public:
  using KernelOf = std::function<Kernel(const Shape&)>;
  // What makes the format on a device; null: there is none.
  using OnDevice = Result<std::unique_ptr<WireFormat>> (*)(const Kernel&, const Placement&);
  KernelCompressor(KernelClaims claims, KernelOf kernel_of, OnDevice on_device)
      : claims_(std::move(claims)), kernel_of_(std::move(kernel_of)), on_device_(on_device) {}

  std::string spec() const override { return claims_.spec; }
  Traits traits() const override { return claims_.traits; }
  ErrorBound bound(const Shape& shape) const override { return claims_.bound(shape); }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    const auto elems = static_cast<std::size_t>(shape.elems());
    return elems == 0 ? 0 : kernel_of_(shape).bytes(elems, size_of(dtype));
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    GW_ASSIGN(auto slices, open_slices(shape, where));
    return make_slice_coder(std::move(slices), shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape& shape,
                                                  const Placement& where) const override {
    if (on_device_ != nullptr && where.device.space == MemorySpace::kCuda) {
      return on_device_(kernel_of_(shape), where);
    }
    return make_kernel_format(claims_.name, kernel_of_(shape), where);
  }

 private:
  KernelClaims claims_;
  KernelOf kernel_of_;
  OnDevice on_device_;
};

template <typename Kernel>
std::unique_ptr<Compressor> make_kernel_compressor(
    KernelClaims claims, typename KernelCompressor<Kernel>::KernelOf kernel_of,
    typename KernelCompressor<Kernel>::OnDevice on_device = nullptr) {
  return std::make_unique<KernelCompressor<Kernel>>(std::move(claims), std::move(kernel_of),
                                                    on_device);
}

}  // namespace gradwire
