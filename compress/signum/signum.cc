#include "compress/signum/signum.h"

#include "base/text.h"
#include "compress/contract.h"
#include "compress/signum/signum_coder.h"
#include "compress/signum/signum_kernels.h"
#include "compress/spec_reader.h"

namespace gradwire {
namespace {

constexpr double kDefaultBeta = 0.9;

class Signum final : public Compressor {
 public:
  explicit Signum(double beta) : beta_(beta) {}

  std::string spec() const override {
    return beta_ == kDefaultBeta ? "signum" : "signum:beta=" + shortest(beta_);
  }
  Traits traits() const override {
    return {.needs_error_feedback = false,
            .mean_is_average_of_own = false,
            .stateful = true,
            .bitwise_on_all_devices = true};
  }
  ErrorBound bound(const Shape&) const override { return {}; }
  std::size_t max_payload_bytes(const Shape& shape, DType, int, int) const override {
    return signum_bytes(static_cast<std::size_t>(shape.elems()));
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    return make_signum_coder("signum", beta_, shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&,
                                                  const Placement& where) const override {
    GW_TRY(check_placement("signum", where));
    return Status(Code::kUnsupported,
                  "signum: sends the momentum that its coder keeps, and a slice has none; write "
                  "combine=gather");
  }

 private:
  double beta_;
};

Result<std::unique_ptr<Compressor>> make_signum(const Spec& spec) {
  GW_ASSIGN(const double beta, SpecReader(spec).number("beta", kDefaultBeta, 0, 0.999999));
  return std::unique_ptr<Compressor>(std::make_unique<Signum>(beta));
}

}  // namespace

Registry::Method signum_method() {
  return {"signum",
          "the sign of each rank's momentum, combined by a majority vote",
          "beta",
          {{"beta", "0.9", "momentum factor, above 0 and below 1"}},
          make_signum};
}

}  // namespace gradwire
