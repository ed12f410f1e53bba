#include "compress/acpsgd/acpsgd_coder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/powersgd/powersgd_coder.h"

namespace gradwire {
namespace {

// Stages of the random streams, apart from powersgd's.
constexpr int kStartP = 2;
constexpr int kStartQ = 3;
constexpr int kFreshMatrix = 4;

RandomStream stage_random(const Compressor::Placement& where, int stage, std::uint64_t step) {
  return {where.seed, RandomUse::kPowerSgdStart, where.tensor, kSharedRank, stage, step};
}

template <typename T>
class AcpSgdCoder final : public Coder {
 public:
  AcpSgdCoder(const Shape& shape, const AcpSgdOptions& options, const Compressor::Placement& where)
      : elems_(shape.elems()),
        thin_(acpsgd_shape(shape, options)),
        where_(where),
        p_(thin_.r * thin_.a),
        q_(thin_.r * thin_.c) {
    draw_acpsgd_start<T>(where_, p_, q_);
  }

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    GW_TRY(check_tensor("acpsgd: grad", grad, elems_, DTypeOf<T>::kValue));
    grad_ = grad.empty() ? std::span<const T>() : elements<T>(grad);
    left_ = step % 2 == 0;
    basis_ = left_ ? q_ : p_;
    own_.resize(left_ ? p_.size() : q_.size());
    if (!dense()) {
      cpu::orthonormalise<T>(basis_, thin_.r, acpsgd_fresh(where_, step), scratch_);
    }
    turn_ = Turn::kEncode;
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    GW_TRY(check_acpsgd_turn("encode", turn_ != Turn::kBegin && round == 0));
    if (dense()) return write(grad_, payload);
    if (left_) {
      cpu::times<T>(Corrected<T>(grad_), basis_, thin_, own_, nullptr);
    } else {
      cpu::transposed_times<T>(grad_, basis_, thin_, own_);
    }
    return write(own_, payload);
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_acpsgd_turn("absorb", turn_ != Turn::kBegin && round == 0));
    if (payloads.size() != 1)
      return {Code::kInvalidArgument, "acpsgd: expected one summed payload"};
    mean_.resize(dense() ? static_cast<std::size_t>(elems_) : left_ ? p_.size() : q_.size());
    GW_TRY(read(payloads[0]));
    const T factor = static_cast<T>(1.0 / where_.size);  // as none divides
    for (T& x : mean_) x *= factor;
    turn_ = Turn::kFinish;
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream&) override {
    GW_TRY(check_acpsgd_turn("finish", turn_ == Turn::kFinish));
    GW_TRY(check_tensor("acpsgd: mean", mean, elems_, DTypeOf<T>::kValue));
    if (!own.empty()) GW_TRY(check_tensor("acpsgd: own", own, elems_, DTypeOf<T>::kValue));
    turn_ = Turn::kBegin;
    if (mean.empty()) return {};
    if (dense()) {  // own before mean, which may be the gradient's memory
      if (!own.empty()) std::copy(grad_.begin(), grad_.end(), elements<T>(own).begin());
      std::copy(mean_.begin(), mean_.end(), elements<T>(mean).begin());
      return {};
    }
    if (!own.empty()) multiply(own_, elements<T>(own));
    multiply(mean_, elements<T>(mean));
    (left_ ? p_ : q_) = mean_;
    return {};
  }

  std::vector<NamedTensor> state() override {
    if (dense()) return {};
    return {{"p", factor(p_, thin_.a)}, {"q", factor(q_, thin_.c)}};
  }

 private:
  enum class Turn : std::uint8_t { kBegin, kEncode, kFinish };

  bool dense() const { return thin_.r == 0; }

  // out = the matrix of this step's factor and basis.
  void multiply(std::span<const T> moved, std::span<T> out) const {
    if (left_) {
      cpu::product<T>(moved, basis_, thin_, out);
    } else {
      cpu::product<T>(basis_, moved, thin_, out);
    }
  }

  TensorView factor(std::vector<T>& values, std::size_t length) const {
    return {reinterpret_cast<std::byte*>(values.data()),
            Shape::matrix(static_cast<std::int64_t>(thin_.r), static_cast<std::int64_t>(length)),
            DTypeOf<T>::kValue};
  }

  static Result<std::size_t> write(std::span<const T> values, ByteSpan payload) {
    GW_TRY(check_room("acpsgd: payload", payload.size(), values.size_bytes()));
    if (!values.empty()) std::memcpy(payload.data(), values.data(), values.size_bytes());
    return values.size_bytes();
  }

  Status read(ConstByteSpan sum) {
    GW_TRY(check_length("acpsgd: sum of a factor", sum.size(), mean_.size() * sizeof(T)));
    if (mean_.empty()) return {};
    std::memcpy(mean_.data(), sum.data(), sum.size());
    for (std::size_t i = 0; i < mean_.size(); ++i) {
      if (std::isfinite(mean_[i])) continue;
      return {Code::kCorruptPayload,
              format("acpsgd: value %zu of the summed factor is %g (expected a finite number: a "
                     "rank's gradient is not finite, or the sum overflowed)",
                     i, static_cast<double>(mean_[i]))};
    }
    return {};
  }

  std::int64_t elems_;
  cpu::ThinShape thin_;
  Compressor::Placement where_;
  std::vector<T> p_;  // P^T
  std::vector<T> q_;  // Q^T
  std::span<const T> grad_;
  bool left_ = true;  // this step finds P
  Turn turn_ = Turn::kBegin;
  std::vector<T> basis_;  // the other factor, orthonormal
  std::vector<double> scratch_;
  std::vector<T> own_;   // this rank's factor
  std::vector<T> mean_;  // the average factor; of dense tensors the mean
};

}  // namespace

template <typename T>
void draw_acpsgd_start(const Compressor::Placement& where, std::span<T> p, std::span<T> q) {
  const RandomStream of_p = stage_random(where, kStartP, 0);
  const RandomStream of_q = stage_random(where, kStartQ, 0);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<T>(of_p.normal(i));
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<T>(of_q.normal(i));
}
template void draw_acpsgd_start(const Compressor::Placement&, std::span<float>, std::span<float>);
template void draw_acpsgd_start(const Compressor::Placement&, std::span<double>, std::span<double>);

RandomStream acpsgd_fresh(const Compressor::Placement& where, std::uint64_t step) {
  return stage_random(where, kFreshMatrix, step);
}

Status check_acpsgd_turn(const char* call, bool in_turn) {
  if (in_turn) return {};
  return {
      Code::kInvalidArgument,
      format("acpsgd: %s() out of turn (begin, encode and absorb of round 0, then finish)", call)};
}

cpu::ThinShape acpsgd_shape(const Shape& shape, const AcpSgdOptions& options) {
  return thin_shape(shape, options.rank, options.min_rate, 0.5);
}

std::unique_ptr<Coder> make_acpsgd_coder(const Shape& shape, const AcpSgdOptions& options,
                                         const Compressor::Placement& where) {
  if (where.dtype == DType::kF64) {
    return std::make_unique<AcpSgdCoder<double>>(shape, options, where);
  }
  return std::make_unique<AcpSgdCoder<float>>(shape, options, where);
}

}  // namespace gradwire
