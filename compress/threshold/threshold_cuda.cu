// threshold on a device. A pass counts the chosen elements of each tile, the host hears how many
// there are, and a second pass writes them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "compress/sparse/chosen_count.h"
#include "compress/sparse/pair_device_coder.h"
#include "compress/threshold/threshold_device.h"
#include "device/ops.h"

namespace gradwire::cuda {
namespace {

// The cut is known beforehand.
struct ThresholdCut {
  static constexpr unsigned kThreads = 32;
  using Shared = NothingShared;

  std::uint32_t low;
  SelectState* state;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    if (block.thread() == 0) state->cut[kSelectLevels - 1] = {low - 1, 0};
  }
};

class ThresholdDeviceCoder final : public PairDeviceCoder {
 public:
  ThresholdDeviceCoder(std::uint32_t low, std::int64_t elems, Device device, PairsOnDevice payloads,
                       Verdict verdict, Buffer count)
      : PairDeviceCoder("threshold", elems, device, std::move(payloads)),
        low_(low),
        verdict_(std::move(verdict)),
        count_(std::move(count)) {}

  Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) override {
    GW_TRY(check_round(method_, round, 1));
    GW_TRY(check_room(method_ + ": payload", payload.size(), payloads_.bytes(0)));
    const OnDevice here(device_);
    GW_TRY(here.status());
    const auto tiles = static_cast<std::size_t>(blocks_for(elems_, kSelectTile));
    GW_ASSIGN(const Scratch scratch,
              Scratch::allocate(sizeof(SelectState) + 2 * tiles * sizeof(std::uint32_t), stream));
    std::size_t pairs = 0;
    if (elems_ > 0) {
      GW_ASSIGN(pairs, count(scratch, stream));
    }
    GW_TRY(check_room(method_ + ": payload", payload.size(), payloads_.bytes(pairs)));
    GW_ASSIGN(const Scratch values, Scratch::allocate(payloads_.value_room(pairs), stream));
    if (pairs > 0 || source().next != nullptr) {
      GW_TRY(write(scratch, payloads_.target(pairs, payload, values), stream));
    }
    GW_TRY(payloads_.complete(pairs, values, step_, payload, stream));
    return payloads_.bytes(pairs);
  }

 private:
  std::int64_t tiles() const { return blocks_for(elems_, kSelectTile); }
  std::int64_t blocks() const { return std::min(tiles(), kMostBlocks); }
  std::uint32_t* above(const Scratch& scratch) const {
    return scratch.as<std::uint32_t>(sizeof(SelectState));
  }

  Result<std::size_t> count(const Scratch& scratch, const Stream& stream) {
    auto* const state = scratch.as<SelectState>();
    std::uint32_t* const ties = above(scratch) + tiles();
    GW_TRY(verdict_.clear(stream));
    GW_TRY(launch("threshold: cut", ThresholdCut{low_, state}, 1, stream));
    const SelectCounts<WholeItems> counts{{source()}, 0, tiles(), state, above(scratch), ties};
    GW_TRY(launch("threshold: counts", counts, blocks(), stream));
    const SelectOffsets<WholeItems> offsets{{source()},     tiles(), state,
                                            above(scratch), ties,    verdict_.word()};
    GW_TRY(launch("threshold: offsets", offsets, 1, stream));
    const ConstByteSpan pairs(reinterpret_cast<const std::byte*>(&state->pairs),
                              sizeof(std::uint32_t));
    GW_TRY(copy_bytes(pairs, device_, count_.bytes().first(sizeof(std::uint32_t)), count_.device(),
                      stream));
    GW_TRY(synchronize({device_, stream.native}));
    return std::size_t{load_word(count_.bytes().data(), 0)};
  }

  Status write(const Scratch& scratch, const PairTarget& to, const Stream& stream) {
    std::uint32_t* const ties = above(scratch) + tiles();
    const SelectPairs<WholeItems> kernel{{source()},     tiles(), elems_, scratch.as<SelectState>(),
                                         above(scratch), ties,    to,     verdict_.word()};
    GW_TRY(launch("threshold: pairs", kernel, blocks(), stream));
    if (source().next == nullptr) return {};
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind == 0) return {};
    return {Code::kInvalidArgument,
            format("threshold: element %llu of gradient + residual is not finite",
                   static_cast<unsigned long long>(finding.place))};
  }

  std::uint32_t low_;
  Verdict verdict_;
  Buffer count_;  // pinned
};

}  // namespace

Result<std::unique_ptr<Coder>> make_threshold_coder(const SparseOptions& options, std::uint32_t low,
                                                    const Shape& shape,
                                                    const Compressor::Placement& where) {
  GW_TRY(check_device_placement("threshold", where));
  GW_TRY(check_index_range("threshold", shape, kMostSparseElems - 1));
  const auto most = static_cast<std::size_t>(shape.elems());
  GW_ASSIGN(auto payloads,
            PairsOnDevice::open("threshold", options, most, true, shape.elems(), where));
  GW_ASSIGN(Verdict verdict, Verdict::open(where.device));
  GW_ASSIGN(Buffer count, Buffer::allocate(sizeof(std::uint32_t), {MemorySpace::kPinnedHost, 0}));
  return std::unique_ptr<Coder>(std::make_unique<ThresholdDeviceCoder>(
      low, shape.elems(), where.device, std::move(payloads), std::move(verdict), std::move(count)));
}

}  // namespace gradwire::cuda
