// Signs without scales that mark blocks of zeros: the wire format of zeros=1.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "compress/contract.h"
#include "compress/finite.h"
#include "compress/signsgd/sign_formats.h"
#include "compress/signsgd/signsgd_kernels.h"
#include "compress/signum/signum_kernels.h"

namespace gradwire {
namespace {

template <typename T>
class ZeroSignFormat final : public WireFormat {
 public:
  explicit ZeroSignFormat(std::unique_ptr<WireFormat> votes) : votes_(std::move(votes)) {}

  std::size_t bytes(std::int64_t elems, int stage) const override {
    return stage == 0 ? signum_bytes(static_cast<std::size_t>(elems)) : votes_->bytes(elems, stage);
  }

  // Whole bytes of blocks' bits.
  std::int64_t seam(int stage) const override {
    return stage == 0 ? std::int64_t{8} * kSignumBlock : votes_->seam(stage);
  }
  std::vector<std::size_t> sections(std::int64_t elems, int stage) const override {
    if (stage != 0) return votes_->sections(elems, stage);
    const std::size_t zeros = signum_zero_bytes(static_cast<std::size_t>(elems));
    return {zeros, bytes(elems, 0) - zeros};
  }

  Result<std::size_t> pack(ConstTensorView src, const Slice& slice, ByteSpan wire,
                           const Stream& stream) override {
    if (slice.stage != 0) return votes_->pack(src, slice, wire, stream);
    GW_TRY(check_tensor("signsgd: src", src, src.elems(), DTypeOf<T>::kValue));
    const std::size_t length = bytes(src.elems(), 0);
    GW_TRY(check_room("signsgd: payload", wire.size(), length));
    if (src.empty()) return length;
    const auto values = elements<T>(src);
    if (!all_finite(values)) GW_TRY(name_not_finite("signsgd", values));
    cpu::signum_encode(values, wire.first(length));
    return length;
  }

  Status unpack(ConstByteSpan wire, const Slice& slice, TensorView dst,
                const Stream& stream) override {
    if (slice.stage != 0) return votes_->unpack(wire, slice, dst, stream);
    GW_TRY(check(wire, dst));
    if (!dst.empty()) cpu::signum_decode(wire, false, elements<T>(dst));
    return {};
  }
  Status unpack_add(ConstByteSpan wire, const Slice& slice, TensorView acc,
                    const Stream& stream) override {
    if (slice.stage != 0) return votes_->unpack_add(wire, slice, acc, stream);
    GW_TRY(check(wire, acc));
    if (!acc.empty()) cpu::signum_decode(wire, true, elements<T>(acc));
    return {};
  }

 private:
  Status check(ConstByteSpan wire, TensorView dst) const {
    GW_TRY(check_tensor("signsgd: dst", dst, dst.elems(), DTypeOf<T>::kValue));
    GW_TRY(check_length("signsgd", wire.size(), bytes(dst.elems(), 0)));
    if (dst.empty()) return {};
    const Status status = cpu::check_signum(wire, static_cast<std::size_t>(dst.elems()));
    return status.ok() ? status : status.with_context("signsgd");
  }

  std::unique_ptr<WireFormat> votes_;  // of the second stage
};

}  // namespace

std::unique_ptr<WireFormat> make_zero_sign_format(DType dtype) {
  auto votes = make_vote_format(dtype);
  if (dtype == DType::kF64) return std::make_unique<ZeroSignFormat<double>>(std::move(votes));
  return std::make_unique<ZeroSignFormat<float>>(std::move(votes));
}

}  // namespace gradwire
