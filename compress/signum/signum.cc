#include "compress/signum/signum.h"

#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/finite.h"
#include "compress/signsgd/signsgd_kernels.h"
#include "compress/signum/signum_kernels.h"
#include "compress/spec_reader.h"

namespace gradwire {
namespace {

constexpr double kDefaultBeta = 0.9;
constexpr int kMostVoters = (1 << 15) - 1;  // votes are counted in 16 bits

template <typename T>
class SignumCoder final : public Coder {
 public:
  SignumCoder(double beta, const Shape& shape, const Compressor::Placement& where)
      : beta_(static_cast<T>(beta)),
        shape_(shape),
        where_(where),
        momentum_(static_cast<std::size_t>(shape.elems())) {}

  Status begin(ConstTensorView grad, std::uint64_t, const Stream&) override {
    GW_TRY(check_tensor("signum: grad", grad, shape_.elems(), DTypeOf<T>::kValue));
    grad_ = grad;
    updated_ = false;
    payloads_.clear();
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    GW_TRY(check_round("signum", round, 1));
    const std::size_t count = signum_bytes(momentum_.size());
    GW_TRY(check_room("signum: payload", payload.size(), count));
    if (momentum_.empty()) return count;
    const auto grad = elements<T>(grad_);
    if (!cpu::all_finite(grad)) GW_TRY(name_not_finite("signum", grad));
    if (!updated_) cpu::update_momentum(beta_, grad, std::span(momentum_));
    updated_ = true;
    cpu::signum_encode(std::span<const T>(momentum_), payload.first(count));
    return count;
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round("signum", round, 1));
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              format("signum: %zu payloads (%d ranks)", payloads.size(), where_.size)};
    }
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      const std::string who = format("signum: payload of rank %zu", r);
      GW_TRY(check_length(who, payloads[r].size(), signum_bytes(momentum_.size())));
      if (momentum_.empty()) continue;
      const Status status = cpu::check_signum(payloads[r], momentum_.size());
      if (!status.ok()) return status.with_context(who);
    }
    payloads_.assign(payloads.begin(), payloads.end());
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream&) override {
    GW_TRY(check_tensor("signum: mean", mean, shape_.elems(), DTypeOf<T>::kValue));
    if (payloads_.empty()) return {Code::kInvalidArgument, "signum: finish() before absorb()"};
    if (!own.empty()) {
      GW_TRY(check_tensor("signum: own", own, shape_.elems(), DTypeOf<T>::kValue));
      cpu::signum_decode<T>(payloads_[static_cast<std::size_t>(where_.rank)], elements<T>(own));
    }
    if (!mean.empty()) cpu::signum_vote<T>(payloads_, elements<T>(mean));
    return {};
  }

  std::vector<NamedTensor> state() override {
    return {
        {"momentum", {reinterpret_cast<std::byte*>(momentum_.data()), shape_, DTypeOf<T>::kValue}}};
  }

 private:
  T beta_;
  Shape shape_;
  Compressor::Placement where_;
  std::vector<T> momentum_;
  ConstTensorView grad_;
  bool updated_ = false;  // the momentum holds this step's gradient
  std::vector<ConstByteSpan> payloads_;
};

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
    GW_TRY(check_placement("signum", where));
    if (where.size > kMostVoters) {
      return Status(Code::kUnsupported,
                    format("signum: a vote of %d ranks (at most %d)", where.size, kMostVoters));
    }
    if (where.dtype == DType::kF64) {
      return std::unique_ptr<Coder>(std::make_unique<SignumCoder<double>>(beta_, shape, where));
    }
    return std::unique_ptr<Coder>(std::make_unique<SignumCoder<float>>(beta_, shape, where));
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&,
                                                  const Placement& where) const override {
    GW_TRY(check_placement("signum", where));
    return Status(Code::kUnsupported,
                  "signum: what it sends is the momentum that its coder keeps, and a slice has "
                  "none; write combine=gather");
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
          "the sign of each rank's own momentum, and a majority vote over them",
          "beta",
          {{"beta", "0.9", "how much of the momentum is kept at each step, above 0 and below 1"}},
          make_signum};
}

}  // namespace gradwire
