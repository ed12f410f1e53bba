// Signs without scales: the wire format of the vote (and of scale=none), and the vote's coder.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/cuda/device_contract.h"
#include "compress/finite.h"
#include "compress/signsgd/sign_formats.h"
#include "compress/signsgd/signsgd_kernels.h"
#include "compress/simd/line_writer.h"

namespace gradwire {
namespace {

// Votes are counted in 16 bits.
constexpr int kMostVoters = (1 << 15) - 1;
constexpr std::size_t kBlock = 4096;

std::size_t divide_up(std::int64_t a, std::size_t b) {
  return (static_cast<std::size_t>(a) + b - 1) / b;
}

template <typename T>
class VoteFormat final : public VotingFormat {
 public:
  std::size_t bytes(std::int64_t elems, int stage) const override {
    return divide_up(elems, stage == 0 ? 8 : 4);
  }
  std::int64_t seam(int) const override { return 8; }

  Result<std::size_t> pack(ConstTensorView src, const Slice& slice, ByteSpan wire,
                           const Stream&) override {
    GW_TRY(check_tensor("signsgd: src", src, src.elems(), DTypeOf<T>::kValue));
    const std::size_t length = bytes(src.elems(), slice.stage);
    GW_TRY(check_room("signsgd: payload", wire.size(), length));
    if (src.empty()) return length;
    const auto values = elements<T>(src);
    for (std::size_t i = 0; i < values.size(); i += kBlock) {  // checked and packed from the cache
      const auto block = values.subspan(i, std::min(kBlock, values.size() - i));
      cpu::SumLanes lanes{};  // finite if the block is, but for sums of fp64 beyond its range
      if (slice.stage == 0) {
        cpu::sum_and_pack(Corrected<T>(block), lanes, wire.data() + i / 8);
      } else {
        cpu::pack_votes(block, wire.data() + i / 4);
      }
      const bool finite = slice.stage == 0 && std::isfinite(cpu::total(lanes));
      if (!finite && !all_finite(block)) return not_finite(values);
    }
    return length;
  }

  Status unpack(ConstByteSpan wire, const Slice& slice, TensorView dst, const Stream&) override {
    return decode(wire, slice.stage, false, dst);
  }
  Status unpack_add(ConstByteSpan wire, const Slice& slice, TensorView acc,
                    const Stream&) override {
    return decode(wire, slice.stage, true, acc);
  }

  Status check_signs(ConstByteSpan payload, std::int64_t elems) const override {
    if (elems == 0 || cpu::unused_bits_clear(payload.back(), static_cast<std::size_t>(elems), 1)) {
      return {};
    }
    return {Code::kCorruptPayload, "unused bits of the last byte are set"};
  }
  Status count(std::span<const ConstByteSpan> payloads, TensorView mean, const Stream&) override {
    if (!mean.empty()) cpu::count_votes<T>(payloads, elements<T>(mean));
    return {};
  }

 private:
  static Status not_finite(std::span<const T> values) {
    std::size_t i = 0;
    while (std::isfinite(values[i])) ++i;
    return {Code::kInvalidArgument,
            format("signsgd: element %zu of the slice is %g (expected a finite number)", i,
                   static_cast<double>(values[i]))};
  }

  Status decode(ConstByteSpan wire, int stage, bool add, TensorView dst) const {
    GW_TRY(check_tensor("signsgd: dst", dst, dst.elems(), DTypeOf<T>::kValue));
    GW_TRY(check_length("signsgd", wire.size(), bytes(dst.elems(), stage)));
    if (dst.empty()) return {};
    const auto values = elements<T>(dst);
    if (!cpu::unused_bits_clear(wire.back(), values.size(), stage == 0 ? 1 : 2)) {
      return {Code::kCorruptPayload, "signsgd: unused bits of the last byte are set"};
    }
    if (stage == 0 && !add) {
      cpu::LineWriter to(reinterpret_cast<std::byte*>(values.data()), values.size_bytes());
      constexpr std::size_t kRun = cpu::LineWriter::kRoom / sizeof(T);
      for (std::size_t i = 0; i < values.size(); i += kRun) {
        const std::span<T> run(reinterpret_cast<T*>(to.room()), std::min(kRun, values.size() - i));
        cpu::unpack_signs(wire.data(), i, T{1}, false, run);
        to.commit(run.size_bytes());
      }
      to.finish();
    } else if (stage == 0) {
      cpu::unpack_signs(wire.data(), 0, T{1}, true, values);
    } else if (!cpu::unpack_votes(wire.data(), add, values)) {
      return {Code::kCorruptPayload,
              "signsgd: a vote of 3 (expected 0 for a tie, 1 for plus or 2 for minus)"};
    }
    return {};
  }
};

class VoteCoder final : public Coder {
 public:
  VoteCoder(std::unique_ptr<VotingFormat> votes, const Shape& shape,
            const Compressor::Placement& where)
      : format_(std::move(votes)), elems_(shape.elems()), where_(where) {}

  Status begin(ConstTensorView grad, std::uint64_t step, const Stream&) override {
    GW_TRY(check_tensor_on(where_.device, "signsgd: grad", grad, elems_, where_.dtype));
    grad_ = grad;
    step_ = step;
    payloads_.clear();
    return {};
  }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round("signsgd", round, 1));
    return format_->pack(grad_, slice(), payload, stream);
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round("signsgd", round, 1));
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              format("signsgd: %zu payloads (%d ranks)", payloads.size(), where_.size)};
    }
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      const std::string who = format("signsgd: payload of rank %zu", r);
      GW_TRY(check_length(who, payloads[r].size(), format_->bytes(elems_, 0)));
      const Status sound = format_->check_signs(payloads[r], elems_);
      if (!sound.ok()) return sound.with_context(who);
    }
    payloads_.assign(payloads.begin(), payloads.end());
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check_tensor_on(where_.device, "signsgd: mean", mean, elems_, where_.dtype));
    if (payloads_.empty()) return {Code::kInvalidArgument, "signsgd: finish() before absorb()"};
    if (!own.empty()) {
      GW_TRY(
          format_->unpack(payloads_[static_cast<std::size_t>(where_.rank)], slice(), own, stream));
    }
    return format_->count(payloads_, mean, stream);
  }

  std::vector<NamedTensor> state() override { return {}; }

 private:
  Slice slice() const { return {step_, where_.tensor, where_.rank, 0, 0}; }

  std::unique_ptr<VotingFormat> format_;
  std::int64_t elems_;
  Compressor::Placement where_;
  ConstTensorView grad_;
  std::uint64_t step_ = 0;
  std::vector<ConstByteSpan> payloads_;
};

}  // namespace

std::unique_ptr<VotingFormat> make_vote_format(DType dtype) {
  if (dtype == DType::kF64) return std::make_unique<VoteFormat<double>>();
  return std::make_unique<VoteFormat<float>>();
}

Result<std::unique_ptr<Coder>> make_vote_coder(std::unique_ptr<VotingFormat> votes,
                                               const Shape& shape,
                                               const Compressor::Placement& where) {
  if (where.size > kMostVoters) {
    return Status(Code::kUnsupported,
                  format("signsgd: a vote of %d ranks (at most %d)", where.size, kMostVoters));
  }
  return std::unique_ptr<Coder>(std::make_unique<VoteCoder>(std::move(votes), shape, where));
}

}  // namespace gradwire
