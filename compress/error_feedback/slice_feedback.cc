#include "compress/error_feedback/slice_feedback.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "compress/error_feedback/decorator.h"
#include "compress/error_feedback/ef21.h"
#include "compress/error_feedback/feedback_device.h"
#include "compress/error_feedback/residual.h"
#include "compress/error_feedback/stored_residual.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

template <typename T>
TensorView view_as(std::vector<T>& data, const Shape& shape) {
  return {reinterpret_cast<std::byte*>(data.data()), shape, DTypeOf<T>::kValue};
}

template <typename T>
std::span<const T> read(ConstTensorView view) {
  return view.empty() ? std::span<const T>() : elements<T>(view);
}

template <typename T>
Status check_finite(const char* what, std::span<const T> values) {
  if (all_finite<T>(values)) return {};
  std::size_t i = 0;
  while (std::abs(values[i]) <= std::numeric_limits<T>::max()) ++i;
  return {Code::kInvalidArgument,
          format("error feedback: element %zu of %s is %g (expected finite numbers)", i, what,
                 static_cast<double>(values[i]))};
}

// ef14 with a residual in the gradient's type. In separate passes the residual becomes p and then
// the new residual, in one place; in one pass the new one is written beside the old, and they
// change places.
template <typename T>
class Residual final : public SliceFeedback {
 public:
  explicit Residual(const Shape& shape)
      : shape_(shape), error_(static_cast<std::size_t>(shape.elems())) {}

  Result<TensorView> correct(ConstTensorView input, std::uint64_t) override {
    GW_TRY(add_gradient(input, view(error_)));
    return view(error_);
  }
  Status settle(std::int64_t first, ConstTensorView sent) override {
    return subtract(sent, view(error_).slice(first, sent.elems()));
  }

  bool packs(const WireFormat& format) const override { return format.takes_feedback(); }
  Result<std::size_t> pack(WireFormat& format, const PackedPiece& piece, ByteSpan wire) override {
    const std::int64_t count = piece.input.elems();
    const TensorView next = beside();
    const Feedback feedback{view(error_).slice(piece.first, count), next.slice(piece.first, count),
                            piece.scale};
    return format.pack_with_feedback(piece.input, feedback, piece.slice, wire, {});
  }
  Result<TensorView> correct_part(ConstTensorView input, std::int64_t first) override {
    const TensorView whole = beside();
    const std::int64_t count = input.elems();
    GW_TRY(put_sum(input, view(error_).slice(first, count), whole.slice(first, count)));
    return whole;
  }

  Status settle_exactly(std::int64_t first, std::int64_t count) override {
    std::fill_n((in_one_pass_ ? next_ : error_).begin() + first, count, T{0});
    return {};
  }
  Status finish() override {
    if (std::exchange(in_one_pass_, false)) std::swap(error_, next_);
    return {};
  }
  std::vector<NamedTensor> state() override {
    return {{std::string(kResidualState), view(error_)}};
  }

 private:
  TensorView view(std::vector<T>& data) { return view_as(data, shape_); }
  TensorView beside() {
    next_.resize(error_.size());
    in_one_pass_ = true;
    return view(next_);
  }

  Shape shape_;
  std::vector<T> error_;
  std::vector<T> next_;  // empty until the first pack()
  bool in_one_pass_ = false;
};

// A residual that rests in few bytes, forgets, or both. p lives from correct() to finish().
template <typename T>
class ForgettingResidual final : public SliceFeedback {
 public:
  ForgettingResidual(const FeedbackOptions& options, const Shape& shape,
                     const Compressor::Placement& where, int stage)
      : shape_(shape),
        beta_(static_cast<T>(options.kind == FeedbackKind::kLoco ? options.beta : 0)),
        reset_(options.kind == FeedbackKind::kLoco ? static_cast<std::uint64_t>(options.reset) : 0),
        residual_(shape, options.storage, where, stage) {}

