#include "compress/fp8/fp8.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/tiny_floats.h"
#include "compress/fp8/fp8_device.h"
#include "compress/fp8/fp8_kernels.h"
#include "compress/kernel_compressor.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr std::int64_t kDefaultBlock = 512;
constexpr std::int64_t kMostBlock = 1 << 20;

// An element errs by at most 2^-(mantissa + 1) of itself or, below the least normal, by half a
// step, which is largest / F * 2^-(bias + mantissa); and scaling rounds in fp32.
template <typename Float>
double share_lost(double n) {
  const double relative = std::ldexp(1.0, -(Float::kMantissa + 1));
  const double absolute =
      std::ldexp(1.0, -(Float::kBias + Float::kMantissa)) / static_cast<double>(Float::kLargest);
  return (relative * relative + n * absolute * absolute) * (1 + 0x1p-18);
}

Result<std::unique_ptr<Compressor>> make_fp8(const Spec& spec) {
  const SpecReader reader(spec);
  GW_ASSIGN(const std::string type, reader.choice("type", "e4m3", {"e4m3", "e5m2"}));
  GW_ASSIGN(const std::string scale, reader.choice("scale", "block", {"row", "block"}));
  GW_ASSIGN(const std::int64_t block, reader.integer("block", kDefaultBlock, 1, kMostBlock));
  const bool e4m3 = type == "e4m3";
  const bool rows = scale == "row";
  const auto group_of = [rows, block](const Shape& shape) {
    return rows ? row_or(shape, block) : block;
  };
  std::string text = "fp8:type=" + type;
  if (rows) text += ",scale=row";
  if (block != kDefaultBlock) text += format(",block=%lld", static_cast<long long>(block));
  KernelClaims claims{
      "fp8",
      text,
      {.elementwise = true, .needs_error_feedback = false, .bitwise_on_all_devices = true},
      [e4m3, group_of](const Shape& shape) {
        const auto n = static_cast<double>(std::min(group_of(shape), shape.elems()));
        const double lost = e4m3 ? share_lost<Float8E4M3>(n) : share_lost<Float8E5M2>(n);
        return ErrorBound{ErrorBound::Kind::kContraction, 1 - lost};
      }};
  KernelCompressor<Fp8Kernel>::OnDevice on_device = nullptr;
  if constexpr (kHaveCuda) on_device = cuda::make_fp8_format;
  const auto kernel_of = [e4m3, group_of](const Shape& shape) {
    return Fp8Kernel{e4m3 ? Fp8Type::kE4M3 : Fp8Type::kE5M2,
                     static_cast<std::size_t>(group_of(shape))};
  };
  return make_kernel_compressor<Fp8Kernel>(std::move(claims), kernel_of, on_device);
}

}  // namespace

Registry::Method fp8_method() {
  return {"fp8",
          "each element as an 8-bit float, under a scale for every row or block",
          "type",
          {{"type", "e4m3", "e4m3 (3 bits of mantissa, 2^18 of range) or e5m2 (2 bits, 2^32)"},
           {"scale", "block",
            "elements that share a scale: block, or row (one index of the first dimension; vectors "
            "and short rows use blocks)"},
           {"block", "512", "elements of a block, 1 to 1048576"}},
          make_fp8};
}

}  // namespace gradwire
