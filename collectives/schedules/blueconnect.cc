// BlueConnect: an all-reduce taken apart along the levels of the network. With p = p1 p2 ... pk, p1
// the innermost, a rank is k digits. Level by level, ranks that differ in one digit alone
// reduce-scatter around a ring what is left to them, so that each level carries 1/pi of what the
// one inside it did; then they all-gather in the reverse order.
//
//   rounds   2 sum (pi - 1)
//   elements sum 2 (pi - 1)/pi n / (p1 ... p(i-1)) = 2n(p-1)/p in all, as the flat ring, but only
//            2 (pk - 1)/pk n / (p1 ... p(k-1)) of them over the outermost level
//
// Source: Cho, Finkler, Serrano, Kung and Hunter, BlueConnect, MLSys 2019.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {
namespace {

// A level's ring and what it divides.
struct Level {
  RingSeat seat;
  Range range;
  Place chunk(int c) const {
    return out_place_of(shifted(piece(range.size(), seat.length, c), range.begin));
  }
};

}  // namespace

std::vector<int> prime_factors(int size) {
  std::vector<int> factors;
  for (int factor = 2; size > 1; ++factor) {
    for (; size % factor == 0; size /= factor) factors.push_back(factor);
  }
  return factors;
}

Schedule blueconnect_all_reduce(int rank, std::span<const int> node_of, std::span<const int> levels,
                                std::int64_t elems) {
  const int size = static_cast<int>(node_of.size());
  Schedule schedule = in_place_schedule(rank, size, elems);
  schedule.divisible = false;
  const Nodes nodes = nodes_of(node_of);
  std::vector<int> order;  // ranks, node by node
  for (const auto& ranks : nodes.ranks) order.insert(order.end(), ranks.begin(), ranks.end());
  std::vector<int> lengths(levels.begin(), levels.end());
  if (lengths.empty() && nodes.alike() && nodes.ranks.size() > 1) {
    lengths = {nodes.smallest(), static_cast<int>(nodes.ranks.size())};
  }
  if (lengths.empty()) lengths = prime_factors(size);
  GW_CHECK(std::accumulate(lengths.begin(), lengths.end(), 1, std::multiplies<>()) == size);

  const int place = static_cast<int>(std::ranges::find(order, rank) - order.begin());
  std::vector<Level> stack;
  Range left{0, elems};
  int stride = 1;
  for (const int length : lengths) {
    const int digit = place / stride % length;
    const auto peer = [&](int d) {
      return order[static_cast<std::size_t>(place + (around(d, length) - digit) * stride)];
    };
    stack.push_back({{digit, length, peer(digit + 1), peer(digit - 1)}, left});
    const Level& level = stack.back();
    add_ring_reduce_scatter(schedule, level.seat, [&](int c) { return level.chunk(c); });
    left = level.chunk(digit).range;
    stride *= length;
  }
  if (size > 1) schedule.rounds.back().push_back(finish_step(out_place_of(left)));
  for (auto level = stack.rbegin(); level != stack.rend(); ++level) {
    add_ring_all_gather(schedule, level->seat, [&](int c) { return level->chunk(c); });
  }
  return schedule;
}

}  // namespace gradwire
