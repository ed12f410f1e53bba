#include "compress/uniform/uniform_compressor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "base/text.h"
#include "compress/contract.h"
#include "compress/spec_reader.h"
#include "compress/uniform/uniform_device.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

using Kind = ErrorBound::Kind;

constexpr std::int64_t kDefaultBits = 8;
constexpr std::int64_t kDefaultBucket = 512;
constexpr int kCoarseBits = 4;  // biased at so few bits, plain SGD may stall

// Per bucket of n elements, relative to its sum of squares: the squared error of nearest rounding
// is at most n (u/2)^2 for a level u, and so is the variance of stochastic rounding.
// minmax: (max - min)^2 <= 2 |x|^2. absmax: M^2 <= |x|^2.
double worst_case(const UniformGrid& grid, double n) {
  const double levels = grid.levels();
  if (!grid.symmetric) return n / (2 * levels * levels);
  return n / (levels * levels);
}

ErrorBound bound_of(const UniformGrid& grid, double n) {
  const double half = grid.levels() / 2.0;
  if (grid.stochastic) {
    if (!grid.symmetric) return {Kind::kVariance, worst_case(grid, n)};
    if (grid.bits == 1) return {Kind::kVariance, n - 1};  // sum of M^2 - x^2
    // The second: as QSGD under the L-infinity norm.
    return {Kind::kVariance, std::min(worst_case(grid, n), std::sqrt(n) / (2 * half))};
  }
  double kept = 1 - worst_case(grid, n);
  if (grid.symmetric && grid.bits > 1) {
    // Zero is a level, so no error is above its element, and the largest element has none.
    kept = std::max(kept, 1 / n);
  } else if (grid.guard) {
    kept = std::max(kept, 0.0);
  }
  if (kept < 0 || (kept == 0 && !grid.guard)) return {};
  return {Kind::kContraction, kept};
}

class Uniform final : public Compressor {
 public:
  Uniform(std::string name, const UniformGrid& grid, bool guarded)
      : name_(std::move(name)), kernel_{grid}, guarded_(guarded) {}

  std::string spec() const override {
    const UniformGrid& grid = kernel_.grid;
    std::string text = name_ + format(":bits=%d", grid.bits);
    if (grid.bucket != kDefaultBucket) text += format(",bucket=%zu", grid.bucket);
    if (grid.stochastic) text += ",rounding=stochastic";
    if (grid.spikes) text += ",spikes=1";
    if (grid.hadamard) text += ",transform=hadamard";
    if (!guarded_) text += ",guard=0";
    return text;
  }
  Traits traits() const override {
    const UniformGrid& grid = kernel_.grid;
    return {.elementwise = true,
            .unbiased = grid.stochastic,
            .needs_error_feedback = !grid.stochastic && grid.bits <= kCoarseBits,
            .bitwise_on_all_devices = true};
  }
  ErrorBound bound(const Shape& shape) const override {
    const auto elems = std::max<std::int64_t>(1, shape.elems());
    return bound_of(kernel_.grid,
                    std::min(static_cast<double>(kernel_.grid.bucket), static_cast<double>(elems)));
  }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    return kernel_.bytes(static_cast<std::size_t>(shape.elems()), size_of(dtype));
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    GW_ASSIGN(auto slices, open_slices(shape, where));
    return make_slice_coder(std::move(slices), shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&,
                                                  const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        return cuda::make_uniform_format(name_, kernel_.grid, where);
      }
    }
    return make_kernel_format(name_, kernel_, where);
  }

 private:
  std::string name_;
  UniformKernel kernel_;
  bool guarded_;
};

Status check_bucket(const std::string& name, const UniformGrid& grid) {
  if (grid.bucket % 8 != 0) {
    return {Code::kInvalidArgument, format("compressor '%s': key 'bucket' is '%zu' (expected a "
                                           "multiple of 8: a bucket's codes are whole bytes)",
                                           name.c_str(), grid.bucket)};
  }
  if (grid.hadamard && !std::has_single_bit(grid.bucket)) {
    return {Code::kInvalidArgument, format("compressor '%s': key 'bucket' is '%zu' (expected a "
                                           "power of two with transform=hadamard)",
                                           name.c_str(), grid.bucket)};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Compressor>> make_uniform(const std::string& name, bool symmetric,
                                                 const Spec& spec) {
  const SpecReader reader(spec);
  GW_ASSIGN(const std::int64_t bits, reader.integer("bits", kDefaultBits, 1, 8));
  GW_ASSIGN(const std::int64_t bucket,
            reader.integer("bucket", kDefaultBucket, 8, kMostUniformBucket));
  GW_ASSIGN(const std::string rounding,
            reader.choice("rounding", "nearest", {"nearest", "stochastic"}));
  GW_ASSIGN(const std::int64_t spikes, reader.integer("spikes", 0, 0, 1));
  GW_ASSIGN(const std::string transform, reader.choice("transform", "none", {"none", "hadamard"}));
  const bool stochastic = rounding == "stochastic";
  GW_ASSIGN(const std::int64_t guard, reader.integer("guard", 1, 0, 1));
  UniformGrid grid{.bits = static_cast<int>(bits),
                   .bucket = static_cast<std::size_t>(bucket),
                   .symmetric = symmetric,
                   .stochastic = stochastic,
                   .spikes = spikes == 1,
                   .hadamard = transform == "hadamard"};
  GW_TRY(check_bucket(name, grid));
  // Where the worst case cannot exceed the error of zeros, nothing needs watching.
  const bool useful =
      !stochastic && bound_of(grid, static_cast<double>(bucket)).kind == Kind::kNone;
  grid.guard = useful && guard == 1;
  return std::unique_ptr<Compressor>(std::make_unique<Uniform>(name, grid, grid.guard || !useful));
}

std::vector<SpecKey> uniform_keys() {
  return {{"bits", "8", "bits per element, 1 to 8"},
          {"bucket", "512", "elements that share a grid, a multiple of 8, 8 to 65536"},
          {"rounding", "nearest", "nearest, or stochastic: unbiased, with a larger error"},
          {"spikes", "0",
           "1: each bucket's smallest and largest element are sent exactly, and the grid covers "
           "the others"},
          {"transform", "none",
           "hadamard: elements of a bucket are mixed first, which tames heavy tails"},
          {"guard", "1", "0: send coarse nearest codes even where zeros would be closer"}};
}

}  // namespace gradwire
