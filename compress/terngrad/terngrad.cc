#include "compress/terngrad/terngrad.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/text.h"
#include "compress/shared_scale/magnitudes.h"
#include "compress/shared_scale/shared_scale_coder.h"
#include "compress/shared_scale/shared_scale_device.h"
#include "compress/shared_scale/uniform_levels.h"
#include "compress/spec_reader.h"
#include "compress/terngrad/trit_device.h"
#include "compress/terngrad/trit_kernel.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr double kDefaultClip = 2.5;
constexpr double kLeastClip = 1.5;
constexpr double kMostClip = 1000;

struct TernGrid {
  static constexpr const char* kName = "terngrad";
  static constexpr bool kPrepares = false;
  double clip = kDefaultClip;

  std::size_t bucket_of(std::size_t rest) const { return rest; }
  int most() const { return 2; }
  bool needs_squares() const { return clip != 0; }
  float scale_of(const BucketMagnitudes& x) const { return scale_above(x.clipped(clip)); }
  double half_unit(float scale, std::size_t) const { return static_cast<double>(scale) / 2; }
  template <typename T>
  void code(std::span<const T> x, float own, float scale, std::size_t begin, Dither& dither,
            std::uint8_t* codes) const {
    code_levels<T>(x, static_cast<T>(own), scale, 1, begin, dither, codes);
  }
};

class TernGrad final : public Compressor {
 public:
  TernGrad(double clip, bool shared) : grid_{clip}, shared_(shared) {}

  std::string spec() const override {
    std::string keys;
    if (grid_.clip != kDefaultClip) keys += ",clip=" + shortest(grid_.clip);
    if (!shared_) keys += ",shared=false";
    if (!keys.empty()) keys[0] = ':';
    return "terngrad" + keys;
  }
  Traits traits() const override {
    Traits traits{.elementwise = !shared_,
                  .unbiased = grid_.clip == 0,
                  .needs_error_feedback = false,
                  .bitwise_on_all_devices = true};
    if (!shared_) return traits;
    traits.exchange = Exchange::kAllReduceSum;
    traits.rounds = 2;
    traits.payload_dtype = DType::kI32;
    return traits;
  }
  // E|C(x)|^2 = s |x|_1 for the clipped x. Unclipped: s |x|_1 <= |x|^2 (1 + sqrt(n)) / 2, or
  // |x|^2 sqrt(n) where s is another rank's. Clipped at k rms, a C(x) is a contraction: with u^2 =
  // min(1, k / sqrt(n)), the least that clipping leaves of <x, clipped x> / |x|^2,
  //   E|x - a C(x)|^2 <= (1 - a u (2 u - a k)) |x|^2, least at a = u / k.
  ErrorBound bound(const Shape& shape) const override {
    const double root = std::sqrt(static_cast<double>(std::max<std::int64_t>(shape.elems(), 1)));
    if (grid_.clip == 0) {
      const double omega = shared_ ? (root >= 2 ? root - 1 : root * root / 4) : (root - 1) / 2;
      return {.kind = ErrorBound::Kind::kVariance, .value = omega, .over_ranks = shared_};
    }
    const double u = std::sqrt(std::min(1.0, grid_.clip / root));
    const double a = u / grid_.clip;
    return {.kind = ErrorBound::Kind::kContraction,
            .value = a * u * u,
            .scale = a,
            .over_ranks = shared_};
  }
  RoundKind round_kind(int round, DType dtype, int size) const override {
    return shared_ ? shared_scale_round(round) : Compressor::round_kind(round, dtype, size);
  }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int round,
                                int size) const override {
    const auto elems = static_cast<std::size_t>(shape.elems());
    if (shared_) return shared_scale_bytes(grid_, elems, round, size);
    return elems == 0 ? 0 : TritKernel{grid_.clip}.bytes(elems, size_of(dtype));
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (shared_ && where.device.space == MemorySpace::kCuda) {
        const auto scale = grid_.clip == 0 ? cuda::ScaleOf::kLargest : cuda::ScaleOf::kClipped;
        return cuda::make_shared_scale_coder({.name = TernGrid::kName,
                                              .bucket = 0,
                                              .most = grid_.most(),
                                              .scale = scale,
                                              .clip = grid_.clip,
                                              .clips_to_own = true},
                                             shape, where);
      }
    }
    if (shared_) return make_shared_scale_coder(grid_, shape, where);
    GW_ASSIGN(auto slices, open_slices(shape, where));
    return make_slice_coder(std::move(slices), shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&,
                                                  const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (!shared_ && where.device.space == MemorySpace::kCuda) {
        return cuda::make_trit_format({grid_.clip}, where);
      }
    }
    if (!shared_) return make_kernel_format("terngrad", TritKernel{grid_.clip}, where);
    return Status(Code::kUnsupported,
                  "terngrad: a shared scale belongs to a whole tensor; write combine=sum, or "
                  "shared=false for slices");
  }

 private:
  TernGrid grid_;
  bool shared_;
};

Result<std::unique_ptr<Compressor>> make_terngrad(const Spec& spec) {
  const SpecReader reader(spec);
  GW_ASSIGN(const double clip, reader.number_from_zero("clip", kDefaultClip, kMostClip));
  if (clip != 0 && clip < kLeastClip) {
    return Status(Code::kInvalidArgument,
                  "compressor 'terngrad': key 'clip' is '" + shortest(clip) +
                      "' (expected 0 for none, or root mean squares from 1.5 to 1000)");
  }
  GW_ASSIGN(const bool shared, reader.boolean("shared", true));
  return std::unique_ptr<Compressor>(std::make_unique<TernGrad>(clip, shared));
}

}  // namespace

Registry::Method terngrad_method() {
  return {
      "terngrad",
      "-1, 0 or 1 times a scale, rounded stochastically; summed as integers, or five elements per "
      "byte",
      "",
      {{"clip", "2.5", "root mean squares at which elements are clipped, 1.5 to 1000; 0: never"},
       {"shared", "true", "true: one scale for all ranks, summed; false: each its own, gathered"}},
      make_terngrad};
}

}  // namespace gradwire
