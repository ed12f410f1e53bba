#include "compress/dgc/dgc_coder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/dgc/dgc_kernels.h"
#include "compress/little_endian.h"
#include "compress/sparse/chosen_count.h"
#include "compress/sparse/pair_payloads.h"
#include "compress/topk/topk_loops.h"

namespace gradwire {
namespace {

template <typename T>
class DgcCoder final : public Coder {
 public:
  DgcCoder(const DgcOptions& options, const Shape& shape, const Compressor::Placement& where,
           PairPayloads<T> payloads)
      : options_(options),
        shape_(shape),
        where_(where),
        payloads_(std::move(payloads)),
        u_(static_cast<std::size_t>(shape.elems())),
        v_(u_.size()),
        next_u_(u_.size()),
        next_v_(u_.size()) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    GW_TRY(check_tensor("dgc: grad", grad, shape_.elems(), where_.dtype));
    grad_ = grad;
    step_ = step;
    encoded_ = false;
    payloads_.forget();
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    GW_TRY(check_round("dgc", round, 1));
    index_.clear();
    value_.clear();
    if (shape_.elems() > 0) GW_TRY(choose());
    encoded_ = true;
    return payloads_.write(index_, value_, step_, payload);
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round("dgc", round, 1));
    return payloads_.absorb(payloads, step_);
  }

  Status finish(TensorView mean, TensorView own, const Stream&) override {
    if (!encoded_) return {Code::kInvalidArgument, "dgc: finish() before encode()"};
    GW_TRY(payloads_.finish(mean, own));
    if (shape_.elems() > 0) GW_TRY(take_away());
    encoded_ = false;
    std::swap(u_, next_u_);
    std::swap(v_, next_v_);
    return {};
  }

  std::vector<NamedTensor> state() override {
    return {{"residual", view(v_)}, {"residual.momentum", view(u_)}};
  }

 private:
  TensorView view(std::vector<T>& data) const {
    return {reinterpret_cast<std::byte*>(data.data()), shape_, DTypeOf<T>::kValue};
  }

  Status not_finite(const std::string& what, std::size_t i, T value) const {
    return {Code::kInvalidArgument,
            format("dgc: element %zu of %s: %s is %g (expected finite numbers); momentum and "
                   "residual are kept as they were",
                   i, to_string(shape_).c_str(), what.c_str(), static_cast<double>(value))};
  }
  Status name_not_finite(std::span<const T> grad) const {
    for (std::size_t i = 0; i < grad.size(); ++i) {
      if (!std::isfinite(grad[i])) return not_finite("the gradient", i, grad[i]);
      if (!std::isfinite(next_u_[i])) return not_finite("its momentum", i, next_u_[i]);
      if (!std::isfinite(next_v_[i])) return not_finite("the sum of its momenta", i, next_v_[i]);
    }
    return {Code::kInternal, "dgc: a momentum was not finite"};
  }

  // What clipping multiplies into the gradient.
  Result<T> clip_factor(std::span<const T> grad) const {
    if (options_.clip == 0) return T{1};
    const double norm = std::sqrt(cpu::sum_of_squares<T>(grad));
    if (!std::isfinite(norm)) {
      return Status(Code::kInvalidArgument,
                    "dgc: the norm of the gradient is not finite (clip needs a finite norm)");
    }
    const double most = options_.clip / std::sqrt(static_cast<double>(where_.size));
    return norm > most ? static_cast<T>(most / norm) : T{1};
  }