  Result<TensorView> correct(ConstTensorView input, std::uint64_t step) override {
    step_ = step;
    p_.resize(residual_.size());
    load(0, p_);
    const auto x = read<T>(input);
    for (std::size_t i = 0; i < p_.size(); ++i) p_[i] = x[i] + p_[i];
    GW_TRY(check_finite<T>("gradient + residual", p_));
    return view_as(p_, shape_);
  }
  Status settle(std::int64_t first, ConstTensorView sent) override {
    const auto begin = static_cast<std::size_t>(first);
    const auto there = read<T>(sent);
    const auto p = std::span(p_).subspan(begin, there.size());
    for (std::size_t i = 0; i < p.size(); ++i) p[i] -= there[i];
    if (beta_ == T{0}) return {};
    old_.resize(p.size());
    load(begin, old_);
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = beta_ * old_[i] + (1 - beta_) * p[i];
    return {};
  }
  Status settle_exactly(std::int64_t first, std::int64_t count) override {
    std::fill_n(p_.begin() + first, count, T{0});
    return {};
  }
  Status finish() override {
    GW_TRY(check_finite<T>("the new residual", p_));
    GW_TRY(residual_.store(p_, step_));
    std::vector<T>().swap(p_);
    std::vector<T>().swap(old_);
    return {};
  }
  std::vector<NamedTensor> state() override { return residual_.state(); }

 private:
  void load(std::size_t first, std::span<T> out) const {
    if (reset_ > 0 && step_ > 0 && step_ % reset_ == 0) {
      std::fill(out.begin(), out.end(), T{0});
    } else {
      residual_.load(first, out);
    }
  }

  Shape shape_;
  T beta_;
  std::uint64_t reset_;
  StoredResidual<T> residual_;
  std::uint64_t step_ = 0;
  std::vector<T> p_;
  std::vector<T> old_;
};

template <typename T>
class Differences final : public SliceFeedback {
 public:
  Differences(const FeedbackOptions& options, const Shape& shape)
      : shape_(shape),
        eta_(static_cast<T>(options.kind == FeedbackKind::kEf21Sgdm ? options.eta : 1)),
        h_(static_cast<std::size_t>(shape.elems())),
        v_(eta_ == T{1} ? 0 : h_.size()),
        d_(h_.size()) {}

  Result<TensorView> correct(ConstTensorView input, std::uint64_t) override {
    auto target = read<T>(input);
    if (!v_.empty()) {
      for (std::size_t i = 0; i < v_.size(); ++i) v_[i] = (1 - eta_) * v_[i] + eta_ * target[i];
      target = v_;
    }
    for (std::size_t i = 0; i < d_.size(); ++i) d_[i] = target[i] - h_[i];
    GW_TRY(check_finite<T>("gradient - h", d_));
    return view_as(d_, shape_);
  }
  Status settle(std::int64_t first, ConstTensorView sent) override {
    const auto there = read<T>(sent);
    const auto h = std::span(h_).subspan(static_cast<std::size_t>(first), there.size());
    for (std::size_t i = 0; i < h.size(); ++i) h[i] += there[i];
    return check_finite<T>("the new h", h);
  }
  Status settle_exactly(std::int64_t first, std::int64_t count) override {
    for (std::int64_t i = first; i < first + count; ++i) {
      h_[static_cast<std::size_t>(i)] += d_[static_cast<std::size_t>(i)];
    }
    return {};
  }
  Status finish() override { return {}; }
  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> all{{std::string(kEf21State) + "h", view_as(h_, shape_)}};
    if (!v_.empty()) all.push_back({std::string(kEf21State) + "v", view_as(v_, shape_)});
    return all;
  }

 private:
  Shape shape_;
  T eta_;
  std::vector<T> h_;
  std::vector<T> v_;
  std::vector<T> d_;  // what is packed
};

template <typename T>
std::unique_ptr<SliceFeedback> make_typed(const FeedbackOptions& options, const Shape& shape,
                                          const Compressor::Placement& where, int stage) {
  switch (options.kind) {
    case FeedbackKind::kNone: return nullptr;
    case FeedbackKind::kEf14:
      if (options.storage == ResidualStorage::kFull) return std::make_unique<Residual<T>>(shape);
      [[fallthrough]];
    case FeedbackKind::kLoco:
      return std::make_unique<ForgettingResidual<T>>(options, shape, where, stage);
    case FeedbackKind::kEf21:
    case FeedbackKind::kEf21Sgdm: return std::make_unique<Differences<T>>(options, shape);
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<SliceFeedback>> make_slice_feedback(const FeedbackOptions& options,
                                                           const Shape& shape,
                                                           const Compressor::Placement& where,
                                                           int stage, const Stream& stream) {
  if (options.kind == FeedbackKind::kNone) return std::unique_ptr<SliceFeedback>();
  if constexpr (kHaveCuda) {
    if (where.device.space == MemorySpace::kCuda) {
      return cuda::make_slice_feedback(options, shape, where, stage, stream);
    }
  }
  return where.dtype == DType::kF64 ? make_typed<double>(options, shape, where, stage)
                                    : make_typed<float>(options, shape, where, stage);
}

}  // namespace gradwire
