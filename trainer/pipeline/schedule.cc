#include "trainer/pipeline/schedule.h"

#include <algorithm>

namespace gradwire {

PipelineSchedule looped_placement(int ranks, int chunks, int micro_batches) {
  PipelineSchedule schedule{.micro_batches = micro_batches};
  schedule.ranks.resize(static_cast<std::size_t>(ranks));
  schedule.rank_of.resize(1);
  for (int stage = 0; stage < ranks * chunks; ++stage) {
    schedule.rank_of.front().push_back(stage % ranks);
  }
  return schedule;
}

PipelineSchedule v_placement(int ranks, int micro_batches) {
  PipelineSchedule schedule = looped_placement(ranks, 1, micro_batches);
  for (int rank = ranks; rank-- > 0;) schedule.rank_of.front().push_back(rank);
  return schedule;
}

PipelineSchedule both_ways_placement(int ranks, int micro_batches) {
  PipelineSchedule schedule = looped_placement(ranks, 1, micro_batches);
  const std::vector<int>& down = schedule.rank_of.front();
  schedule.rank_of.push_back({down.rbegin(), down.rend()});
  return schedule;
}

std::size_t count_ops(const PipelineSchedule& schedule) {
  std::size_t count = 0;
  for (const auto& ops : schedule.ranks) count += ops.size();
  return count;
}

bool has_transfers(const PipelineSchedule& schedule) {
  return std::ranges::any_of(schedule.ranks, [](const auto& ops) {
    return std::ranges::any_of(ops, [](const PipelineOp& op) { return is_transfer(op.kind); });
  });
}

}  // namespace gradwire
