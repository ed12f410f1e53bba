#include "gradwire/compressor.h"

#include <utility>
#include <vector>

#include "base/text.h"
#include "compress/contract.h"
#include "compress/cuda/placed_coder.h"
#include "device/ops.h"

namespace gradwire {
namespace {

class SliceCoder final : public PlacedCoder {
 public:
  SliceCoder(std::unique_ptr<WireFormat> format, const Shape& shape,
             const Compressor::Placement& where)
      : PlacedCoder("slices", shape.elems(), where.device, where.dtype),
        format_(std::move(format)),
        where_(where) {}

  bool takes_feedback() const override { return format_->takes_feedback(); }

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) override {
    GW_TRY(PlacedCoder::begin(grad, step, stream));
    format_->turn_to(step);
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round("slices", round, 1));
    if (feedback_.has_value()) {
      return format_->pack_with_feedback(grad_, *feedback_, slice_of(where_.rank), payload, stream);
    }
    return format_->pack(grad_, slice_of(where_.rank), payload, stream);
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round("slices", round, 1));
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              format("slices: %zu payloads (%d ranks)", payloads.size(), where_.size)};
    }
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      GW_TRY(check_length(format("payload of rank %zu", r), payloads[r].size(),
                          format_->bytes(elems_, 0)));
    }
    payloads_.assign(payloads.begin(), payloads.end());
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check("mean", mean));
    if (payloads_.empty()) return {Code::kInvalidArgument, "slices: finish() before absorb()"};
    if (!own.empty()) {
      GW_TRY(check("own", own));
      GW_TRY(decode(where_.rank, own, false, stream));
    }
    for (int rank = 0; rank < where_.size; ++rank) {
      GW_TRY(decode(rank, mean, rank > 0, stream));
    }
    return where_.size == 1 ? Status() : scale(mean, 1.0 / where_.size, stream);
  }

 private:
  void forget() override { payloads_.clear(); }
  Slice slice_of(int rank) const { return {step_, where_.tensor, rank, 0, 0}; }

  Status decode(int rank, TensorView into, bool add, const Stream& stream) {
    const ConstByteSpan payload = payloads_[static_cast<std::size_t>(rank)];
    const Slice slice = slice_of(rank);
    const Status status = add ? format_->unpack_add(payload, slice, into, stream)
                              : format_->unpack(payload, slice, into, stream);
    return status.ok() ? status : status.with_context(format("payload of rank %d", rank));
  }

  std::unique_ptr<WireFormat> format_;
  Compressor::Placement where_;
  std::vector<ConstByteSpan> payloads_;
};

}  // namespace

std::unique_ptr<Coder> make_slice_coder(std::unique_ptr<WireFormat> format, const Shape& shape,
                                        const Compressor::Placement& where) {
  return std::make_unique<SliceCoder>(std::move(format), shape, where);
}

}  // namespace gradwire
