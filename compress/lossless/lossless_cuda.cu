// lossless on a device.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "compress/contract.h"
#include "compress/cuda/placed_coder.h"
#include "compress/lossless/lossless_device.h"
#include "compress/lossless/lossless_kernels.h"
#include "compress/lossless/lossless_read_kernels.h"
#include "device/cuda/memory.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire::cuda {
namespace {

class LosslessDeviceCoder final : public PlacedCoder {
 public:
  LosslessDeviceCoder(const Shape& shape, const Compressor::Placement& where, Buffer end,
                      Verdict verdict)
      : PlacedCoder("lossless", shape.elems(), where.device, DType::kF32),
        blocks_(blocks_for(shape.elems(), kLosslessElems)),
        where_(where),
        end_(std::move(end)),
        verdict_(std::move(verdict)) {}

  bool takes_feedback() const override { return true; }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round(method_, round, 1));
    GW_TRY(check_room(method_ + ": payload", payload.size(), most_bytes()));
    if (elems_ == 0) return std::size_t{0};
    const OnDevice here(device_);
    GW_TRY(here.status());
    const Source source = source_of(grad_, feedback_);
    const bool packed =
        starts_at(source.grad, 16) && starts_at(source.residual, 16) && starts_at(source.next, 16);
    const std::size_t room = static_cast<std::size_t>(blocks_ + 1) * sizeof(std::uint32_t);
    GW_ASSIGN(const Scratch scratch, Scratch::allocate(room, stream));
    auto* const places = scratch.as<std::uint32_t>();
    const std::int64_t launched = blocks_for(blocks_, LosslessLengths::kWarps);
    GW_TRY(verdict_.clear(stream));
    GW_TRY(launch("lossless: lengths", LosslessLengths{source, packed, places}, launched, stream));
    GW_TRY(launch("lossless: places", LosslessPlaces{blocks_, places}, 1, stream));
    const ConstByteSpan end(reinterpret_cast<const std::byte*>(places + blocks_), 4);
    GW_TRY(copy_bytes(end, device_, end_.bytes().first(4), end_.device(), stream));
    const LosslessWrite write{source, packed, places, payload.data(), verdict_.word()};
    GW_TRY(launch("lossless: encode", write, launched, stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind != 0) {
      return Status(Code::kInvalidArgument,
                    method_ + format(": element %llu of gradient + residual is not finite",
                                     static_cast<unsigned long long>(finding.place)));
    }
    return std::size_t{load_word(end_.bytes().data(), 0)};
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream&) override {
    GW_TRY(check_round(method_, round, 1));
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              method_ + format(": %zu payloads (%d ranks)", payloads.size(), where_.size)};
    }
    for (std::size_t r = 0; r < payloads.size(); ++r) {
      if (payloads[r].size() <= most_bytes()) continue;
      return {Code::kCorruptPayload,
              method_ + format(": payload of rank %zu has %zu bytes (expected at most %zu)", r,
                               payloads[r].size(), most_bytes())};
    }
    payloads_.assign(payloads.begin(), payloads.end());
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check("mean", mean));
    if (payloads_.empty()) return {Code::kInvalidArgument, method_ + ": finish() before absorb()"};
    if (!own.empty()) GW_TRY(check("own", own));
    if (elems_ == 0) return {};
    const OnDevice here(device_);
    GW_TRY(here.status());
    const auto ranks = payloads_.size();
    const std::size_t each = static_cast<std::size_t>(blocks_) * sizeof(std::uint32_t);
    GW_ASSIGN(const Scratch scratch, Scratch::allocate(ranks * (each + 4), stream));
    auto* const sound = scratch.as<std::uint32_t>();
    auto* const places = sound + ranks;
    GW_CUDA(cudaMemsetAsync(sound, 0, ranks * 4, native(stream)));
    GW_TRY(verdict_.clear(stream));
    GW_TRY(walk(places, sound, stream));
    if (!own.empty()) GW_TRY(decode(where_.rank, places, sound, own, false, stream));
    for (int rank = 0; rank < where_.size; ++rank) {
      GW_TRY(decode(rank, places, sound, mean, rank > 0, stream));
    }
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind != 0) return corrupt(finding);
    return where_.size == 1 ? Status() : scale(mean, 1.0 / where_.size, stream);
  }

 private:
  void forget() override { payloads_.clear(); }
  std::size_t most_bytes() const {
    return lossless_most_bytes(static_cast<std::size_t>(elems_), sizeof(float));
  }

  Status walk(std::uint32_t* places, std::uint32_t* sound, const Stream& stream) const {
    const std::span<const ConstByteSpan> all(payloads_);
    constexpr std::size_t kMost = LosslessWalk::kMostPayloads;
    for (std::size_t first = 0; first < all.size(); first += kMost) {
      const auto some = all.subspan(first, std::min(kMost, all.size() - first));
      LosslessWalk kernel{.payloads = {},
                          .lengths = {},
                          .first = static_cast<int>(first),
                          .elems = elems_,
                          .blocks = blocks_,
                          .places = places,
                          .sound = sound,
                          .verdict = verdict_.word()};
      for (std::size_t r = 0; r < some.size(); ++r) {
        kernel.payloads[r] = some[r].data();
        kernel.lengths[r] = static_cast<std::int64_t>(some[r].size());
      }
      GW_TRY(launch("lossless: walk", kernel, static_cast<std::int64_t>(some.size()), stream));
    }
    return {};
  }

  Status decode(int rank, const std::uint32_t* places, const std::uint32_t* sound, TensorView into,
                bool add, const Stream& stream) const {
    const LosslessValues kernel{payloads_[static_cast<std::size_t>(rank)].data(),
                                places + rank * blocks_,
                                sound,
                                rank,
                                add,
                                starts_at(into.data(), 16),
                                elements<float>(into).data(),
                                elems_,
                                verdict_.word()};
    return launch("lossless: decode", kernel, blocks_for(blocks_, LosslessValues::kWarps), stream);
  }

  Status corrupt(Finding finding) const {
    const char* const what =
        finding.kind == kLosslessShort     ? "ends early, or bytes follow the last block"
        : finding.kind == kLosslessHeadBad ? "has a head that belongs to no block"
                                           : "has codes that belong to no exponents";
    return {Code::kCorruptPayload,
            method_ + format(": payload of rank %llu: block %llu %s",
                             static_cast<unsigned long long>(finding.place >> 32),
                             static_cast<unsigned long long>(finding.place & 0xffffffffu), what)};
  }

  std::int64_t blocks_;
  Compressor::Placement where_;
  Buffer end_;  // pinned
  Verdict verdict_;
  std::vector<ConstByteSpan> payloads_;
};

}  // namespace

Result<std::unique_ptr<Coder>> make_lossless_coder(const Shape& shape,
                                                   const Compressor::Placement& where) {
  GW_TRY(check_device_placement("lossless", where));
  const std::size_t most =
      lossless_most_bytes(static_cast<std::size_t>(shape.elems()), sizeof(float));
  if (most > 0xffffffffu) {
    return Status(Code::kUnsupported, format("lossless: payloads of up to %zu bytes on a CUDA "
                                             "device (expected fewer than 2^32 there)",
                                             most));
  }
  GW_ASSIGN(Buffer end, Buffer::allocate(sizeof(std::uint32_t), {MemorySpace::kPinnedHost, 0}));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  return std::unique_ptr<Coder>(
      std::make_unique<LosslessDeviceCoder>(shape, where, std::move(end), std::move(verdict)));
}

}  // namespace gradwire::cuda
