#include "compress/powersgd/powersgd.h"

#include <string>

#include "base/text.h"
#include "compress/contract.h"
#include "compress/powersgd/powersgd_coder.h"
#include "compress/powersgd/powersgd_device.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr std::int64_t kDefaultRank = 4;
constexpr std::int64_t kMostRank = 65536;
constexpr double kMostRate = 65536;

class PowerSgd final : public Compressor {
 public:
  explicit PowerSgd(const PowerSgdOptions& options) : options_(options) {}

  std::string spec() const override {
    std::string text = format("powersgd:rank=%lld", static_cast<long long>(options_.rank));
    if (!options_.warm) text += ",warm=false";
    if (options_.min_rate != PowerSgdOptions().min_rate) {
      text += ",min_rate=" + shortest(options_.min_rate);
    }
    return text;
  }

  Traits traits() const override {
    return {.exchange = Exchange::kAllReduceSum,
            .rounds = 2,
            .payload_dtype = DType::kF32,
            .stateful = options_.warm,
            .bitwise_on_all_devices = true};
  }

  ErrorBound bound(const Shape& shape) const override {
    return {ErrorBound::Kind::kContraction, thin(shape).r == 0 ? 1.0 : 0.0};
  }

  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int round, int) const override {
    const cpu::ThinShape matrix = thin(shape);
    if (matrix.r > 0) return matrix.r * (round == 0 ? matrix.a : matrix.c) * size_of(dtype);
    return round == 0 ? static_cast<std::size_t>(shape.elems()) * size_of(dtype) : 0;
  }

  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        return cuda::make_powersgd_coder(shape, options_, where);
      }
    }
    GW_TRY(check_placement("powersgd", where));
    return make_powersgd_coder(shape, options_, where);
  }

  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(
        Code::kUnsupported,
        "powersgd: factors of a whole matrix cannot be cut into slices; write combine=sum");
  }

 private:
  cpu::ThinShape thin(const Shape& shape) const {
    return thin_shape(shape, options_.rank, options_.min_rate);
  }

  PowerSgdOptions options_;
};

Result<std::unique_ptr<Compressor>> make_powersgd(const Spec& spec) {
  const SpecReader reader(spec);
  GW_ASSIGN(const std::int64_t rank, reader.integer("rank", kDefaultRank, 1, kMostRank));
  GW_ASSIGN(const bool warm, reader.boolean("warm", true));
  GW_ASSIGN(const double min_rate,
            reader.number_from_zero("min_rate", PowerSgdOptions().min_rate, kMostRate));
  return std::unique_ptr<Compressor>(std::make_unique<PowerSgd>(
      PowerSgdOptions{.rank = rank, .warm = warm, .min_rate = min_rate}));
}

}  // namespace

Registry::Method powersgd_method() {
  return {"powersgd",
          "two thin factors of a matrix, summed over ranks; 1-d tensors and matrices that would "
          "not shrink: uncompressed",
          "rank",
          {{"rank", "4", "columns of the factors, 1 to 65536"},
           {"warm", "true", "true: start from the last step's factor; false: from a random one"},
           {"min_rate", "1",
            "matrices at most this many times as large as their factors are sent uncompressed; 0: "
            "none"}},
          make_powersgd};
}

}  // namespace gradwire
