#include "aggregate/chosen_pairs.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "base/elements.h"
#include "base/philox.h"

namespace gradwire {
namespace {

template <typename T>
class HostPairs final : public ChosenPairs<T> {
 public:
  HostPairs(std::unique_ptr<Coder> method, const Shape& shape, std::size_t most_bytes, int size)
      : ChosenPairs<T>(std::move(method), shape, size),
        payload_(most_bytes),
        own_(static_cast<std::size_t>(shape.elems())) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    GW_TRY(this->method_->begin(grad, step, {}));
    GW_ASSIGN(const std::size_t bytes, this->method_->encode(0, payload_, {}));
    const std::array<ConstByteSpan, 1> payload{ConstByteSpan(payload_).first(bytes)};
    GW_TRY(this->method_->absorb(0, payload, {}));
    const TensorView own(reinterpret_cast<std::byte*>(own_.data()), this->shape_,
                         DTypeOf<T>::kValue);
    GW_TRY(this->method_->finish(own, {}, {}));
    this->index_.clear();
    this->values_.clear();
    for (std::size_t i = 0; i < own_.size(); ++i) {
      if (own_[i] == T{0}) {
        own_[i] = T{0};  // without a sign, as whatever is not chosen
        continue;
      }
      this->index_.push_back(static_cast<std::uint32_t>(i));
      this->values_.push_back(own_[i]);
    }
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream&) override {
    if (own_.empty()) return {};
    const std::span<T> result = elements<T>(mean);
    const std::span<T> mine = own.empty() ? std::span<T>() : elements<T>(own);
    if (this->all_) {
      for (std::size_t i = 0; i < result.size(); ++i) result[i] = this->sums_[i] * this->share_;
      std::copy_n(own_.begin(), mine.size(), mine.begin());
      return {};
    }
    std::fill(result.begin(), result.end(), T{0});
    std::fill(mine.begin(), mine.end(), T{0});
    for (std::size_t k = 0; k < this->kept_.size(); ++k) {
      const std::size_t i = this->kept_[k];
      result[i] = this->sums_[k] * this->share_;
      if (!mine.empty()) mine[i] = own_[i];
    }
    return {};
  }

 private:
  std::vector<std::byte> payload_;
  std::vector<T> own_;  // what the method's payload decodes to, whole
};

}  // namespace

template <typename T>
Result<std::unique_ptr<ChosenPairs<T>>> ChosenPairs<T>::open(const Compressor& method,
                                                             const Shape& shape,
                                                             const Compressor::Placement& where) {
  // Alone, with draws of its own.
  Compressor::Placement alone = where;
  alone.seed = mix64(where.seed ^ mix64(static_cast<std::uint64_t>(where.rank) + 1));
  alone.rank = 0;
  alone.size = 1;
  GW_ASSIGN(auto coder, method.open(shape, alone));
  const std::size_t most = method.max_payload_bytes(shape, where.dtype, 0, 1);
  if (where.device.space == MemorySpace::kCuda) {
    if constexpr (std::is_same_v<T, float>) {
      return open_pairs_on_device(std::move(coder), shape, most, where);
    }
    return Status(
        Code::kUnsupported,
        "combine=oktopk: elements of f64 on a CUDA device (expected f32, or host memory)");
  }
  return std::unique_ptr<ChosenPairs>(
      std::make_unique<HostPairs<T>>(std::move(coder), shape, most, where.size));
}

template <typename T>
Result<std::size_t> ChosenPairs<T>::encode(int, ByteSpan, const Stream&) {
  return Status(Code::kUnsupported, "pairs have no payload of their own");
}
template <typename T>
Status ChosenPairs<T>::absorb(int, std::span<const ConstByteSpan>, const Stream&) {
  return {Code::kUnsupported, "pairs have no payload of their own"};
}

template <typename T>
void ChosenPairs<T>::keep(std::span<const std::uint32_t> index, std::span<const T> sums) {
  kept_ = index;
  sums_ = sums;
  all_ = false;
}
template <typename T>
void ChosenPairs<T>::keep_all(std::span<const T> sums) {
  sums_ = sums;
  all_ = true;
}

template class ChosenPairs<float>;
template class ChosenPairs<double>;

}  // namespace gradwire
