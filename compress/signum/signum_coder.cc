#include "compress/signum/signum_coder.h"

#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/finite.h"
#include "compress/signsgd/signsgd_kernels.h"
#include "compress/signum/signum_device.h"
#include "compress/signum/signum_kernels.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr int kMostVoters = (1 << 15) - 1;  // votes are counted in 16 bits

template <typename T>
class SignumCoder final : public Coder {
 public:
  SignumCoder(std::string name, double beta, const Shape& shape, const Compressor::Placement& where)
      : name_(std::move(name)),
        beta_(static_cast<T>(beta)),
        shape_(shape),
        where_(where),
        momentum_(beta == 0 ? 0 : elems()) {}

  Status begin(ConstTensorView grad, std::uint64_t, const Stream&) override {
    GW_TRY(check_tensor(name_ + ": grad", grad, shape_.elems(), DTypeOf<T>::kValue));
    grad_ = grad;
    updated_ = false;
    payloads_.clear();
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    GW_TRY(check_round(name_, round, 1));
    const std::size_t count = signum_bytes(elems());
    GW_TRY(check_room(name_ + ": payload", payload.size(), count));
    if (elems() == 0) return count;
    const auto grad = elements<T>(grad_);
    if (!all_finite(grad)) GW_TRY(name_not_finite(name_, grad));
    if (!keeps_momentum()) {
      cpu::signum_encode(grad, payload.first(count));
      return count;
    }
    if (updated_) {
      cpu::signum_encode(std::span<const T>(momentum_), payload.first(count));
    } else {
      cpu::signum_update(beta_, grad, std::span(momentum_), payload.first(count));
    }
    updated_ = true;
    return count;
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round(name_, round, 1));
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              name_ + format(": %zu payloads (%d ranks)", payloads.size(), where_.size)};
    }
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      const std::string who = name_ + format(": payload of rank %zu", r);
      GW_TRY(check_length(who, payloads[r].size(), signum_bytes(elems())));
      if (elems() == 0) continue;
      const Status status = cpu::check_signum(payloads[r], elems());
      if (!status.ok()) return status.with_context(who);
    }
    payloads_.assign(payloads.begin(), payloads.end());
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream&) override {
    GW_TRY(check_tensor(name_ + ": mean", mean, shape_.elems(), DTypeOf<T>::kValue));
    if (payloads_.empty()) return {Code::kInvalidArgument, name_ + ": finish() before absorb()"};
    if (!own.empty()) {
      GW_TRY(check_tensor(name_ + ": own", own, shape_.elems(), DTypeOf<T>::kValue));
      cpu::signum_decode<T>(payloads_[static_cast<std::size_t>(where_.rank)], false,
                            elements<T>(own));
    }
    if (!mean.empty()) cpu::signum_vote<T>(payloads_, elements<T>(mean));
    return {};
  }

  std::vector<NamedTensor> state() override {
    if (!keeps_momentum()) return {};
    // In the gradient's units and a rank's own, so of the kind that coder.h calls residual.
    return {{"residual_momentum",
             {reinterpret_cast<std::byte*>(momentum_.data()), shape_, DTypeOf<T>::kValue}}};
  }

 private:
  std::size_t elems() const { return static_cast<std::size_t>(shape_.elems()); }
  bool keeps_momentum() const { return beta_ != 0; }

  std::string name_;
  T beta_;
  Shape shape_;
  Compressor::Placement where_;
  std::vector<T> momentum_;
  ConstTensorView grad_;
  bool updated_ = false;  // the momentum holds this step's gradient
  std::vector<ConstByteSpan> payloads_;
};

}  // namespace

Result<std::unique_ptr<Coder>> make_signum_coder(const std::string& name, double beta,
                                                 const Shape& shape,
                                                 const Compressor::Placement& where) {
  if (where.size > kMostVoters) {
    return Status(Code::kUnsupported,
                  name + format(": a vote of %d ranks (at most %d)", where.size, kMostVoters));
  }
  if constexpr (kHaveCuda) {
    if (where.device.space == MemorySpace::kCuda) {
      return cuda::make_signum_coder(name, beta, shape, where);
    }
  }
  GW_TRY(check_placement(name, where));
  if (where.dtype == DType::kF64) {
    return std::unique_ptr<Coder>(std::make_unique<SignumCoder<double>>(name, beta, shape, where));
  }
  return std::unique_ptr<Coder>(std::make_unique<SignumCoder<float>>(name, beta, shape, where));
}

}  // namespace gradwire
