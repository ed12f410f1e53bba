// Which magnitudes are among the `most` largest of a list that lies in parts on several ranks:
// counts alone travel, and every rank comes to the same answer whoever holds what.
//
// A magnitude's key is the upper 15 of the 31 bits of the nearest float: exponent and 7 bits of
// mantissa. Three rounds of 32 counts each, summed over ranks, find the key of the smallest one to
// keep. All above it are kept; of those with that very key as many as there is room for, by index.
// So exactly `most` are kept, and any two magnitudes that differ by 1/128 in the right order.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace gradwire {

class SharedSelection {
 public:
  static constexpr int kRounds = 3;
  static constexpr int kBins = 32;
  using Counts = std::span<std::int32_t>;  // kBins of them

  SharedSelection() = default;
  explicit SharedSelection(std::int64_t most) : most_(most) {}

  static std::uint32_t key(double x) {
    return std::bit_cast<std::uint32_t>(std::abs(static_cast<float>(x))) >> 16;
  }

  // Counts one magnitude of this rank's in this round, where its key may still decide.
  void count(std::uint32_t key, Counts bins) const {
    if (all_ || key >> (kBits * (kRounds - round_)) != edge_) return;
    ++bins[key >> (kBits * (kRounds - 1 - round_)) & (kBins - 1)];
  }
  // The counts of all ranks, of 0 or more each: ends the round.
  void advance(std::span<const std::int32_t> bins) {
    int bin = kBins - 1;
    std::int64_t above = above_;
    for (; bin >= 0; --bin) {
      const std::int64_t with = above + bins[static_cast<std::size_t>(bin)];
      if (with > most_) break;
      above = with;
    }
    // Nothing to choose, which the first round sees.
    all_ = all_ || (round_ == 0 && bin < 0);
    ++round_;
    if (all_) return;
    above_ = above;
    edge_ = edge_ << kBits | static_cast<std::uint32_t>(bin < 0 ? 0 : bin);
  }

  // After the last round.
  bool above(std::uint32_t key) const { return all_ || key > edge_; }
  bool at_edge(std::uint32_t key) const { return !all_ && key == edge_; }
  // How many at the edge there is room for, over all ranks.
  std::int64_t room() const { return all_ ? 0 : most_ - above_; }

 private:
  static constexpr int kBits = 5;

  std::int64_t most_ = 0;
  std::int64_t above_ = 0;  // magnitudes above the edge
  std::uint32_t edge_ = 0;  // the first bits of the deciding key
  int round_ = 0;
  bool all_ = false;
};

}  // namespace gradwire
