#include "compress/global_qsgd/global_qsgd.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/text.h"
#include "compress/shared_scale/magnitudes.h"
#include "compress/shared_scale/shared_scale_coder.h"
#include "compress/shared_scale/shared_scale_device.h"
#include "compress/shared_scale/uniform_levels.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostLevels = 127;
constexpr std::int64_t kDefaultBits = 4;
constexpr std::size_t kGlobalQsgdBucket = 512;
constexpr std::int64_t kMostBucket = 1 << 20;

struct NormGrid {
  static constexpr const char* kName = "global_qsgd";
  static constexpr bool kPrepares = false;
  int levels = 1;
  std::size_t bucket = kGlobalQsgdBucket;  // 0: the whole tensor
  bool l2 = false;

  std::size_t bucket_of(std::size_t rest) const {
    return bucket == 0 ? rest : std::min(bucket, rest);
  }
  int most() const { return 2 * levels; }
  bool needs_squares() const { return l2; }
  float scale_of(const BucketMagnitudes& x) const {
    // Never below the largest magnitude, whatever the sums round to.
    return scale_above(l2 ? std::max(x.largest(), x.norm()) : x.largest());
  }
  double half_unit(float norm, std::size_t) const {
    return static_cast<double>(norm) / (2.0 * levels);
  }
  template <typename T>
  void code(std::span<const T> x, float, float norm, std::size_t begin, Dither& dither,
            std::uint8_t* codes) const {
    code_levels<T>(x, std::numeric_limits<T>::infinity(), norm, levels, begin, dither, codes);
  }
};

class GlobalQsgd final : public Compressor {
 public:
  GlobalQsgd(const NormGrid& grid, bool by_levels) : grid_(grid), by_levels_(by_levels) {}

  std::string spec() const override {
    const int bits = 1 + static_cast<int>(std::bit_width(static_cast<unsigned>(grid_.levels)));
    std::string text = by_levels_ ? format("global_qsgd:levels=%d", grid_.levels)
                                  : format("global_qsgd:bits=%d", bits);
    if (grid_.l2) text += ",norm=l2";
    if (grid_.bucket == 0) return text + ",bucket=tensor";
    if (grid_.bucket != kGlobalQsgdBucket) text += format(",bucket=%zu", grid_.bucket);
    return text;
  }
  Traits traits() const override {
    return {.exchange = Exchange::kAllReduceSum,
            .rounds = 2,
            .payload_dtype = DType::kI32,
            .unbiased = true,
            .needs_error_feedback = false,
            .bitwise_on_all_devices = true};
  }
  // An element's variance is at most a quarter of the squared step, and at most |x| times the step;
  // over a bucket of n elements no norm is above that of the largest magnitudes over ranks.
  ErrorBound bound(const Shape& shape) const override {
    const auto elems = static_cast<std::size_t>(shape.elems());
    const auto n = static_cast<double>(elems == 0 ? 0 : grid_.bucket_of(elems));
    const double s = grid_.levels;
    return {.kind = ErrorBound::Kind::kVariance,
            .value = std::min(n / (4 * s * s), std::sqrt(n) / s),
            .over_ranks = true};
  }
  RoundKind round_kind(int round, DType, int) const override { return shared_scale_round(round); }
  std::size_t max_payload_bytes(const Shape& shape, DType, int round, int size) const override {
    return shared_scale_bytes(grid_, static_cast<std::size_t>(shape.elems()), round, size);
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        const auto scale = grid_.l2 ? cuda::ScaleOf::kNormOrLargest : cuda::ScaleOf::kLargest;
        return cuda::make_shared_scale_coder({.name = NormGrid::kName,
                                              .bucket = static_cast<std::int64_t>(grid_.bucket),
                                              .most = grid_.most(),
                                              .scale = scale},
                                             shape, where);
      }
    }
    return make_shared_scale_coder(grid_, shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported,
                  "global_qsgd: codes mean something on shared norms alone; write combine=sum, or "
                  "qsgd for slices");
  }

 private:
  NormGrid grid_;
  bool by_levels_;
};

Result<std::unique_ptr<Compressor>> make_global_qsgd(const Spec& spec) {
  const SpecReader reader(spec);
  if (reader.has("bits") && reader.has("levels")) {
    return Status(
        Code::kInvalidArgument,
        "compressor 'global_qsgd': at most one of the keys 'bits' and 'levels' may be given");
  }
  GW_ASSIGN(const std::int64_t bits, reader.integer("bits", kDefaultBits, 2, 8));
  GW_ASSIGN(const std::int64_t levels,
            reader.integer("levels", (1 << (bits - 1)) - 1, 1, kMostLevels));
  const Result<std::string> norm = reader.choice("norm", "linf", {"linf", "l2"});
  if (!norm.has_value()) return norm.error();
  NormGrid grid{.levels = static_cast<int>(levels), .l2 = norm.value() == "l2"};
  const auto tensor = reader.choice("bucket", "", {"tensor"});
  if (tensor.has_value() && tensor.value() == "tensor") {
    grid.bucket = 0;
  } else {
    GW_ASSIGN(
        const std::int64_t bucket,
        reader.integer("bucket", static_cast<std::int64_t>(kGlobalQsgdBucket), 1, kMostBucket));
    grid.bucket = static_cast<std::size_t>(bucket);
  }
  return std::unique_ptr<Compressor>(std::make_unique<GlobalQsgd>(grid, reader.has("levels")));
}

}  // namespace

Registry::Method global_qsgd_method() {
  return {"global_qsgd",
          "sign and level of every element on norms that all ranks share, summed as integers",
          "bits",
          {{"bits", "4", "bits per element on one rank, 2 to 8: 2^(bits-1) - 1 levels"},
           {"levels", "", "levels instead of bits, 1 to 127"},
           {"norm", "linf", "norm of a bucket: linf or l2"},
           {"bucket", "512", "elements that share a norm, 1 to 1048576, or tensor"}},
          make_global_qsgd};
}

}  // namespace gradwire
