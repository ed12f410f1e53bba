// From the names that callers and flags use to schedules.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/schedules/checker.h"
#include "collectives/schedules/op_traits.h"
#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// Of an operation that has schedules, a base of op_traits.h: "all_reduce", ..., and "send_recv" for
// kSend. As errors and `gradwire inspect schedule` spell it.
std::string_view schedule_name(OpKind kind);

// The algorithms of a collective, best known first. counted: those that take unequal counts.
std::vector<std::string_view> algorithms_of(OpKind collective, bool counted = false);

// `name` itself if it is one of them; what "auto" stands for; else kInvalidArgument with the list.
Result<std::string_view> resolve_algorithm(OpKind collective, std::string_view name,
                                           bool counted = false);

// Whether a known algorithm lives of the cuts of its tensor: the more of them, the more of its
// links are busy at once.
bool is_pipeline(OpKind collective, std::string_view algorithm);

// One rank's part of an operation. Spans are read during the call alone.
struct ScheduleRequest {
  OpKind collective = OpKind::kAllReduce;
  std::string_view algorithm = {};  // that resolve_algorithm() returned
  int rank = 0;
  int size = 1;
  // Of the tensor for all_reduce, broadcast, reduce and exclusive_scan, of one rank's row for the
  // others. Ignored where counts are given.
  std::int64_t elems = 0;
  int root = 0;
  // The -v operations: `size` of them. Rank r's row of all_gather, reduce_scatter, gather and
  // scatter, equal on all ranks; the row for rank r of all_to_all, with the row from it below.
  std::span<const std::int64_t> counts = {};
  std::span<const std::int64_t> recv_counts = {};
  // two_level and blueconnect: any number for each rank, equal for ranks of one node. None: all
  // ranks are on one.
  std::span<const int> node_of = {};
  // blueconnect: sizes of the levels from the innermost on, whose product is `size`. None: what
  // node_of says if all nodes are alike, else the prime factors of `size`.
  std::span<const int> levels = {};
  // Indivisible schedules of one tensor (all_reduce, broadcast, reduce) come in stretches of at
  // most so many elements; 0: as one.
  std::int64_t stretch_elems = 0;
};

// A stretch's bytes for operations that are run: messages and what waits for its reduction stay in
// the cache.
inline constexpr std::int64_t kStretchBytes = 2 << 20;

Schedule make_schedule(const ScheduleRequest& request);

// The same for operations without more.
Schedule make_schedule(OpKind collective, std::string_view algorithm, int rank, int size,
                       std::int64_t elems, int root = 0);

// What the schedules of such a request are meant to do, for the checker. all_to_all by counts has
// to be filled in with all ranks' counts.
ScheduleClaim claim_of(const ScheduleRequest& request);

}  // namespace gradwire
