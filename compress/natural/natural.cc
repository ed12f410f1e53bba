#include "compress/natural/natural.h"

#include "compress/kernel_compressor.h"
#include "compress/natural/natural_device.h"
#include "compress/natural/natural_kernels.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

template <class Kernel>
Result<std::unique_ptr<WireFormat>> on_device(const Kernel& kernel,
                                              const Compressor::Placement& where) {
  if constexpr (kHaveCuda) return cuda::make_natural_format(kernel, where);
  return make_kernel_format("natural", kernel, where);
}

Result<std::unique_ptr<Compressor>> make_natural(const Spec& spec) {
  GW_ASSIGN(const std::int64_t bits, SpecReader(spec).integer("bits", 9, 8, 9));
  KernelClaims claims{"natural",
                      bits == 9 ? "natural" : "natural:bits=8",
                      {.elementwise = true,
                       .unbiased = true,
                       .needs_error_feedback = false,
                       .bitwise_on_all_devices = true},
                      [](const Shape&) {
                        return ErrorBound{ErrorBound::Kind::kVariance, 0.125};
                      }};
  if (bits == 9) {
    return make_kernel_compressor<NaturalKernel>(
        std::move(claims), [](const Shape&) { return NaturalKernel{}; }, on_device<NaturalKernel>);
  }
  return make_kernel_compressor<NaturalWindowKernel>(
      std::move(claims), [](const Shape&) { return NaturalWindowKernel{}; },
      on_device<NaturalWindowKernel>);
}

}  // namespace

Registry::Method natural_method() {
  return {"natural",
          "each element rounded stochastically to a power of two: sign and exponent",
          "bits",
          {{"bits", "9",
            "9: all exponents of fp32; 8: exponents 2^-94 to 2^31, larger elements are clipped"}},
          make_natural};
}

}  // namespace gradwire
