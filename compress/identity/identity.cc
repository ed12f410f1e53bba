#include "compress/identity/identity.h"

#include <optional>
#include <utility>

#include "compress/block_feedback.h"
#include "compress/contract.h"
#include "compress/cuda/placed_coder.h"
#include "compress/identity/identity_device.h"
#include "compress/identity/identity_format.h"
#include "compress/identity/identity_kernels.h"
#include "device/cuda/have_cuda.h"
#include "device/ops.h"

namespace gradwire {
namespace {

class IdentityFormat final : public ExactFormat {
 public:
  explicit IdentityFormat(DType dtype) : dtype_(dtype) {}

  std::size_t bytes(std::int64_t elems, int) const override {
    return static_cast<std::size_t>(elems) * size_of(dtype_);
  }
  std::int64_t seam(int) const override { return 1; }
  Result<std::size_t> pack(ConstTensorView src, const Slice&, ByteSpan wire,
                           const Stream& stream) override {
    GW_TRY(check_tensor("none: src", src, src.elems(), dtype_));
    const std::size_t count = bytes(src.elems(), 0);
    GW_TRY(check_room("none: payload", wire.size(), count));
    GW_TRY(copy_bytes(src.bytes(), {}, wire.first(count), {}, stream));
    return count;
  }
  Status unpack(ConstByteSpan wire, const Slice&, TensorView dst, const Stream& stream) override {
    GW_TRY(check(wire, dst));
    return copy_bytes(wire, {}, dst.bytes(), {}, stream);
  }
  Status unpack_add(ConstByteSpan wire, const Slice&, TensorView acc, const Stream&) override {
    GW_TRY(check(wire, acc));
    cpu::add_elements(wire, acc);
    return {};
  }
  Result<std::size_t> pack_with_feedback(ConstTensorView src, const Feedback& feedback,
                                         const Slice& slice, ByteSpan wire,
                                         const Stream& stream) override {
    return pack_in_blocks("none", *this, dtype_, src, feedback, slice, wire, stream);
  }
  Status put_own(ConstTensorView src, const std::optional<Feedback>& feedback, TensorView own,
                 const Stream& stream) override {
    GW_TRY(check_tensor("none: own", own, src.elems(), dtype_));
    if (!feedback.has_value()) return copy_bytes(src.bytes(), {}, own.bytes(), {}, stream);
    put_corrected(src, *feedback, own);
    return {};
  }

 private:
  Status check(ConstByteSpan wire, ConstTensorView dst) const {
    GW_TRY(check_tensor("none: dst", dst, dst.elems(), dtype_));
    return check_length("none", wire.size(), bytes(dst.elems(), 0));
  }
  DType dtype_;
};

// The payload is the gradient, its sum over ranks the sum of the gradients.
class IdentityCoder final : public PlacedCoder {
 public:
  IdentityCoder(std::unique_ptr<ExactFormat> exact, const Shape& shape,
                const Compressor::Placement& where)
      : PlacedCoder("none", shape.elems(), where.device, where.dtype),
        format_(std::move(exact)),
        size_(where.size) {}

  bool takes_feedback() const override { return true; }
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round("none", round, 1));
    if (feedback_.has_value()) {
      return format_->pack_with_feedback(grad_, *feedback_, {}, payload, stream);
    }
    return format_->pack(grad_, {}, payload, stream);
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round("none", round, 1));
    if (payloads.size() != 1) return {Code::kInvalidArgument, "none: expected one summed payload"};
    GW_TRY(check_length("none: sum", payloads[0].size(), format_->bytes(elems_, 0)));
    sum_ = payloads[0];
    return {};
  }
  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check("mean", mean));
    if (!own.empty()) {  // before mean, which may be the gradient's memory
      GW_TRY(format_->put_own(grad_, feedback_, own, stream));
    }
    GW_TRY(format_->unpack(sum_, {}, mean, stream));
    return size_ == 1 ? Status() : scale(mean, 1.0 / size_, stream);
  }

 private:
  std::unique_ptr<ExactFormat> format_;
  int size_;
  ConstByteSpan sum_;
};

class Identity final : public Compressor {
 public:
  std::string spec() const override { return "none"; }
  Traits traits() const override {
    return {.exchange = Exchange::kAllReduceSum,
            .payload_dtype = DType::kF32,
            .elementwise = true,
            .lossless = true,
            .unbiased = true,
            .needs_error_feedback = false,
            .bitwise_on_all_devices = true};
  }
  ErrorBound bound(const Shape&) const override { return {ErrorBound::Kind::kContraction, 1.0}; }
  std::size_t max_payload_bytes(const Shape& shape, DType dtype, int, int) const override {
    return static_cast<std::size_t>(shape.elems()) * size_of(dtype);
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    GW_ASSIGN(auto exact, open_exact(where));
    return std::unique_ptr<Coder>(std::make_unique<IdentityCoder>(std::move(exact), shape, where));
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&,
                                                  const Placement& where) const override {
    GW_ASSIGN(auto exact, open_exact(where));
    return std::unique_ptr<WireFormat>(std::move(exact));
  }

 private:
  static Result<std::unique_ptr<ExactFormat>> open_exact(const Placement& where) {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) return cuda::make_exact_format(where);
    }
    GW_TRY(check_placement("none", where));
    return std::unique_ptr<ExactFormat>(std::make_unique<IdentityFormat>(where.dtype));
  }
};

}  // namespace

Registry::Method identity_method() {
  return {"none", "every element as it is", "", {}, [](const Spec&) {
            return Result<std::unique_ptr<Compressor>>(std::make_unique<Identity>());
          }};
}

}  // namespace gradwire
