// cltk on a device.
#include <string>
#include <utility>

#include "base/text.h"
#include "compress/cltk/cltk_device.h"
#include "compress/contract.h"
#include "compress/cuda/placed_coder.h"
#include "compress/sparse/choice_on_device.h"
#include "compress/sparse/chosen_count.h"
#include "compress/sparse/pair_kernels.h"
#include "compress/sparse/pairs_on_device.h"
#include "compress/topk/topk_selection.h"
#include "device/ops.h"

namespace gradwire::cuda {
namespace {

constexpr int kCltkRounds = 2;

// Sets the bits of indices, which are checked meanwhile: ascending, below elems.
struct ChoiceBits {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const std::byte* indices;
  std::int64_t count;
  std::int64_t elems;
  bool in_words;
  std::uint32_t* bits;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t i = block.block() * kThreads + block.thread();
    if (i >= count) return;
    const std::int64_t before = i == 0 ? -1 : std::int64_t{PairWords::at(indices, i - 1, in_words)};
    const std::int64_t here = PairWords::at(indices, i, in_words);
    if (before >= here || here >= elems) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(i), kPairIndex));
      return;
    }
    block.add(&bits[here / 32], 1u << (here % 32));  // of indices that ascend no other adds it
  }
};

class CltkDeviceCoder final : public PlacedCoder {
 public:
  CltkDeviceCoder(const CltkChoice& choice, ChoiceOnDevice places, TopkSelection selection,
                  const Shape& shape, const Compressor::Placement& where, Verdict verdict)
      : PlacedCoder("cltk", shape.elems(), where.device, DType::kF32),
        choice_(choice),
        places_(std::move(places)),
        selection_(std::move(selection)),
        where_(where),
        verdict_(std::move(verdict)) {}

  bool takes_feedback() const override { return choice_.exact; }

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round("cltk", round, kCltkRounds));
    if (round == 1) {
      if (chosen_) return places_.encode(source_of(grad_, feedback_), step_, payload, stream);
      return Status(Code::kInvalidArgument, "cltk: encode(1) before absorb(0)");
    }
    if (where_.rank != leader() || choice_.k == 0) return std::size_t{0};
    const std::size_t count = choice_bytes();
    GW_TRY(check_room("cltk: payload", payload.size(), count));
    const OnDevice here(device_);
    GW_TRY(here.status());
    GW_ASSIGN(const Scratch values, Scratch::allocate(choice_.k * sizeof(float), stream));
    PairTarget to{};
    (choice_.coding == IndexCoding::kBitmap ? to.bitmap : to.indices) = payload.data();
    to.values = values.as<std::byte>();
    to.in_words = starts_at(to.indices, 4);
    Source source = source_of(grad_, feedback_);
    source.next = nullptr;  // what is left is known in round 1
    GW_TRY(selection_.select(source, to, stream));
    return count;
  }

  Status absorb(int round, std::span<const ConstByteSpan> payloads, const Stream& stream) override {
    GW_TRY(check_round("cltk", round, kCltkRounds));
    if (round == 1) return places_.absorb(payloads, stream);
    if (payloads.size() != static_cast<std::size_t>(where_.size)) {
      return {Code::kInvalidArgument,
              format("cltk: %zu payloads (%d ranks)", payloads.size(), where_.size)};
    }
    for (int rank = 0; rank < where_.size; ++rank) {
      const ConstByteSpan from = payloads[static_cast<std::size_t>(rank)];
      const Status status =
          rank == leader() ? read_choice(from, stream) : check_length("a choice", from.size(), 0);
      if (status.ok()) continue;
      return status.with_context(
          format("cltk: payload of rank %d (rank %d leads)", rank, leader()));
    }
    chosen_ = true;
    return {};
  }

  Status finish(TensorView mean, TensorView own, const Stream& stream) override {
    GW_TRY(check("mean", mean));
    if (!own.empty()) GW_TRY(check("own", own));
    return places_.finish(mean, own, stream);
  }

 private:
  void forget() override { chosen_ = false; }
  std::size_t choice_bytes() const {
    return choice_.k == 0
               ? 0
               : most_index_bytes(choice_.coding, choice_.k, static_cast<std::size_t>(elems_));
  }
  int leader() const { return static_cast<int>(step_ % static_cast<std::uint64_t>(where_.size)); }

  Status read_choice(ConstByteSpan payload, const Stream& stream) {
    GW_TRY(check_length("a choice", payload.size(), choice_bytes()));
    if (elems_ == 0) return {};
    const OnDevice here(device_);
    GW_TRY(here.status());
    GW_TRY(places_.clear(stream));
    GW_TRY(verdict_.clear(stream));
    if (choice_.coding == IndexCoding::kBitmap) {
      const ByteSpan bits(reinterpret_cast<std::byte*>(places_.bits()), payload.size());
      GW_TRY(copy_bytes(payload, device_, bits, device_, stream));
    } else {
      const auto k = static_cast<std::int64_t>(choice_.k);
      const ChoiceBits kernel{
          payload.data(), k, elems_, starts_at(payload.data(), 4), places_.bits(), verdict_.word()};
      GW_TRY(launch("cltk: places", kernel, blocks_for(k, ChoiceBits::kThreads), stream));
    }
    GW_TRY(places_.count(verdict_.word(), stream));
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind == 0) return {};
    return {Code::kCorruptPayload,
            format("its places do not ascend, exceed element %lld, or are not %zu in number",
                   static_cast<long long>(elems_ - 1), choice_.k)};
  }

  CltkChoice choice_;
  ChoiceOnDevice places_;
  TopkSelection selection_;
  Compressor::Placement where_;
  Verdict verdict_;
  bool chosen_ = false;  // the leader's places of this step are known
};

}  // namespace

Result<std::unique_ptr<Coder>> make_cltk_coder(const CltkChoice& choice,
                                               std::unique_ptr<Coder> inner, const Shape& shape,
                                               const Compressor::Placement& where) {
  GW_TRY(check_device_placement("cltk", where));
  GW_TRY(check_index_range("cltk", shape, kMostSparseElems - 1));
  GW_TRY(check_device_coding("cltk", choice.coding));
  const std::int64_t elems = shape.elems();
  GW_ASSIGN(auto places,
            ChoiceOnDevice::open("cltk", choice.k, elems, 1, std::move(inner), where.device));
  GW_ASSIGN(auto selection, TopkSelection::open("cltk", choice.k, elems, where.device));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  return std::unique_ptr<Coder>(std::make_unique<CltkDeviceCoder>(
      choice, std::move(places), std::move(selection), shape, where, std::move(verdict)));
}

}  // namespace gradwire::cuda
