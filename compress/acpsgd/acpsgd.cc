#include "compress/acpsgd/acpsgd.h"

#include <algorithm>
#include <string>

#include "base/text.h"
#include "compress/acpsgd/acpsgd_coder.h"
#include "compress/acpsgd/acpsgd_device.h"
#include "compress/contract.h"
#include "compress/powersgd/powersgd_coder.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr std::int64_t kDefaultRank = 4;
constexpr std::int64_t kMostRank = 65536;
constexpr double kMostRate = 65536;

class AcpSgd final : public Compressor {
 public:
  explicit AcpSgd(const AcpSgdOptions& options) : options_(options) {}

  std::string spec() const override {
    const std::string text = format("acpsgd:rank=%lld", static_cast<long long>(options_.rank));
    if (options_.min_rate == AcpSgdOptions().min_rate) return text;
    return text + ",min_rate=" + shortest(options_.min_rate);
  }

  Traits traits() const override {
    return {.exchange = Exchange::kAllReduceSum,
            .payload_dtype = DType::kF32,
            .fixed_payload = false,
            .stateful = true,
            .bitwise_on_all_devices = true};
  }

  ErrorBound bound(const Shape& shape) const override {
    const bool dense = acpsgd_shape(shape, options_).r == 0;
    return {ErrorBound::Kind::kContraction, dense ? 1.0 : 0.0};
  }

  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    const cpu::ThinShape thin = acpsgd_shape(shape, options_);
    const std::size_t values =
        thin.r == 0 ? static_cast<std::size_t>(shape.elems()) : thin.r * std::max(thin.a, thin.c);
    return values * size_of(dtype);
  }

  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        return cuda::make_acpsgd_coder(shape, options_, where);
      }
    }
    GW_TRY(check_placement("acpsgd", where));
    return make_acpsgd_coder(shape, options_, where);
  }

  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported,
                  "acpsgd: a factor of a whole matrix cannot be cut into slices; write "
                  "combine=sum");
  }

 private:
  AcpSgdOptions options_;
};

Result<std::unique_ptr<Compressor>> make_acpsgd(const Spec& spec) {
  const SpecReader reader(spec);
  GW_ASSIGN(const std::int64_t rank, reader.integer("rank", kDefaultRank, 1, kMostRank));
  GW_ASSIGN(const double min_rate,
            reader.number_from_zero("min_rate", AcpSgdOptions().min_rate, kMostRate));
  return std::unique_ptr<Compressor>(
      std::make_unique<AcpSgd>(AcpSgdOptions{.rank = rank, .min_rate = min_rate}));
}

}  // namespace

Registry::Method acpsgd_method() {
  return {"acpsgd",
          "one thin factor of a matrix per step, left and right in turn; 1-d tensors and matrices "
          "that would not shrink: uncompressed",
          "rank",
          {{"rank", "4", "columns of the factors, 1 to 65536"},
           {"min_rate", "1",
            "matrices at most this many times as large as one step's payload are sent "
            "uncompressed; 0: none"}},
          make_acpsgd};
}

}  // namespace gradwire
