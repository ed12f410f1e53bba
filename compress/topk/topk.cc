#include "compress/topk/topk.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/sparse/sparse_coding.h"
#include "compress/spec_reader.h"
#include "compress/topk/topk_kernels.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostElems = std::int64_t{1} << 32;

template <typename T>
class TopkCoder final : public Coder {
 public:
  // `coding`: how pairs travel; none: as the selection writes them.
  TopkCoder(std::size_t k, const Shape& shape, const Compressor::Placement& where,
            std::optional<SparseCoding<T>> coding)
      : k_(k), elems_(shape.elems()), where_(where), coding_(std::move(coding)) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    GW_TRY(check_tensor("topk: grad", grad, elems_, where_.dtype));
    grad_ = grad;
    step_ = step;
    feedback_.reset();
    payloads_.clear();
    return {};
  }
  // Coded values are not what was chosen: their rest is known after decoding them.
  bool takes_feedback() const override { return !coding_.has_value(); }
  Status begin_with_feedback(ConstTensorView grad, const Feedback& feedback, std::uint64_t step,
                             const Stream& stream) override {
    GW_TRY(check_feedback("topk", grad, feedback, where_.dtype));
    GW_TRY(begin(grad, step, stream));
    feedback_ = feedback;
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    GW_TRY(check_round("topk", round, 1));
    if (coding_) return encode_coded(payload);
    GW_TRY(check_room("topk: payload", payload.size(), bytes()));
    if (k_ > 0) GW_TRY(select(payload.first(bytes())));
    return bytes();
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round("topk", round, 1));
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              format("topk: %zu payloads (%d ranks)", payloads.size(), where_.size)};
    }
    if (coding_) return absorb_coded(payloads);
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      const std::string whose = format("payload of rank %zu", r);
      GW_TRY(check_length(whose + ": topk", payloads[r].size(), bytes()));
      const Status indices =
          cpu::topk_check_indices(payloads[r], k_, static_cast<std::size_t>(elems_));
      if (!indices.ok()) return indices.with_context(whose);
    }
    payloads_.assign(payloads.begin(), payloads.end());
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream&) override {
    GW_TRY(check_tensor("topk: mean", mean, elems_, where_.dtype));
    if (payloads_.empty()) return {Code::kInvalidArgument, "topk: finish() before absorb()"};
    if (elems_ == 0) return {};
    const std::span<const ConstByteSpan> all(payloads_);
    if (!own.empty()) {
      GW_TRY(check_tensor("topk: own", own, elems_, where_.dtype));
      const auto mine = all.subspan(static_cast<std::size_t>(where_.rank), 1);
      cpu::topk_decode<T>(mine, k_, T{1}, elements<T>(own));
    }
    cpu::topk_decode<T>(all, k_, static_cast<T>(1.0 / where_.size), elements<T>(mean));
    return {};
  }

  std::vector<NamedTensor> state() override { return {}; }

 private:
  std::size_t bytes() const { return k_ * (kTopkIndexBytes + sizeof(T)); }
  std::size_t index_bytes() const { return k_ * kTopkIndexBytes; }

  Result<std::size_t> encode_coded(ByteSpan payload) {
    plain_.resize(1);
    plain_[0].resize(bytes());
    if (k_ > 0) GW_TRY(select(plain_[0]));
    pairs_.index.resize(k_);
    pairs_.value.resize(k_);
    if (k_ > 0) {
      std::memcpy(pairs_.index.data(), plain_[0].data(), index_bytes());
      std::memcpy(pairs_.value.data(), plain_[0].data() + index_bytes(), k_ * sizeof(T));
    }
    return coding_->encode(pairs_.index, pairs_.value, step_, payload);
  }

  // Pairs become what the selection writes, so that one kernel adds up either.
  Status absorb_coded(std::span<const ConstByteSpan> payloads) {
    plain_.resize(payloads.size());
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      const Status status = coding_->decode(payloads[r], k_, static_cast<int>(r), step_, pairs_);
      if (!status.ok()) return status.with_context(format("topk: payload of rank %zu", r));
      plain_[r].resize(bytes());
      if (k_ == 0) continue;
      std::memcpy(plain_[r].data(), pairs_.index.data(), index_bytes());
      std::memcpy(plain_[r].data() + index_bytes(), pairs_.value.data(), k_ * sizeof(T));
    }
    payloads_.assign(plain_.begin(), plain_.end());
    return {};
  }

  Status select(ByteSpan pairs) {
    const std::span<const T> grad = elements<T>(grad_);
    if (!feedback_) {
      cpu::topk_encode<T>(Corrected<T>(grad), nullptr, T{1}, k_, scratch_, pairs);
      return {};
    }
    const Corrected<T> p(grad, elements<T>(feedback_->residual).data());
    if (cpu::topk_encode<T>(p, elements<T>(feedback_->next).data(),
                            static_cast<T>(feedback_->scale), k_, scratch_, pairs)) {
      return {};
    }
    return {Code::kInvalidArgument, "topk: gradient + residual is not finite"};
  }

  std::size_t k_;
  std::int64_t elems_;
  Compressor::Placement where_;
  std::optional<SparseCoding<T>> coding_;
  ConstTensorView grad_;
  std::uint64_t step_ = 0;
  std::optional<Feedback> feedback_;
  TopkScratch<T> scratch_;
  std::vector<ConstByteSpan> payloads_;  // as the selection writes them
  typename SparseCoding<T>::Pairs pairs_;
  std::vector<std::vector<std::byte>> plain_;  // by rank, with coding_
};

