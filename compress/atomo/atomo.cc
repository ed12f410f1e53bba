#include "compress/atomo/atomo.h"

#include <algorithm>

#include "base/text.h"
#include "compress/atomo/atomo_coder.h"
#include "compress/atomo/atomo_device.h"
#include "compress/contract.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr double kDefaultBudget = 3;
constexpr double kMostBudget = 65536;

class Atomo final : public Compressor {
 public:
  explicit Atomo(double budget) : budget_(budget) {}

  std::string spec() const override { return "atomo:budget=" + shortest(budget_); }

  Traits traits() const override {
    return {.exchange = Exchange::kAllGather,
            .fixed_payload = false,
            .unbiased = true,
            .needs_error_feedback = false,
            .bitwise_on_all_devices = true};
  }

  ErrorBound bound(const Shape& shape) const override {
    const AtomShape atoms = atom_shape(shape);
    const double omega = static_cast<double>(atoms.r) / budget_ - 1;
    return {ErrorBound::Kind::kVariance, std::max(omega, 0.0)};
  }

  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    const AtomShape atoms = atom_shape(shape);
    if (atoms.r == 0) return static_cast<std::size_t>(shape.elems()) * size_of(dtype);
    return kAtomCountBytes + atoms.r * atoms.values() * size_of(dtype);
  }

  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        return cuda::make_atomo_coder(shape, budget_, where);
      }
    }
    GW_TRY(check_placement("atomo", where));
    return make_atomo_coder(shape, budget_, where);
  }

  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported,
                  "atomo: singular vectors of a whole matrix cannot be cut into slices; write "
                  "combine=gather");
  }

 private:
  double budget_;
};

Result<std::unique_ptr<Compressor>> make_atomo(const Spec& spec) {
  const SpecReader reader(spec);
  GW_ASSIGN(const double budget, reader.number("budget", kDefaultBudget, 0, kMostBudget));
  return std::unique_ptr<Compressor>(std::make_unique<Atomo>(budget));
}

}  // namespace

Registry::Method atomo_method() {
  return {"atomo",
          "unbiased random selection of a matrix's singular vectors; 1-d tensors uncompressed",
          "budget",
          {{"budget", "3", "vectors a step on average, above 0, at most 65536"}},
          make_atomo};
}

}  // namespace gradwire
