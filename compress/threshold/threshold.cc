#include "compress/threshold/threshold.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/sparse/chosen_count.h"
#include "compress/sparse/pair_coder.h"
#include "compress/spec_reader.h"
#include "compress/threshold/threshold_device.h"
#include "compress/topk/topk_loops.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostThresholdElems = kMostSparseElems - 1;  // so that a count has 32 bits

template <typename T>
class ThresholdCoder final : public PairCoder<T> {
 public:
  ThresholdCoder(double tau, const Shape& shape, const Compressor::Placement& where,
                 PairPayloads<T> payloads)
      : PairCoder<T>("threshold", shape.elems(), where.dtype, std::move(payloads)),
        low_(std::max<TopkKey<T>>(topk_key(static_cast<T>(tau)), 1)) {}

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    GW_TRY(check_round("threshold", round, 1));
    std::size_t count = 0;
    if (elems_ > 0) {
      GW_ASSIGN(count, choose());
    }
    return payloads_.write(std::span(scratch_.index.data(), count),
                           std::span<const T>(scratch_.value.data(), count), step_, payload);
  }

 private:
  using PairCoder<T>::elems_;
  using PairCoder<T>::payloads_;
  using PairCoder<T>::grad_;
  using PairCoder<T>::step_;
  using PairCoder<T>::feedback_;

  // The chosen elements are at the front of scratch_.
  Result<std::size_t> choose() {
    const std::span<const T> grad = elements<T>(grad_);
    if (!feedback_) {
      return cpu::topk_collect<T>(Corrected<T>(grad), low_, scratch_, nullptr, T{1});
    }
    const Corrected<T> p(grad, elements<T>(feedback_->residual).data());
    const std::size_t count = cpu::topk_collect<T>(
        p, low_, scratch_, elements<T>(feedback_->next).data(), static_cast<T>(feedback_->scale));
    const auto infinite = topk_key(std::numeric_limits<T>::infinity());
    if (cpu::TopkLoops<T>::kCountAtLeast(scratch_.value.data(), count, infinite) == 0) return count;
    return Status(Code::kInvalidArgument, "threshold: gradient + residual is not finite");
  }

  TopkKey<T> low_;
  TopkScratch<T> scratch_;
};

class Threshold final : public Compressor {
 public:
  Threshold(double tau, SparseOptions options) : tau_(tau), options_(std::move(options)) {}

  std::string spec() const override {
    return "threshold:tau=" + shortest(tau_) + spec_end(options_);
  }
  Traits traits() const override {
    const bool anywhere = !options_.values || options_.values->traits().bitwise_on_all_devices;
    return {.fixed_payload = false, .sparse = true, .bitwise_on_all_devices = anywhere};
  }
  // What is left out is at right angles to what is sent.
  ErrorBound bound(const Shape& shape) const override {
    return bound_with_values({ErrorBound::Kind::kContraction, 0}, options_,
                             static_cast<std::size_t>(shape.elems()));
  }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    const auto n = static_cast<std::size_t>(shape.elems());
    return PairPayloads<float>::kCountBytes + most_pair_bytes_up_to(options_, n, n, dtype);
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        const auto low = std::max<std::uint32_t>(topk_key(static_cast<float>(tau_)), 1);
        return cuda::make_threshold_coder(options_, low, shape, where);
      }
    }
    GW_TRY(check_placement("threshold", where));
    GW_TRY(check_index_range("threshold", shape, kMostThresholdElems));
    return where.dtype == DType::kF64 ? open_typed<double>(shape, where)
                                      : open_typed<float>(shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported,
                  "threshold: payloads have the length that the gradient gives them, and a slice's "
                  "must be known before; use combine=gather");
  }

 private:
  template <typename T>
  Result<std::unique_ptr<Coder>> open_typed(const Shape& shape, const Placement& where) const {
    const std::int64_t n = shape.elems();
    GW_ASSIGN(auto payloads, PairPayloads<T>::open("threshold", options_,
                                                   static_cast<std::size_t>(n), true, n, where));
    return std::unique_ptr<Coder>(
        std::make_unique<ThresholdCoder<T>>(tau_, shape, where, std::move(payloads)));
  }

  double tau_;
  SparseOptions options_;
};

Result<std::unique_ptr<Compressor>> make_composed_threshold(
    const Spec& spec, std::shared_ptr<const Compressor> values) {
  const SpecReader reader(spec);
  if (!reader.has("tau")) {
    return Status(Code::kInvalidArgument, "compressor 'threshold': the key 'tau' must be given");
  }
  const double most = std::numeric_limits<float>::max();
  GW_ASSIGN(const double tau, reader.number("tau", 0, 0, most));
  GW_ASSIGN(const IndexCoding index, read_index_key(reader));
  return std::unique_ptr<Compressor>(
      std::make_unique<Threshold>(tau, SparseOptions{index, std::move(values)}));
}

Result<std::unique_ptr<Compressor>> make_threshold(const Spec& spec) {
  return make_composed_threshold(spec, nullptr);
}

}  // namespace

Registry::Method threshold_method() {
  return {
      "threshold",
      "elements of at least one magnitude, with their indices; length varies",
      "tau",
      {{"tau", "", "least magnitude that is sent, in the gradient's units, above 0"}, index_key()},
      make_threshold,
      make_composed_threshold};
}

}  // namespace gradwire
