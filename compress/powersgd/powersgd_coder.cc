#include "compress/powersgd/powersgd_coder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/error_feedback/owing_coder.h"

namespace gradwire {
namespace {

constexpr int kRounds = 2;
// Stages of the random streams: Q itself, and directions in place of vanished ones.
constexpr int kStart = 0;
constexpr int kFresh = 1;

RandomStream random_of(const Compressor::Placement& where, int stage, std::uint64_t step) {
  return {where.seed, RandomUse::kPowerSgdStart, where.tensor, kSharedRank, stage, step};
}

template <typename T>
class PowerSgdCoder final : public OwingCoder {
 public:
  PowerSgdCoder(const Shape& shape, const PowerSgdOptions& options,
                const Compressor::Placement& where)
      : elems_(shape.elems()),
        thin_(thin_shape(shape, options.rank, options.min_rate)),
        warm_(options.warm),
        where_(where),
        q_(thin_.r * thin_.c),
        own_q_(q_.size()),
        mean_q_(q_.size()),
        p_(dense() ? static_cast<std::size_t>(elems_) : thin_.r * thin_.a) {
    if (warm_) draw_powersgd_start<T>(where_, 0, q_);
  }

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    GW_TRY(check_tensor("powersgd: grad", grad, elems_, DTypeOf<T>::kValue));
    grad_ = grad.empty() ? std::span<const T>() : elements<T>(grad);
    step_ = step;
    matrix_ = grad_;
    feedback_.reset();
    absorbed_ = 0;
    if (!warm_) draw_powersgd_start<T>(where_, step, q_);
    return {};
  }

  bool takes_feedback() const override { return !dense(); }
  // next holds gradient + residual until finish(), and where something is owed after it.
  Status begin_with_feedback(ConstTensorView grad, const Feedback& feedback, std::uint64_t step,
                             const Stream& stream) override {
    GW_TRY(check_feedback("powersgd", grad, feedback, DTypeOf<T>::kValue));
    GW_TRY(begin(grad, step, stream));
    feedback_ = feedback;
    matrix_ = elements<T>(feedback.next);
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    GW_TRY(check_turn("encode", round));
    if (dense()) return write(round == 0 ? grad_ : std::span<const T>(), payload);
    if (round == 0) {
      GW_TRY(multiply());
      return write(p_, payload);
    }
    cpu::transposed_times<T>(matrix_, p_, thin_, own_q_);
    return write(own_q_, payload);
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_turn("absorb", round));
    if (payloads.size() != 1) {
      return {Code::kInvalidArgument, "powersgd: expected one summed payload"};
    }
    if (round == 0) {
      GW_TRY(read(payloads[0], "P", p_));
      if (!dense()) {
        cpu::orthonormalise<T>(p_, thin_.r, powersgd_fresh(where_, step_), scratch_);
      }
    } else {
      GW_TRY(read(payloads[0], "Q", mean_q_));
      divide(mean_q_);
    }
    absorbed_ = round + 1;
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream&) override {
    GW_TRY(check_turn("finish", kRounds));
    GW_TRY(check_tensor("powersgd: mean", mean, elems_, DTypeOf<T>::kValue));
    if (!own.empty()) GW_TRY(check_tensor("powersgd: own", own, elems_, DTypeOf<T>::kValue));
    absorbed_ = -1;
    if (mean.empty()) return {};
    if (dense()) {  // own before mean, which may be the gradient's memory
      if (!own.empty()) std::copy(grad_.begin(), grad_.end(), elements<T>(own).begin());
      divide(p_);
      std::copy(p_.begin(), p_.end(), elements<T>(mean).begin());
      return {};
    }
    if (feedback_) GW_TRY(leave_residual());
    if (!own.empty()) cpu::product<T>(p_, own_q_, thin_, elements<T>(own));
    cpu::product<T>(p_, mean_q_, thin_, elements<T>(mean));
    if (warm_) std::copy(mean_q_.begin(), mean_q_.end(), q_.begin());
    return {};
  }

  void allow_owing() override { may_owe_ = true; }
  bool owes() const override { return !owed_p_.empty(); }
  void settle(TensorView residual) override {
    cpu::take_product_away<T>(owed_p_, owed_q_, thin_, owed_scale_, elements<T>(residual));
    owed_p_.clear();
  }

  std::vector<NamedTensor> state() override {
    if (!warm_ || dense()) return {};
    const Shape shape =
        Shape::matrix(static_cast<std::int64_t>(thin_.r), static_cast<std::int64_t>(thin_.c));
    return {{"q", {reinterpret_cast<std::byte*>(q_.data()), shape, DTypeOf<T>::kValue}}};
  }

 private:
  // P_i of this step. An element that is not finite leaves its row of P so.
  Status multiply() {
    if (!feedback_) {
      cpu::times<T>(Corrected<T>(grad_), q_, thin_, p_, nullptr);
      return {};
    }
    cpu::ThinSum<T> sum{.to = elements<T>(feedback_->next).data()};
    if (owes()) {
      sum.owed_pt = owed_p_.data();
      sum.owed_qt = owed_q_.data();
      sum.owed_scale = owed_scale_;
    }
    cpu::times<T>(Corrected<T>(grad_, elements<T>(feedback_->residual).data()), q_, thin_, p_,
                  &sum);
    largest_ = sum.largest;
    if (std::all_of(p_.begin(), p_.end(), [](T x) { return std::isfinite(x); })) return {};
    return {Code::kInvalidArgument, "powersgd: P of gradient + residual is not finite"};
  }