  // Moves to the next u and v and puts what is sent into index_ and value_.
  Status choose() {
    const std::span<const T> grad = elements<T>(grad_);
    GW_ASSIGN(const T factor, clip_factor(grad));
    const MomentumStep<T> step{
        grad, u_, v_, factor, static_cast<T>(options_.momentum), options_.nesterov};
    const std::size_t k = share_of(options_.ratio, shape_.elems());
    const std::size_t samples = dgc_samples(options_.sample, grad.size());
    if (2 * samples > grad.size()) {
      if (!cpu::accumulate<T>(step, next_u_, next_v_)) return name_not_finite(grad);
      take_largest(next_v_, k);
      return {};
    }
    const RandomStream draws(where_.seed, RandomUse::kPlaces, where_.tensor, where_.rank,
                             kDgcSampleStage, step_);
    TopkKey<T> low = cpu::sampled_threshold<T>(step, options_.ratio, samples, draws, found_.keys);
    std::size_t count = 0;
    if (!cpu::accumulate_and_collect<T>(step, low, next_u_, next_v_, found_, count)) {
      return name_not_finite(grad);
    }
    const double fewest = kDgcFewest * static_cast<double>(k);
    for (int round = 0; static_cast<double>(count) < fewest && round < kDgcMostRounds; ++round) {
      if (low == 1) break;  // all that are not zero
      low = lower_key<T>(low);
      count = cpu::topk_collect<T>(Corrected<T>(std::span<const T>(next_v_)), low, found_, nullptr,
                                   T{1});
    }
    take_found(count, k);
    return {};
  }

  // All `count` candidates, or the k largest of them.
  void take_found(std::size_t count, std::size_t k) {
    if (count > k) {
      take_largest(std::span<const T>(found_.value).first(count), k);
      for (std::uint32_t& place : index_) place = found_.index[place];
      return;
    }
    const auto end = static_cast<std::ptrdiff_t>(count);
    index_.assign(found_.index.begin(), found_.index.begin() + end);
    value_.assign(found_.value.begin(), found_.value.begin() + end);
  }

  void take_largest(std::span<const T> from, std::size_t k) {
    pairs_.resize(k * (kTopkIndexBytes + sizeof(T)));
    cpu::topk_encode<T>(Corrected<T>(from), nullptr, T{1}, k, largest_, pairs_);
    index_.resize(k);
    value_.resize(k);
    std::memcpy(index_.data(), pairs_.data(), k * kTopkIndexBytes);
    std::memcpy(value_.data(), pairs_.data() + k * kTopkIndexBytes, k * sizeof(T));
  }

  // v keeps what was not sent; u forgets where something was.
  Status take_away() {
    const std::size_t count = index_.size();
    const std::byte* values = payloads_.own_pairs().data() + count * kTopkIndexBytes;
    if (payloads_.own_pairs().size() != count * (kTopkIndexBytes + sizeof(T))) {
      return {Code::kCorruptPayload, "dgc: this rank's own payload came back changed"};
    }
    for (std::size_t j = 0; j < count; ++j) {
      const std::uint32_t i = index_[j];
      next_v_[i] -= load_le<T>(values, j);
      if (!std::isfinite(next_v_[i])) return not_finite("the residual", i, next_v_[i]);
      if (options_.masking) next_u_[i] = 0;
    }
    return {};
  }

  DgcOptions options_;
  Shape shape_;
  Compressor::Placement where_;
  PairPayloads<T> payloads_;
  std::vector<T> u_;
  std::vector<T> v_;
  std::vector<T> next_u_;  // of the step in work
  std::vector<T> next_v_;
  ConstTensorView grad_;
  std::uint64_t step_ = 0;
  bool encoded_ = false;
  std::vector<std::uint32_t> index_;  // what is sent
  std::vector<T> value_;
  TopkScratch<T> found_;    // above the threshold
  TopkScratch<T> largest_;  // of take_largest()
  std::vector<std::byte> pairs_;
};

template <typename T>
Result<std::unique_ptr<Coder>> make_typed(const DgcOptions& options, const Shape& shape,
                                          const Compressor::Placement& where) {
  const std::size_t most = share_of(options.ratio, shape.elems());
  GW_ASSIGN(auto payloads,
            PairPayloads<T>::open("dgc", options.pairs, most, true, shape.elems(), where));
  return std::unique_ptr<Coder>(
      std::make_unique<DgcCoder<T>>(options, shape, where, std::move(payloads)));
}

}  // namespace

Result<std::unique_ptr<Coder>> make_dgc_coder(const DgcOptions& options, const Shape& shape,
                                              const Compressor::Placement& where) {
  return where.dtype == DType::kF64 ? make_typed<double>(options, shape, where)
                                    : make_typed<float>(options, shape, where);
}

}  // namespace gradwire
