// Elements from a magnitude on, on a device: a pass counts those of each tile, the host hears how
// many there are, and a second pass writes them.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"
#include "compress/sparse/select_kernels.h"
#include "device/cuda/memory.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire::cuda {

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

// Of one tensor of kF32; a count and then a write of the same source. Not thread-safe.
class ThresholdSelection {
 public:
  // `method` names errors.
  static Result<ThresholdSelection> open(std::string method, std::int64_t elems, Device device) {
    GW_ASSIGN(Verdict verdict, Verdict::open(device));
    GW_ASSIGN(Buffer count, Buffer::allocate(sizeof(std::uint32_t), {MemorySpace::kPinnedHost, 0}));
    return Result<ThresholdSelection>(
        ThresholdSelection(std::move(method), elems, device, std::move(verdict), std::move(count)));
  }

  // Of memory that count() fills and write() reads.
  std::size_t room() const {
    return sizeof(SelectState) + 2 * static_cast<std::size_t>(tiles()) * sizeof(std::uint32_t);
  }

  // How many elements' keys are at least `low` > 0. Waits for the stream.
  Result<std::size_t> count(const Source& source, std::uint32_t low, const Scratch& scratch,
                            const Stream& stream) {
    if (elems_ == 0) return std::size_t{0};
    auto* const state = scratch.as<SelectState>();
    std::uint32_t* const ties = above(scratch) + tiles();
    GW_TRY(verdict_.clear(stream));
    GW_TRY(launch("threshold: cut", ThresholdCut{low, state}, 1, stream));
    const SelectCounts<WholeItems> counts{{source}, 0, tiles(), state, above(scratch), ties};
    GW_TRY(launch("threshold: counts", counts, blocks(), stream));
    const SelectOffsets<WholeItems> offsets{{source},       tiles(), state,
                                            above(scratch), ties,    verdict_.word()};
    GW_TRY(launch("threshold: offsets", offsets, 1, stream));
    const ConstByteSpan pairs(reinterpret_cast<const std::byte*>(&state->pairs),
                              sizeof(std::uint32_t));
    GW_TRY(copy_bytes(pairs, device_, count_.bytes().first(sizeof(std::uint32_t)), count_.device(),
                      stream));
    GW_TRY(synchronize({device_, stream.native}));
    return std::size_t{load_word(count_.bytes().data(), 0)};
  }

  // Enqueues their pairs, and what error feedback keeps; waits for the stream, if it keeps
  // something, to hear whether all chosen elements are finite.
  Status write(const Source& source, const Scratch& scratch, const PairTarget& to,
               const Stream& stream) {
    std::uint32_t* const ties = above(scratch) + tiles();
    const SelectPairs<WholeItems> kernel{{source},       tiles(), elems_, scratch.as<SelectState>(),
                                         above(scratch), ties,    to,     verdict_.word()};
    GW_TRY(launch("threshold: pairs", kernel, blocks(), stream));
    if (source.next == nullptr) return {};
    GW_ASSIGN(const Finding finding, verdict_.read(stream));
    if (finding.kind == 0) return {};
    return Status(Code::kInvalidArgument,
                  format("element %llu of gradient + residual is not finite",
                         static_cast<unsigned long long>(finding.place)))
        .with_context(method_);
  }

 private:
  ThresholdSelection(std::string method, std::int64_t elems, Device device, Verdict verdict,
                     Buffer count)
      : method_(std::move(method)),
        elems_(elems),
        device_(device),
        verdict_(std::move(verdict)),
        count_(std::move(count)) {}

  std::int64_t tiles() const { return blocks_for(elems_, kSelectTile); }
  std::int64_t blocks() const { return std::min(tiles(), kMostBlocks); }
  std::uint32_t* above(const Scratch& scratch) const {
    return scratch.as<std::uint32_t>(sizeof(SelectState));
  }

  std::string method_;
  std::int64_t elems_;
  Device device_;
  Verdict verdict_;
  Buffer count_;  // pinned
};

}  // namespace gradwire::cuda