  // What is owed is finite if it surely is: P's elements are 1 at most.
  bool may_owe() const {
    if (!may_owe_ || thin_.r > cpu::kOwedDirections) return false;
    double most = 0;
    for (const T q : own_q_) most = std::max(most, std::abs(static_cast<double>(q)));
    const double bound = static_cast<double>(largest_) + 2 * static_cast<double>(thin_.r) * most;
    return bound < static_cast<double>(std::numeric_limits<T>::max());
  }
  Status leave_residual() {
    const T scale = static_cast<T>(feedback_->scale);
    if (may_owe()) {
      owed_p_ = p_;
      owed_q_ = own_q_;
      owed_scale_ = scale;
      return {};
    }
    if (!cpu::take_product_away<T>(p_, own_q_, thin_, scale, elements<T>(feedback_->next))) {
      return {Code::kInvalidArgument, "powersgd: the new residual is not finite"};
    }
    owed_p_.clear();
    return {};
  }

  bool dense() const { return thin_.r == 0; }

  // As none divides, so that 1-d tensors come out alike.
  void divide(std::vector<T>& values) const {
    const T factor = static_cast<T>(1.0 / where_.size);
    for (T& x : values) x *= factor;
  }

  Status check_turn(const char* call, int round) const {
    if (round == absorbed_) return {};
    return {Code::kInvalidArgument,
            format("powersgd: %s of round %d out of turn (begin, then encode and absorb of rounds "
                   "0 and 1, then finish)",
                   call, round)};
  }

  static Result<std::size_t> write(std::span<const T> values, ByteSpan payload) {
    GW_TRY(check_room("powersgd: payload", payload.size(), values.size_bytes()));
    if (!values.empty()) std::memcpy(payload.data(), values.data(), values.size_bytes());
    return values.size_bytes();
  }

  static Status read(ConstByteSpan sum, const char* what, std::vector<T>& values) {
    GW_TRY(
        check_length(format("powersgd: sum of %s", what), sum.size(), values.size() * sizeof(T)));
    if (values.empty()) return {};
    std::memcpy(values.data(), sum.data(), sum.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) continue;
      return {Code::kCorruptPayload,
              format("powersgd: value %zu of the sum of %s is %g (expected a finite number: a "
                     "rank's gradient is not finite, or the sum overflowed)",
                     i, what, static_cast<double>(values[i]))};
    }
    return {};
  }

  std::int64_t elems_;
  cpu::ThinShape thin_;
  bool warm_;
  Compressor::Placement where_;
  std::span<const T> grad_;
  std::span<const T> matrix_;  // what is compressed: grad_, or feedback_'s next
  std::optional<Feedback> feedback_;
  std::uint64_t step_ = 0;
  int absorbed_ = -1;      // rounds of this step; -1: no step
  std::vector<T> q_;       // Q^T of this step
  std::vector<T> own_q_;   // Q_i^T
  std::vector<T> mean_q_;  // Q'^T
  std::vector<double> scratch_;
  std::vector<T> p_;  // P^T, then orthonormal; of dense tensors the sum
  T largest_ = 0;     // of gradient + residual
  bool may_owe_ = false;
  // What the last residual that was left lacks.
  std::vector<T> owed_p_;  // empty: nothing
  std::vector<T> owed_q_;
  T owed_scale_ = 1;
};

}  // namespace

cpu::ThinShape thin_shape(const Shape& shape, std::int64_t rank, double min_rate, double share) {
  if (shape.rank < 2 || shape.elems() == 0) return {};
  const std::int64_t a = shape.dim[0];
  const std::int64_t c = shape.elems() / a;
  const std::int64_t r = std::min({rank, a, c});
  const double sent = share * static_cast<double>(r) * static_cast<double>(a + c);
  if (sent * min_rate >= static_cast<double>(shape.elems())) return {};
  return {static_cast<std::size_t>(a), static_cast<std::size_t>(c), static_cast<std::size_t>(r)};
}

template <typename T>
void draw_powersgd_start(const Compressor::Placement& where, std::uint64_t step, std::span<T> q) {
  const RandomStream stream = random_of(where, kStart, step);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<T>(stream.normal(i));
}
template void draw_powersgd_start(const Compressor::Placement&, std::uint64_t, std::span<float>);
template void draw_powersgd_start(const Compressor::Placement&, std::uint64_t, std::span<double>);

RandomStream powersgd_fresh(const Compressor::Placement& where, std::uint64_t step) {
  return random_of(where, kFresh, step);
}

Status check_powersgd_turn(const char* call, int round, int absorbed) {
  if (round == absorbed) return {};
  return {Code::kInvalidArgument,
          format("powersgd: %s() of round %d out of turn (begin, then encode and absorb of rounds "
                 "0 and 1, then finish)",
                 call, round)};
}

std::unique_ptr<Coder> make_powersgd_coder(const Shape& shape, const PowerSgdOptions& options,
                                           const Compressor::Placement& where) {
  if (where.dtype == DType::kF64) {
    return std::make_unique<PowerSgdCoder<double>>(shape, options, where);
  }
  return std::make_unique<PowerSgdCoder<float>>(shape, options, where);
}

}  // namespace gradwire
