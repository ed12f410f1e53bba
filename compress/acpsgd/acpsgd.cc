#include "compress/acpsgd/acpsgd.h"

#include <algorithm>

#include "base/text.h"
#include "compress/acpsgd/acpsgd_coder.h"
#include "compress/contract.h"
#include "compress/powersgd/powersgd_coder.h"
#include "compress/spec_reader.h"

namespace gradwire {
namespace {

constexpr std::int64_t kDefaultRank = 4;
constexpr std::int64_t kMostRank = 65536;

class AcpSgd final : public Compressor {
 public:
  explicit AcpSgd(std::int64_t rank) : rank_(rank) {}

  std::string spec() const override {
    return format("acpsgd:rank=%lld", static_cast<long long>(rank_));
  }

  Traits traits() const override {
    return {.exchange = Exchange::kAllReduceSum,
            .payload_dtype = DType::kF32,
            .fixed_payload = false,
            .stateful = true};
  }

  ErrorBound bound(const Shape& shape) const override {
    const bool dense = thin_shape(shape, rank_).r == 0;
    return {ErrorBound::Kind::kContraction, dense ? 1.0 : 0.0};
  }

  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    const cpu::ThinShape thin = thin_shape(shape, rank_);
    const std::size_t values =
        thin.r == 0 ? static_cast<std::size_t>(shape.elems()) : thin.r * std::max(thin.a, thin.c);
    return values * size_of(dtype);
  }

  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    GW_TRY(check_placement("acpsgd", where));
    return make_acpsgd_coder(shape, rank_, where);
  }

  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported,
                  "acpsgd: a factor of a whole matrix cannot be cut into slices; write "
                  "combine=sum");
  }

 private:
  std::int64_t rank_;
};

Result<std::unique_ptr<Compressor>> make_acpsgd(const Spec& spec) {
  const SpecReader reader(spec);
  GW_ASSIGN(const std::int64_t rank, reader.integer("rank", kDefaultRank, 1, kMostRank));
  return std::unique_ptr<Compressor>(std::make_unique<AcpSgd>(rank));
}

}  // namespace

Registry::Method acpsgd_method() {
  return {"acpsgd",
          "one thin factor of a matrix a step, the left and the right one in turn; 1-d tensors "
          "dense",
          "rank",
          {{"rank", "4", "columns of the factors, 1 to 65536"}},
          make_acpsgd};
}

}  // namespace gradwire