class Topk final : public Compressor {
 public:
  Topk(double ratio, std::int64_t k, SparseOptions options)
      : ratio_(ratio), k_(k), options_(std::move(options)) {}

  std::string spec() const override {
    return (k_ > 0 ? format("topk:k=%lld", static_cast<long long>(k_))
                   : "topk:ratio=" + shortest(ratio_)) +
           spec_end(options_);
  }
  Traits traits() const override {
    const bool anywhere = !options_.values || options_.values->traits().bitwise_on_all_devices;
    return {.fixed_payload = has_fixed_length(options_.index),
            .sparse = true,
            .bitwise_on_all_devices = anywhere};
  }
  ErrorBound bound(const Shape& shape) const override {
    const std::int64_t n = shape.elems();
    const double share = n == 0 ? 1.0 : static_cast<double>(count(n)) / static_cast<double>(n);
    return bound_with_values({ErrorBound::Kind::kContraction, share}, options_,
                             static_cast<std::size_t>(count(n)));
  }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    const std::int64_t n = shape.elems();
    return most_pair_bytes(options_, static_cast<std::size_t>(count(n)),
                           static_cast<std::size_t>(n), dtype);
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    GW_TRY(check_placement("topk", where));
    if (shape.elems() > kMostElems) {
      return Status(Code::kUnsupported, "topk: " + to_string(shape) +
                                            " has more elements than 32-bit indices reach (2^32)");
    }
    return where.dtype == DType::kF64 ? open_typed<double>(shape, where)
                                      : open_typed<float>(shape, where);
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported,
                  "topk: chooses among all elements of a tensor and has no slices; use "
                  "combine=gather");
  }

 private:
  template <typename T>
  Result<std::unique_ptr<Coder>> open_typed(const Shape& shape, const Placement& where) const {
    const auto k = static_cast<std::size_t>(count(shape.elems()));
    std::optional<SparseCoding<T>> coding;
    if (!options_.plain()) {
      GW_ASSIGN(coding, SparseCoding<T>::open(options_, k, shape.elems(), where));
    }
    return std::unique_ptr<Coder>(
        std::make_unique<TopkCoder<T>>(k, shape, where, std::move(coding)));
  }

  std::int64_t count(std::int64_t elems) const {
    if (elems == 0) return 0;
    // 7 % of 100 are 7, although 0.07 * 100 is a little more than 7 in binary.
    const double exact = ratio_ * static_cast<double>(elems);
    const auto part = static_cast<std::int64_t>(std::ceil(exact * (1 - 1e-12)));
    return std::clamp<std::int64_t>(k_ > 0 ? k_ : part, 1, elems);
  }
  double ratio_;    // when k_ is 0
  std::int64_t k_;  // 0: by ratio
  SparseOptions options_;
};

Result<std::unique_ptr<Compressor>> make_composed_topk(const Spec& spec,
                                                       std::shared_ptr<const Compressor> values) {
  const SpecReader reader(spec);
  if (reader.has("ratio") == reader.has("k")) {
    return Status(Code::kInvalidArgument,
                  "compressor 'topk': exactly one of the keys 'ratio' and 'k' must be given");
  }
  GW_ASSIGN(const double ratio, reader.number("ratio", 0, 0, 1));
  GW_ASSIGN(const std::int64_t k, reader.integer("k", 0, 1, kMostElems));
  GW_ASSIGN(const IndexCoding index, read_index_key(reader));
  return std::unique_ptr<Compressor>(
      std::make_unique<Topk>(ratio, k, SparseOptions{index, std::move(values)}));
}

Result<std::unique_ptr<Compressor>> make_topk(const Spec& spec) {
  return make_composed_topk(spec, nullptr);
}

}  // namespace

Registry::Method topk_method() {
  return {"topk",
          "the k largest elements with their indices",
          "",
          {{"ratio", "", "share of the elements, above 0, at most 1"},
           {"k", "", "number of elements instead of ratio, at least 1"},
           index_key()},
          make_topk,
          make_composed_topk};
}

}  // namespace gradwire
