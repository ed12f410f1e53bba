#include "compress/lossless/lossless.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/corrected.h"
#include "compress/finite.h"
#include "compress/lossless/lossless_device.h"
#include "compress/lossless/lossless_kernels.h"
#include "device/cuda/have_cuda.h"
#include "device/ops.h"

namespace gradwire {
namespace {

template <typename T>
class LosslessCoder final : public Coder {
 public:
  LosslessCoder(const Shape& shape, const Compressor::Placement& where)
      : elems_(shape.elems()), where_(where) {}

  Status begin(ConstTensorView grad, std::uint64_t, const Stream&) override {
    GW_TRY(check_tensor("lossless: grad", grad, elems_, DTypeOf<T>::kValue));
    grad_ = grad;
    feedback_.reset();
    payloads_.clear();
    return {};
  }
  bool takes_feedback() const override { return true; }
  Status begin_with_feedback(ConstTensorView grad, const Feedback& feedback, std::uint64_t step,
                             const Stream& stream) override {
    GW_TRY(begin(grad, step, stream));
    GW_TRY(check_feedback("lossless", grad, feedback, where_.dtype));
    feedback_ = feedback;
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    GW_TRY(check_round("lossless", round, 1));
    GW_TRY(check_room("lossless: payload", payload.size(), most_bytes()));
    if (elems_ == 0) return std::size_t{0};
    if (feedback_.has_value()) return feed_back(payload);
    return cpu::lossless_encode(elements<T>(grad_), payload);
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round("lossless", round, 1));
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              format("lossless: %zu payloads (%d ranks)", payloads.size(), where_.size)};
    }
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      if (payloads[r].size() <= most_bytes()) continue;
      return {Code::kCorruptPayload,
              format("lossless: payload of rank %zu has %zu bytes (expected at most %zu)", r,
                     payloads[r].size(), most_bytes())};
    }
    payloads_.assign(payloads.begin(), payloads.end());
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check_tensor("lossless: mean", mean, elems_, DTypeOf<T>::kValue));
    if (payloads_.empty()) return {Code::kInvalidArgument, "lossless: finish() before absorb()"};
    if (!own.empty()) {
      GW_TRY(check_tensor("lossless: own", own, elems_, DTypeOf<T>::kValue));
      GW_TRY(decode(where_.rank, own, false));
    }
    for (int rank = 0; rank < where_.size; ++rank) GW_TRY(decode(rank, mean, rank > 0));
    return where_.size == 1 ? Status() : scale(mean, 1.0 / where_.size, stream);
  }

  std::vector<NamedTensor> state() override { return {}; }

 private:
  // Payloads are those of blocks, one after another, and decode to what was compressed.
  Result<std::size_t> feed_back(ByteSpan payload) const {
    const Corrected<T> p(elements<T>(grad_), elements<T>(feedback_->residual).data());
    T* const next = elements<T>(feedback_->next).data();
    const T scale = static_cast<T>(feedback_->scale);
    std::array<T, kLosslessBlock> sums;
    LargestBits<T> largest;
    std::size_t used = 0;
    for (std::size_t begin = 0; begin < p.size; begin += kLosslessBlock) {
      const std::size_t count = std::min(kLosslessBlock, p.size - begin);
      for (std::size_t i = 0; i < count; ++i) {
        const T sum = p.grad[begin + i] + p.residual[begin + i];
        sums[i] = sum;
        next[begin + i] = sum - sum * scale;
        largest.see(next[begin + i]);
      }
      used += cpu::lossless_encode<T>(std::span<const T>(sums).first(count), payload.subspan(used));
    }
    if (largest.finite()) return used;
    return Status(Code::kInvalidArgument, "lossless: gradient + residual is not finite");
  }
  std::size_t most_bytes() const {
    return lossless_most_bytes(static_cast<std::size_t>(elems_), sizeof(T));
  }
  Status decode(int rank, TensorView into, bool add) const {
    const auto x = into.empty() ? std::span<T>() : elements<T>(into);
    const Status status = cpu::lossless_decode(payloads_[static_cast<std::size_t>(rank)], add, x);
    return status.ok() ? status : status.with_context(format("lossless: payload of rank %d", rank));
  }

  std::int64_t elems_;
  Compressor::Placement where_;
  ConstTensorView grad_;
  std::optional<Feedback> feedback_;
  std::vector<ConstByteSpan> payloads_;
};

class Lossless final : public Compressor {
 public:
  std::string spec() const override { return "lossless"; }
  Traits traits() const override {
    return {.fixed_payload = false,
            .lossless = true,
            .unbiased = true,
            .needs_error_feedback = false,
            .bitwise_on_all_devices = true};
  }
  ErrorBound bound(const Shape&) const override { return {ErrorBound::Kind::kContraction, 1.0}; }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    return lossless_most_bytes(static_cast<std::size_t>(shape.elems()), size_of(dtype));
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        return cuda::make_lossless_coder(shape, where);
      }
    }
    GW_TRY(check_placement("lossless", where));
    if (where.dtype == DType::kF64) {
      return std::unique_ptr<Coder>(std::make_unique<LosslessCoder<double>>(shape, where));
    }
    return std::unique_ptr<Coder>(std::make_unique<LosslessCoder<float>>(shape, where));
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&,
                                                  const Placement& where) const override {
    GW_TRY(check_placement("lossless", where));
    return Status(Code::kUnsupported,
                  "lossless: payloads have the length that their values need, and a slice's must "
                  "be known before; write combine=gather");
  }
};

}  // namespace

Registry::Method lossless_method() {
  return {"lossless",
          "the elements bit for bit, exponents in fewer bits; length varies",
          "",
          {},
          [](const Spec&) -> Result<std::unique_ptr<Compressor>> {
            return std::unique_ptr<Compressor>(std::make_unique<Lossless>());
          }};
}

}  // namespace gradwire
