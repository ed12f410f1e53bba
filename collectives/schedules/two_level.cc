// Two levels: ranks of one node reduce among themselves, then node by node over the network, then
// share the result inside the node. Each rank talks over the network about its own part alone, so
// with g ranks on each of N nodes a rank's port carries 1/g of what a flat ring's would.
//
//   reduce-scatter inside   part j of the elements to the node's j-th rank, all at once; 1 round
//   all-reduce across       the j-th ranks of all nodes reduce part j around a ring: 2(N-1) rounds
//   all-gather inside       part j to everybody on the node; 1 round
//
// There are as many parts as the smallest node has ranks; further ranks of larger nodes give and
// take only inside. Elements from a rank that owns part j, of l = n/g: n - l + 2 l (N-1)/N + (g-1)
// l. Source: Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash",
// arXiv:1811.05233, 2018 (2D-torus all-reduce; here any shape of nodes).
#include <algorithm>
#include <map>
#include <utility>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/steps.h"

namespace gradwire {

Nodes nodes_of(std::span<const int> keys) {
  Nodes nodes;
  std::map<int, int> known;
  for (std::size_t r = 0; r < keys.size(); ++r) {
    const auto [entry, is_new] = known.try_emplace(keys[r], static_cast<int>(nodes.ranks.size()));
    if (is_new) nodes.ranks.emplace_back();
    std::vector<int>& ranks = nodes.ranks[static_cast<std::size_t>(entry->second)];
    nodes.node_of.push_back(entry->second);
    nodes.place_of.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(r));
  }
  return nodes;
}

int Nodes::smallest() const {
  const auto smaller = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  return static_cast<int>(std::ranges::min_element(ranks, smaller)->size());
}

bool Nodes::alike() const {
  return std::ranges::all_of(ranks, [&](const auto& r) { return r.size() == ranks[0].size(); });
}

namespace {

// The seat of this rank among those with the same place on all nodes.
RingSeat seat_across(const Nodes& nodes, int rank) {
  const int here = nodes.node_of[static_cast<std::size_t>(rank)];
  const auto place = static_cast<std::size_t>(nodes.place_of[static_cast<std::size_t>(rank)]);
  const int length = static_cast<int>(nodes.ranks.size());
  const auto at = [&](int node) {
    return nodes.ranks[static_cast<std::size_t>(around(node, length))][place];
  };
  return {here, length, at(here + 1), at(here - 1)};
}

}  // namespace

Schedule two_level_all_reduce(int rank, std::span<const int> node_of, std::int64_t elems) {
  const int size = static_cast<int>(node_of.size());
  Schedule schedule = in_place_schedule(rank, size, elems);
  const Nodes nodes = nodes_of(node_of);
  const int across = static_cast<int>(nodes.ranks.size());
  schedule.divisible = across == 1;
  const auto at = static_cast<std::size_t>(rank);
  const std::vector<int>& local = nodes.ranks[static_cast<std::size_t>(nodes.node_of[at])];
  const int count = static_cast<int>(local.size());
  const int own = nodes.place_of[at];
  const int parts = nodes.smallest();
  const bool owner = own < parts;
  const auto part = [=](int j) { return out_place_of(piece(elems, parts, j)); };
  Round scatter, gather;
  for (int t = 1; t < count; ++t) {
    const int j = around(own + t, count);
    const int peer = local[static_cast<std::size_t>(j)];
    if (j < parts) scatter.push_back(send_step(peer, part(j)));
    if (owner) gather.push_back(send_step(peer, part(own)));
  }
  for (int j = 0; j < count; ++j) {
    const int peer = local[static_cast<std::size_t>(j)];
    if (j == own) continue;
    if (owner) scatter.push_back(recv_reduce(peer, part(own)));
    if (j < parts) gather.push_back(recv_copy(peer, part(j)));
  }
  if (size > 1 && across == 1 && owner) scatter.push_back(finish_step(part(own)));
  if (!scatter.empty()) schedule.rounds.push_back(std::move(scatter));
  if (owner && across > 1) {
    const Range mine = part(own).range;
    const auto chunk = [&](int c) {
      return out_place_of(shifted(piece(mine.size(), across, c), mine.begin));
    };
    const RingSeat seat = seat_across(nodes, rank);
    add_ring_reduce_scatter(schedule, seat, chunk);
    schedule.rounds.back().push_back(finish_step(chunk(seat.place)));
    add_ring_all_gather(schedule, seat, chunk);
  }
  if (!gather.empty()) schedule.rounds.push_back(std::move(gather));
  return schedule;
}

}  // namespace gradwire
