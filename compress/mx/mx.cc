#include "compress/mx/mx.h"

#include <algorithm>
#include <cmath>

#include "base/tiny_floats.h"
#include "compress/kernel_compressor.h"
#include "compress/mx/mx_device.h"
#include "compress/mx/mx_kernels.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

// What of |x|^2 a block can lose. The scaled largest magnitude lies in [2^emax, 2^(emax + 1)):
// an element errs by 2^-(mantissa + 1) of itself, by what saturation cuts from 2^(emax + 1), or,
// below the least normal, by half a step, relative to 2^emax, in up to 31 elements.
template <typename Float>
double share_lost() {
  const int emax = std::ilogb(Float::kLargest);
  const double rounding = std::ldexp(1.0, -(Float::kMantissa + 1));
  const double cut = 1 - static_cast<double>(Float::kLargest) / std::ldexp(1.0, emax + 1);
  const double relative = std::max(rounding, cut);
  const double absolute = std::ldexp(1.0, -(Float::kBias + Float::kMantissa) - emax);
  return relative * relative + (kMxBlock - 1) * absolute * absolute;
}

struct Named {
  const char* name;
  MxKernel kernel;
  double lost;
};
const Named& named(const std::string& type) {
  static const Named all[] = {
      {"e4m3", {MxType::kE4M3, 8}, share_lost<Float8E4M3>()},
      {"e5m2", {MxType::kE5M2, 8}, share_lost<Float8E5M2>()},
      {"e3m2", {MxType::kE3M2, 6}, share_lost<Float6E3M2>()},
      {"e2m3", {MxType::kE2M3, 6}, share_lost<Float6E2M3>()},
      {"e2m1", {MxType::kE2M1, 4}, share_lost<Float4E2M1>()},
  };
  return *std::find_if(std::begin(all), std::end(all) - 1,
                       [&type](const Named& one) { return type == one.name; });
}

Result<std::unique_ptr<Compressor>> make_mx(const Spec& spec) {
  GW_ASSIGN(const std::string type,
            SpecReader(spec).choice("type", "e4m3", {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}));
  const Named& one = named(type);
  KernelClaims claims{"mx",
                      "mx:type=" + type,
                      {.elementwise = true,
                       .needs_error_feedback = one.kernel.bits == 4,
                       .bitwise_on_all_devices = true},
                      [lost = one.lost](const Shape&) {
                        return ErrorBound{ErrorBound::Kind::kContraction, 1 - lost};
                      }};
  KernelCompressor<MxKernel>::OnDevice on_device = nullptr;
  if constexpr (kHaveCuda) on_device = cuda::make_mx_format;
  return make_kernel_compressor<MxKernel>(
      std::move(claims), [kernel = one.kernel](const Shape&) { return kernel; }, on_device);
}

}  // namespace

Registry::Method mx_method() {
  return {"mx",
          "blocks of 32 elements as 4-, 6- or 8-bit floats under a shared power of two",
          "type",
          {{"type", "e4m3", "element format: e4m3 or e5m2 (8 bits), e3m2 or e2m3 (6), e2m1 (4)"}},
          make_mx};
}

}  // namespace gradwire
