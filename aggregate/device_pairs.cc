// Pairs of a tensor on a device. The method chooses there; what it chose comes to the host, 8 bytes
// an element, and what all keep goes back. Nothing of the tensor's size does, but a full tensor's
// sums.
#include <array>
#include <utility>

#include "aggregate/chosen_pairs.h"
#include "compress/sparse/pairs_of_device.h"
#include "device/host_copy.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire {
namespace {

class DevicePairs final : public ChosenPairs<float> {
 public:
  DevicePairs(std::unique_ptr<Coder> method, std::unique_ptr<PairsOfDevice> pairs,
              const Shape& shape, int size)
      : ChosenPairs(std::move(method), shape, size), pairs_(std::move(pairs)) {}

  Status open(std::size_t most_bytes, Device device) {
    GW_ASSIGN(payload_, Buffer::allocate(most_bytes, device));
    GW_ASSIGN(own_,
              Buffer::allocate(static_cast<std::size_t>(shape_.elems()) * sizeof(float), device));
    return {};
  }

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) override {
    GW_TRY(method_->begin(grad, step, stream));
    GW_ASSIGN(const std::size_t bytes, method_->encode(0, payload_.bytes(), stream));
    const std::array<ConstByteSpan, 1> payload{payload_.bytes().first(bytes)};
    GW_TRY(method_->absorb(0, payload, stream));
    const TensorView own = own_.tensor(shape_, DType::kF32);
    GW_TRY(method_->finish(own, {}, stream));
    return pairs_->fetch(own, index_, values_, stream);
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    if (shape_.elems() == 0) return {};
    if (all_) {
      GW_TRY(write_from_host(std::as_bytes(sums_), mean, stream));
      GW_TRY(scale(mean, share_, stream));
      return own.empty() ? Status() : pairs_->put(index_, values_, 1, own, stream);
    }
    GW_TRY(pairs_->put(kept_, sums_, share_, mean, stream));
    if (own.empty()) return {};
    find_kept_values();
    return pairs_->put(kept_, kept_values_, 1, own, stream);
  }

 private:
  // Of the elements that all keep, what was chosen here, else 0. Both lists ascend.
  void find_kept_values() {
    kept_values_.assign(kept_.size(), 0);
    std::size_t at = 0;
    for (std::size_t k = 0; k < kept_.size(); ++k) {
      while (at < index_.size() && index_[at] < kept_[k]) ++at;
      if (at < index_.size() && index_[at] == kept_[k]) kept_values_[k] = values_[at];
    }
  }

  std::unique_ptr<PairsOfDevice> pairs_;
  Buffer payload_;
  Buffer own_;  // what the payload decodes to, whole
  std::vector<float> kept_values_;
};

}  // namespace

Result<std::unique_ptr<ChosenPairs<float>>> open_pairs_on_device(
    std::unique_ptr<Coder> method, const Shape& shape, std::size_t most_bytes,
    const Compressor::Placement& where) {
  GW_ASSIGN(auto pairs, make_pairs_of_device(shape.elems(), where.device));
  auto own = std::make_unique<DevicePairs>(std::move(method), std::move(pairs), shape, where.size);
  GW_TRY(own->open(most_bytes, where.device));
  return std::unique_ptr<ChosenPairs<float>>(std::move(own));
}

}  // namespace gradwire
