// The k largest of a tensor on a device: through candidates, or over all elements.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/text.h"
#include "compress/topk/topk_candidates.h"
#include "compress/topk/topk_device.h"
#include "device/cuda/memory.h"

namespace gradwire::cuda {

inline constexpr double kTopkSigmas = 4;  // how far the bound stands below the sample's estimate
inline constexpr std::int64_t kTopkTallyBlocks = 1024;
inline constexpr std::int64_t kTopkTileBlocks = 2048;

// How a sample is used for k of so many elements.
struct TopkPlan {
  std::uint32_t rank = 0;  // of the bound among the samples; 0: there is no use for one
  std::uint32_t room = 0;  // for candidates

  static TopkPlan of(std::size_t k, std::int64_t elems) {
    constexpr auto kSamples = static_cast<double>(TopkSample::kSamples);
    if (elems < 4 * TopkSample::kSamples) return {};
    const double share = kSamples / static_cast<double>(elems);
    const double rank = static_cast<double>(k) * share;
    const double margin = kTopkSigmas * std::sqrt(rank) + 1;
    if (rank + margin + 1 >= kSamples / 2) return {};
    const auto bound = static_cast<std::uint32_t>(rank + margin) + 1;
    // So many samples' worth of elements may lie above the bound-th: seldom more, for few too.
    const double above = bound + 5 * std::sqrt(bound) + 5;
    const double most = std::min(std::ceil(above / share), static_cast<double>(elems));
    return {bound, static_cast<std::uint32_t>(most)};
  }
};

// Memory of one selection.
struct TopkRoom {
  std::size_t tiles;
  std::size_t candidates;
  std::size_t bytes() const {
    return sizeof(SelectState) + (4 * tiles + 2 * candidates) * sizeof(std::uint32_t);
  }
  // The words behind the state, `skip` of them left out.
  static std::uint32_t* words(const Scratch& scratch, std::size_t skip) {
    return scratch.as<std::uint32_t>(sizeof(SelectState)) + skip;
  }
};

class TopkSelection {
 public:
  // Of k <= elems elements; `method` names errors.
  static Result<TopkSelection> open(std::string method, std::size_t k, std::int64_t elems,
                                    Device device, TopkWay way = TopkWay::kSampled) {
    GW_ASSIGN(Verdict verdict, Verdict::open(device));
    return Result<TopkSelection>(
        TopkSelection(std::move(method), k, elems, std::move(verdict), way));
  }

  // Enqueues the pairs of the k largest of `source`, and what error feedback keeps. Waits for the
  // stream where a sample was used (to hear whether it misled), and where error feedback wants to
  // know that all is finite.
  Status select(const Source& source, const PairTarget& to, const Stream& stream) {
    const TopkRoom room{static_cast<std::size_t>(tiles()), plan_.room};
    GW_ASSIGN(const Scratch scratch, Scratch::allocate(room.bytes(), stream));
    Finding finding{.kind = kSelectMisled};
    if (plan_.rank > 0) {
      GW_TRY(through_candidates(source, scratch, to, stream));
      GW_ASSIGN(finding, verdict_.read(stream));
    }
    if (finding.kind == kSelectMisled) {
      GW_TRY(clear(scratch, stream));
      GW_TRY(choose(WholeItems{source}, tiles(), scratch, to, stream));
      if (source.next == nullptr) return {};
      GW_ASSIGN(finding, verdict_.read(stream));
    }
    if (finding.kind != kSelectNotFinite || source.next == nullptr) return {};
    return {Code::kInvalidArgument,
            method_ + format(": element %llu of gradient + residual is not finite",
                             static_cast<unsigned long long>(finding.place))};
  }

 private:
  TopkSelection(std::string method, std::size_t k, std::int64_t elems, Verdict verdict, TopkWay way)
      : method_(std::move(method)),
        k_(static_cast<std::uint32_t>(k)),
        elems_(elems),
        verdict_(std::move(verdict)),
        plan_(way == TopkWay::kSampled ? TopkPlan::of(k, elems) : TopkPlan{}) {}

  std::int64_t tiles() const { return blocks_for(elems_, kSelectTile); }

  Status clear(const Scratch& scratch, const Stream& stream) {
    GW_TRY(verdict_.clear(stream));
    return status_of(
        cudaMemsetAsync(scratch.as<std::byte>(), 0, sizeof(SelectState), native(stream)),
        "topk: clear");
  }

  Status through_candidates(const Source& from, const Scratch& scratch, const PairTarget& to,
                            const Stream& stream) {
    GW_TRY(clear(scratch, stream));
    auto* const state = scratch.as<SelectState>();
    const auto count = static_cast<std::size_t>(tiles());
    std::uint32_t* const tile_first = TopkRoom::words(scratch, 2 * count);
    std::uint32_t* const indices = TopkRoom::words(scratch, 4 * count);
    auto* const values = reinterpret_cast<float*>(indices + plan_.room);
    const bool packed =
        starts_at(from.grad, 16) && starts_at(from.residual, 16) && starts_at(from.next, 16);
    GW_TRY(launch("topk: sample", TopkSample{from, plan_.rank, state}, 1, stream));
    const TopkCollect collect{
        from, state, tiles(), plan_.room, indices, values, tile_first, tile_first + count, packed};
    GW_TRY(launch("topk: candidates", collect, std::min(tiles(), kMostBlocks), stream));
    const CandidateItems items{state,  k_,         plan_.room,         indices,
                               values, tile_first, tile_first + count, from.next};
    return choose(items, blocks_for(plan_.room, kSelectTile), scratch, to, stream);
  }

  // `tally_blocks`: as many tiles as items fill.
  template <class Items>
  Status choose(const Items& items, std::int64_t tally_blocks, const Scratch& scratch,
                const PairTarget& to, const Stream& stream) {
    auto* const state = scratch.as<SelectState>();
    const auto count = static_cast<std::size_t>(tiles());
    std::uint32_t* const above = TopkRoom::words(scratch, 0);
    std::uint32_t* const ties = TopkRoom::words(scratch, count);
    for (int level = 0; level < kSelectLevels; ++level) {
      GW_TRY(launch("topk: tally", SelectTally<Items>{items, k_, level, state},
                    std::min(tally_blocks, kTopkTallyBlocks), stream));
    }
    const std::int64_t blocks = std::min(tiles(), kTopkTileBlocks);
    GW_TRY(launch("topk: counts", SelectCounts<Items>{items, k_, tiles(), state, above, ties},
                  blocks, stream));
    GW_TRY(launch("topk: offsets",
                  SelectOffsets<Items>{items, tiles(), state, above, ties, verdict_.word()}, 1,
                  stream));
    const SelectPairs<Items> pairs{items, tiles(), elems_, state, above, ties, to, verdict_.word()};
    return launch("topk: pairs", pairs, blocks, stream);
  }

  std::string method_;
  std::uint32_t k_;
  std::int64_t elems_;
  Verdict verdict_;
  TopkPlan plan_;
};

}  // namespace gradwire::cuda
