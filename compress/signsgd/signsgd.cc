#include "compress/signsgd/signsgd.h"

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "compress/contract.h"
#include "compress/signsgd/sign_formats.h"
#include "compress/signsgd/signs_device.h"
#include "compress/signum/signum_coder.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr std::int64_t kSignBucket = 4096;
constexpr std::int64_t kWholeTensor = 0;

enum class SignKind : std::uint8_t { kScaled, kBare, kVote };

class SignSgd final : public Compressor {
 public:
  SignSgd(SignKind kind, std::int64_t bucket, bool zeros)
      : kind_(kind), bucket_(bucket), zeros_(zeros) {}

  std::string spec() const override {
    const std::string zeros = zeros_ ? ",zeros=1" : "";
    if (kind_ == SignKind::kVote) return "signsgd:vote=majority" + zeros;
    if (kind_ == SignKind::kBare) return "signsgd:scale=none" + zeros;
    if (bucket_ == kWholeTensor) return "signsgd:bucket=tensor";
    if (bucket_ == kSignBucket) return "signsgd";
    return format("signsgd:bucket=%lld", static_cast<long long>(bucket_));
  }

  // A bare sign is no slice codec: its second encoding would put the sign of a sum, divided by the
  // number of ranks, in place of the average. A vote cannot be fed back, whatever its bias.
  Traits traits() const override {
    return {.exchange = Exchange::kAllGather,
            .elementwise = kind_ != SignKind::kBare,
            .needs_error_feedback = kind_ != SignKind::kVote,
            .mean_is_average_of_own = kind_ != SignKind::kVote,
            .bitwise_on_all_devices = true};
  }

  ErrorBound bound(const Shape& shape) const override {
    if (kind_ != SignKind::kScaled) return {};
    const std::int64_t elems = std::max<std::int64_t>(1, shape.elems());
    const std::int64_t bucket = bucket_ == kWholeTensor ? elems : std::min(bucket_, elems);
    return {ErrorBound::Kind::kContraction, 1.0 / static_cast<double>(bucket)};
  }

  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    return make_format(dtype)->bytes(shape.elems(), 0);
  }

  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    if (kind_ == SignKind::kVote && zeros_) {
      return make_signum_coder("signsgd", 0, shape, where);
    }
    if (kind_ == SignKind::kVote) {
      GW_ASSIGN(auto votes, open_votes(where));
      return make_vote_coder(std::move(votes), shape, where);
    }
    GW_ASSIGN(auto slices, open_format(where));
    return make_slice_coder(std::move(slices), shape, where);
  }

  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&,
                                                  const Placement& where) const override {
    if (kind_ == SignKind::kBare) {
      return Status(Code::kUnsupported,
                    "signsgd:scale=none: a second encoding would lose the size of the sum of "
                    "signs; write combine=gather, or vote=majority");
    }
    return open_format(where);
  }

 private:
  std::unique_ptr<WireFormat> make_format(DType dtype) const {
    if (kind_ == SignKind::kScaled) return make_scaled_sign_format(dtype, bucket_);
    if (zeros_) return make_zero_sign_format(dtype);
    return make_vote_format(dtype);
  }
  // Slices with marked blocks of zeros are the host's alone.
  Result<std::unique_ptr<WireFormat>> open_format(const Placement& where) const {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda && kind_ == SignKind::kScaled) {
        return cuda::make_scaled_sign_format(bucket_, where);
      }
      if (where.device.space == MemorySpace::kCuda && !zeros_) {
        GW_ASSIGN(auto votes, open_votes(where));
        return std::unique_ptr<WireFormat>(std::move(votes));
      }
    }
    GW_TRY(check_placement("signsgd", where));
    return make_format(where.dtype);
  }
  static Result<std::unique_ptr<VotingFormat>> open_votes(const Placement& where) {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) return cuda::make_vote_format(where);
    }
    GW_TRY(check_placement("signsgd", where));
    return make_vote_format(where.dtype);
  }

  SignKind kind_;
  std::int64_t bucket_;
  bool zeros_;
};

Result<std::int64_t> read_sign_bucket(const SpecReader& reader) {
  const auto word = reader.choice("bucket", "", {"tensor"});
  if (word.has_value() && word.value() == "tensor") return kWholeTensor;
  auto bucket = reader.integer("bucket", kSignBucket, 1, std::numeric_limits<std::int32_t>::max());
  if (bucket.has_value()) return bucket;
  return Status(Code::kInvalidArgument, std::string(bucket.error().message()) + ", or tensor");
}

Result<std::unique_ptr<Compressor>> make_signsgd(const Spec& spec) {
  const SpecReader reader(spec);
  GW_ASSIGN(const std::string vote, reader.choice("vote", "none", {"none", "majority"}));
  const bool majority = vote == "majority";
  GW_ASSIGN(const std::string scale,
            reader.choice("scale", majority ? "none" : "l1", {"l1", "none"}));
  GW_ASSIGN(const std::int64_t bucket, read_sign_bucket(reader));
  GW_ASSIGN(const std::int64_t zeros, reader.integer("zeros", 0, 0, 1));
  if (majority && scale == "l1") {
    return Status(Code::kInvalidArgument,
                  "compressor 'signsgd': key 'scale' is 'l1' (expected none with vote=majority, "
                  "where votes count alike)");
  }
  // Without scales the bucket is checked and then has no effect, and with them zeros (a bucket of
  // zeros has scale 0): studies that switch scales off
  // keep the rest of their spec.
  const SignKind kind = majority          ? SignKind::kVote
                        : scale == "none" ? SignKind::kBare
                                          : SignKind::kScaled;
  return std::unique_ptr<Compressor>(std::make_unique<SignSgd>(kind, bucket, zeros == 1));
}

}  // namespace

Registry::Method signsgd_method() {
  return {
      "signsgd",
      "one sign bit per element; times the mean absolute value of its bucket, bare, or a vote",
      "",
      {{"scale", "l1", "l1: mean absolute value per bucket; none: -1 and +1"},
       {"vote", "none", "majority: the sign of the sum of signs, 0 on a tie (implies scale=none)"},
       {"bucket", "4096",
        "elements that share a scale, 1 to 2^31-1, or tensor; no effect without scales"},
       {"zeros", "0",
        "1: without scales, a bit for every 256 elements says that all are zero, and they decode "
        "to "
        "zero"}},
      make_signsgd};
}

}  // namespace gradwire
