#include "compress/cast/cast.h"

#include <optional>
#include <utility>

#include "compress/block_feedback.h"
#include "compress/cast/cast_device.h"
#include "compress/cast/cast_format.h"
#include "compress/cast/cast_kernels.h"
#include "compress/contract.h"
#include "compress/cuda/placed_coder.h"
#include "compress/spec_reader.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

constexpr std::size_t kHalfBytes = 2;

class CastFormat final : public HalfFormat {
 public:
  CastFormat(HalfType type, const Compressor::Placement& where)
      : type_(type), dtype_(where.dtype), size_(where.size) {}

  std::size_t bytes(std::int64_t elems, int) const override {
    return static_cast<std::size_t>(elems) * kHalfBytes;
  }
  std::int64_t seam(int) const override { return 1; }
  Result<std::size_t> pack(ConstTensorView src, const Slice& slice, ByteSpan wire,
                           const Stream&) override {
    GW_TRY(check_tensor("cast: src", src, src.elems(), dtype_));
    const std::size_t count = bytes(src.elems(), slice.stage);
    GW_TRY(check_room("cast: payload", wire.size(), count));
    cpu::to_half(type_, src, 1.0 / divisor(slice.stage), wire.first(count));
    return count;
  }
  Status unpack(ConstByteSpan wire, const Slice& slice, TensorView dst, const Stream&) override {
    GW_TRY(check(wire, dst));
    cpu::from_half(type_, wire, divisor(slice.stage), dst);
    return {};
  }
  Status unpack_add(ConstByteSpan wire, const Slice& slice, TensorView acc,
                    const Stream&) override {
    GW_TRY(check(wire, acc));
    cpu::add_half(type_, wire, divisor(slice.stage), acc);
    return {};
  }
  bool takes_feedback() const override { return true; }
  Result<std::size_t> pack_with_feedback(ConstTensorView src, const Feedback& feedback,
                                         const Slice& slice, ByteSpan wire,
                                         const Stream& stream) override {
    return pack_in_blocks("cast", *this, dtype_, src, feedback, slice, wire, stream);
  }
  Status put_own(ConstTensorView src, const std::optional<Feedback>& feedback, int stage,
                 TensorView own, const Stream&) override {
    GW_TRY(check_tensor("cast: own", own, src.elems(), dtype_));
    ConstTensorView sent = src;
    if (feedback.has_value()) {
      put_corrected(src, *feedback, own);
      sent = own;
    }
    cpu::through_half(type_, sent, 1.0 / divisor(stage), divisor(stage), own);
    return {};
  }
  Status put_mean(ConstByteSpan sum, int stage, TensorView mean, const Stream&) override {
    GW_TRY(check(sum, mean));
    cpu::from_half(type_, sum, divisor(stage) / size_, mean);
    return {};
  }

 private:
  Status check(ConstByteSpan wire, ConstTensorView dst) const {
    GW_TRY(check_tensor("cast: dst", dst, dst.elems(), dtype_));
    return check_length("cast", wire.size(), bytes(dst.elems(), 0));
  }
  double divisor(int stage) const { return half_divisor(type_, size_, stage); }

  HalfType type_;
  DType dtype_;
  int size_;
};

// Payloads are added in their own type, in the network, and so divided like what holds sums.
class CastCoder final : public PlacedCoder {
 public:
  CastCoder(std::unique_ptr<HalfFormat> half, const Shape& shape,
            const Compressor::Placement& where)
      : PlacedCoder("cast", shape.elems(), where.device, where.dtype), format_(std::move(half)) {}

  bool takes_feedback() const override { return true; }
  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round("cast", round, 1));
    if (feedback_.has_value()) {
      return format_->pack_with_feedback(grad_, *feedback_, kSlice, payload, stream);
    }
    return format_->pack(grad_, kSlice, payload, stream);
  }
  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round("cast", round, 1));
    if (payloads.size() != 1) return {Code::kInvalidArgument, "cast: expected one summed payload"};
    GW_TRY(check_length("cast: sum", payloads[0].size(), format_->bytes(elems_, kSlice.stage)));
    sum_ = payloads[0];
    return {};
  }
  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check("mean", mean));
    if (!own.empty()) {  // before mean, which may be the gradient's memory
      GW_TRY(format_->put_own(grad_, feedback_, kSlice.stage, own, stream));
    }
    return format_->put_mean(sum_, kSlice.stage, mean, stream);
  }

 private:
  static constexpr Slice kSlice{.stage = 1};

  std::unique_ptr<HalfFormat> format_;
  ConstByteSpan sum_;
};

class Cast final : public Compressor {
 public:
  explicit Cast(HalfType type) : type_(type) {}

  std::string spec() const override {
    return type_ == HalfType::kFp16 ? "cast:type=fp16" : "cast:type=bf16";
  }
  Traits traits() const override {
    return {.exchange = Exchange::kAllReduceSum,
            .payload_dtype = type_ == HalfType::kFp16 ? DType::kF16 : DType::kBF16,
            .elementwise = true,
            .needs_error_feedback = false,
            .bitwise_on_all_devices = true};
  }
  // Rounding to nearest errs by at most u = 2^-8 (bf16) or 2^-11 (fp16) of each value, squared; the
  // factor 2 for fp16 covers the product with 1/size.
  ErrorBound bound(const Shape&) const override {
    return {ErrorBound::Kind::kContraction, type_ == HalfType::kFp16 ? 1 - 0x1p-21 : 1 - 0x1p-16};
  }
  std::size_t max_payload_bytes(const Shape& shape, DType, int, int) const override {
    return static_cast<std::size_t>(shape.elems()) * kHalfBytes;
  }
  Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const override {
    GW_ASSIGN(auto half, open_half(where));
    return std::unique_ptr<Coder>(std::make_unique<CastCoder>(std::move(half), shape, where));
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&,
                                                  const Placement& where) const override {
    GW_ASSIGN(auto half, open_half(where));
    return std::unique_ptr<WireFormat>(std::move(half));
  }

 private:
  Result<std::unique_ptr<HalfFormat>> open_half(const Placement& where) const {
    if constexpr (kHaveCuda) {
      if (where.device.space == MemorySpace::kCuda) return cuda::make_half_format(type_, where);
    }
    GW_TRY(check_placement("cast", where));
    return std::unique_ptr<HalfFormat>(std::make_unique<CastFormat>(type_, where));
  }

  HalfType type_;
};

Result<std::unique_ptr<Compressor>> make_cast(const Spec& spec) {
  const SpecReader reader(spec);
  if (!reader.has("type")) {
    return Status(Code::kInvalidArgument,
                  "compressor 'cast': key 'type' is missing (expected one of fp16, bf16)");
  }
  const Result<std::string> type = reader.choice("type", "bf16", {"fp16", "bf16"});
  if (!type.has_value()) return type.error();
  return std::unique_ptr<Compressor>(
      std::make_unique<Cast>(type.value() == "fp16" ? HalfType::kFp16 : HalfType::kBf16));
}

}  // namespace

Registry::Method cast_method() {
  return {"cast",
          "every element rounded to 16 bits and summed in 16 bits",
          "type",
          {{"type", "", "fp16 or bf16"}},
          make_cast};
}

}  // namespace gradwire
