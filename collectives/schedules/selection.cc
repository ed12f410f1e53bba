#include "collectives/schedules/selection.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/check.h"
#include "base/nearest.h"
#include "collectives/schedules/schedules.h"

namespace gradwire {
namespace {

using R = ScheduleRequest;
using C = OpKind;

struct Algorithm {
  OpKind collective;
  std::string_view name;
  Schedule (*make)(const ScheduleRequest& request);
  bool counted = true;    // takes unequal counts, where the operation has them
  bool pipeline = false;  // of cuts of the tensor, which pass through its ranks one behind another
};

constexpr int kRadix = 4;  // of "knomial"

// Every rank has its row.
std::vector<std::int64_t> rows(const R& r) {
  if (!r.counts.empty()) return {r.counts.begin(), r.counts.end()};
  return std::vector<std::int64_t>(static_cast<std::size_t>(r.size), r.elems);
}

std::vector<std::int64_t> rows_from(const R& r) {
  return r.recv_counts.empty() ? rows(r) : std::vector(r.recv_counts.begin(), r.recv_counts.end());
}

std::vector<int> nodes(const R& r) {
  if (!r.node_of.empty()) return {r.node_of.begin(), r.node_of.end()};
  return std::vector<int>(static_cast<std::size_t>(r.size), 0);
}

// From a request to the functions' parameters.
template <Schedule (*Make)(int, int, std::int64_t)>
Schedule plain(const R& r) {
  return Make(r.rank, r.size, r.elems);
}
template <Schedule (*Make)(int, int, std::int64_t, int), int Radix>
Schedule radix(const R& r) {
  return Make(r.rank, r.size, r.elems, Radix);
}
template <Schedule (*Make)(int, int, int, std::int64_t)>
Schedule rooted(const R& r) {
  return Make(r.rank, r.size, r.root, r.elems);
}
template <Schedule (*Make)(int, int, int, std::int64_t, int), int Radix>
Schedule rooted_radix(const R& r) {
  return Make(r.rank, r.size, r.root, r.elems, Radix);
}
template <Schedule (*Make)(int, Counts)>
Schedule in_rows(const R& r) {
  return Make(r.rank, rows(r));
}
template <Schedule (*Make)(int, int, Counts)>
Schedule rooted_rows(const R& r) {
  return Make(r.rank, r.root, rows(r));
}
template <Schedule (*Make)(int, Counts, Counts)>
Schedule both_rows(const R& r) {
  return Make(r.rank, rows(r), rows_from(r));
}
Schedule barrier(const R& r) { return dissemination_barrier(r.rank, r.size); }
Schedule barrier_by_tree(const R& r) { return tree_barrier(r.rank, r.size); }
Schedule two_level(const R& r) { return two_level_all_reduce(r.rank, nodes(r), r.elems); }
Schedule blueconnect(const R& r) {
  return blueconnect_all_reduce(r.rank, nodes(r), r.levels, r.elems);
}

// By collective, best known first.
constexpr std::array kAlgorithms{
    Algorithm{C::kAllReduce, "ring", plain<ring_all_reduce>},
    Algorithm{C::kAllReduce, "canonical", plain<canonical_all_reduce>},
    Algorithm{C::kAllReduce, "direct", plain<direct_all_reduce>},
    Algorithm{C::kAllReduce, "recursive_doubling", plain<recursive_doubling_all_reduce>},
    Algorithm{C::kAllReduce, "halving_doubling", plain<halving_doubling_all_reduce>},
    Algorithm{C::kAllReduce, "double_tree", plain<double_tree_all_reduce>, true, true},
    Algorithm{C::kAllReduce, "tree", radix<knomial_all_reduce, 2>},
    Algorithm{C::kAllReduce, "knomial", radix<knomial_all_reduce, kRadix>},
    Algorithm{C::kAllReduce, "parameter_server", rooted<parameter_server_all_reduce>},
    Algorithm{C::kAllReduce, "two_level", two_level},
    Algorithm{C::kAllReduce, "blueconnect", blueconnect},
    Algorithm{C::kReduceScatter, "ring", in_rows<ring_reduce_scatter>},
    Algorithm{C::kReduceScatter, "canonical", in_rows<canonical_reduce_scatter>},
    Algorithm{C::kReduceScatter, "recursive_halving", in_rows<halving_reduce_scatter>},
    Algorithm{C::kReduceScatter, "pairwise", in_rows<pairwise_reduce_scatter>},
    Algorithm{C::kAllGather, "ring", in_rows<ring_all_gather>},
    Algorithm{C::kAllGather, "recursive_doubling", in_rows<doubling_all_gather>},
    Algorithm{C::kAllGather, "bruck", in_rows<bruck_all_gather>},
    Algorithm{C::kAllGather, "direct", in_rows<direct_all_gather>},
    Algorithm{C::kAllToAll, "pairwise", both_rows<pairwise_all_to_all>},
    Algorithm{C::kAllToAll, "direct", both_rows<direct_all_to_all>},
    Algorithm{C::kAllToAll, "bruck", plain<bruck_all_to_all>, false},
    Algorithm{C::kBroadcast, "binomial", rooted_radix<knomial_broadcast, 2>},
    Algorithm{C::kBroadcast, "knomial", rooted_radix<knomial_broadcast, kRadix>},
    Algorithm{C::kBroadcast, "chain", rooted<chain_broadcast>, true, true},
    Algorithm{C::kBroadcast, "double_tree", rooted<double_tree_broadcast>, true, true},
    Algorithm{C::kBroadcast, "scatter_all_gather", rooted<scatter_all_gather_broadcast>},
    Algorithm{C::kBarrier, "dissemination", barrier},
    Algorithm{C::kBarrier, "tree", barrier_by_tree},
    Algorithm{C::kReduce, "binomial", rooted_radix<knomial_reduce, 2>},
    Algorithm{C::kReduce, "knomial", rooted_radix<knomial_reduce, kRadix>},
    Algorithm{C::kReduce, "double_tree", rooted<double_tree_reduce>, true, true},
    Algorithm{C::kReduce, "scatter_gather", rooted<scatter_gather_reduce>},
    Algorithm{C::kReduce, "canonical", rooted<canonical_reduce>},
    Algorithm{C::kGather, "binomial", rooted_rows<binomial_gather>},
    Algorithm{C::kGather, "linear", rooted_rows<linear_gather>},
    Algorithm{C::kScatter, "binomial", rooted_rows<binomial_scatter>},
    Algorithm{C::kScatter, "linear", rooted_rows<linear_scatter>},
    Algorithm{C::kExclusiveScan, "recursive_doubling", plain<doubling_exclusive_scan>},
    Algorithm{C::kExclusiveScan, "linear", plain<linear_exclusive_scan>},
    Algorithm{C::kSend, "direct", plain<neighbour_send_recv>},
};

const Algorithm& algorithm_named(OpKind collective, std::string_view name) {
  const auto found = std::ranges::find_if(kAlgorithms, [&](const Algorithm& one) {
    return one.collective == collective && one.name == name;
  });
  GW_CHECK(found != kAlgorithms.end());
  return *found;
}

}  // namespace

std::string_view schedule_name(OpKind kind) {
  return kind == OpKind::kSend ? "send_recv" : to_string(kind);
}

std::vector<std::string_view> algorithms_of(OpKind collective, bool counted) {
  std::vector<std::string_view> names;
  for (const Algorithm& one : kAlgorithms) {
    if (one.collective == collective && (one.counted || !counted)) names.push_back(one.name);
  }
  return names;
}

Result<std::string_view> resolve_algorithm(OpKind collective, std::string_view name, bool counted) {
  const std::vector<std::string_view> known = algorithms_of(collective, counted);
  if (name == "auto") return known.front();
  if (const auto found = std::ranges::find(known, name); found != known.end()) return *found;
  std::string text = "no algorithm '" + std::string(name) + "' for " +
                     std::string(schedule_name(collective)) + (counted ? "_v" : "") +
                     did_you_mean(name, {known.begin(), known.end()}) + " (known: auto";
  for (const std::string_view one : known) text += ", " + std::string(one);
  return Status(Code::kInvalidArgument, text + ")");
}

bool is_pipeline(OpKind collective, std::string_view algorithm) {
  return algorithm_named(collective, algorithm).pipeline;
}

Schedule make_schedule(const ScheduleRequest& request) {
  const Algorithm& found = algorithm_named(request.collective, request.algorithm);
  const C kind = request.collective;
  const bool one_tensor = kind == C::kAllReduce || kind == C::kBroadcast || kind == C::kReduce;
  const bool longer = request.stretch_elems > 0 && request.elems > request.stretch_elems;
  if (!one_tensor || !longer) return found.make(request);
  ScheduleRequest part = request;
  part.elems = request.stretch_elems;
  Schedule schedule = found.make(part);
  if (schedule.divisible) return found.make(request);
  const auto count = static_cast<int>((request.elems - 1) / request.stretch_elems + 1);
  schedule.in_elems = schedule.out_elems = schedule.scratch_elems = 0;
  schedule.rounds.clear();
  for (int k = 0; k < count; ++k) {
    part.elems = piece(request.elems, count, k).size();
    schedule.stretches.push_back(found.make(part));
    schedule.in_elems += schedule.stretches.back().in_elems;
    schedule.out_elems += schedule.stretches.back().out_elems;
  }
  return schedule;
}

Schedule make_schedule(OpKind collective, std::string_view algorithm, int rank, int size,
                       std::int64_t elems, int root) {
  return make_schedule({.collective = collective,
                        .algorithm = algorithm,
                        .rank = rank,
                        .size = size,
                        .elems = elems,
                        .root = root});
}

ScheduleClaim claim_of(const ScheduleRequest& request) {
  ScheduleClaim claim{.operation = request.collective,
                      .size = request.size,
                      .elems = request.elems,
                      .root = request.root,
                      .counts = {request.counts.begin(), request.counts.end()}};
  const std::string_view name = request.algorithm;
  claim.rank_order = name == "canonical" ||
                     (request.collective == OpKind::kAllReduce &&
                      (name == "direct" || (name == "parameter_server" && request.root == 0)));
  const auto size = static_cast<std::size_t>(request.size);
  if (request.collective == OpKind::kAllToAll && request.counts.empty()) {
    claim.counts.assign(size * size, request.elems);
  }
  return claim;
}

}  // namespace gradwire
