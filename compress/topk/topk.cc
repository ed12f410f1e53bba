#include "compress/topk/topk.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/elements.h"
#include "compress/contract.h"
#include "compress/sparse/chosen_count.h"
#include "compress/sparse/pair_coder.h"
#include "compress/sparse/sparse_coding.h"
#include "compress/spec_reader.h"
#include "compress/topk/topk_device.h"
#include "compress/topk/topk_kernels.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

template <typename T>
class TopkCoder final : public PairCoder<T> {
 public:
  TopkCoder(std::size_t k, const Shape& shape, const Compressor::Placement& where,
            PairPayloads<T> payloads)
      : PairCoder<T>("topk", shape.elems(), where.dtype, std::move(payloads)), k_(k) {}

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream&) override {
    GW_TRY(check_round("topk", round, 1));
    if (!payloads_.plain()) return encode_coded(payload);
    GW_TRY(check_room("topk: payload", payload.size(), bytes()));
    if (k_ > 0) GW_TRY(select(payload.first(bytes())));
    return bytes();
  }

 private:
  using PairCoder<T>::payloads_;
  using PairCoder<T>::grad_;
  using PairCoder<T>::step_;
  using PairCoder<T>::feedback_;

  std::size_t bytes() const { return k_ * (kTopkIndexBytes + sizeof(T)); }

  Result<std::size_t> encode_coded(ByteSpan payload) {
    pairs_.resize(bytes());
    if (k_ > 0) GW_TRY(select(pairs_));
    index_.resize(k_);
    value_.resize(k_);
    if (k_ > 0) {
      const std::size_t index_bytes = k_ * kTopkIndexBytes;
      std::memcpy(index_.data(), pairs_.data(), index_bytes);
      std::memcpy(value_.data(), pairs_.data() + index_bytes, k_ * sizeof(T));
    }
    return payloads_.write(index_, value_, step_, payload);
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
  TopkScratch<T> scratch_;
  std::vector<std::byte> pairs_;  // as the selection writes them; then apart
  std::vector<std::uint32_t> index_;
  std::vector<T> value_;
};

class Topk final : public Compressor {
 public:
  Topk(ChosenCount count, SparseOptions options) : count_(count), options_(std::move(options)) {}

  std::string spec() const override { return "topk:" + count_.text() + spec_end(options_); }
  Traits traits() const override {
    const bool anywhere = !options_.values || options_.values->traits().bitwise_on_all_devices;
    return {.fixed_payload = has_fixed_length(options_.index),
            .sparse = true,
            .bitwise_on_all_devices = anywhere};
  }
  ErrorBound bound(const Shape& shape) const override {
    return bound_with_values({ErrorBound::Kind::kContraction, count_.share(shape.elems())},
                             options_, count_.of(shape.elems()));
  }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    const std::int64_t n = shape.elems();
    return most_pair_bytes(options_, count_.of(n), static_cast<std::size_t>(n), dtype);
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) {
        return cuda::make_topk_coder(options_, count_.of(shape.elems()), shape, where);
      }
    }
    GW_TRY(check_placement("topk", where));
    GW_TRY(check_index_range("topk", shape));
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
    const std::size_t k = count_.of(shape.elems());
    GW_ASSIGN(auto payloads,
              PairPayloads<T>::open("topk", options_, k, false, shape.elems(), where));
    return std::unique_ptr<Coder>(
        std::make_unique<TopkCoder<T>>(k, shape, where, std::move(payloads)));
  }

  ChosenCount count_;
  SparseOptions options_;
};

Result<std::unique_ptr<Compressor>> make_composed_topk(const Spec& spec,
                                                       std::shared_ptr<const Compressor> values) {
  const SpecReader reader(spec);
  GW_ASSIGN(const ChosenCount count, ChosenCount::read(reader, "topk"));
  GW_ASSIGN(const IndexCoding index, read_index_key(reader));
  return std::unique_ptr<Compressor>(
      std::make_unique<Topk>(count, SparseOptions{index, std::move(values)}));
}

Result<std::unique_ptr<Compressor>> make_topk(const Spec& spec) {
  return make_composed_topk(spec, nullptr);
}

}  // namespace

Registry::Method topk_method() {
  std::vector<SpecKey> keys = ChosenCount::keys();
  keys.push_back(index_key());
  return {"topk",    "the k largest elements with their indices",
          "",        std::move(keys),
          make_topk, make_composed_topk};
}

}  // namespace gradwire
