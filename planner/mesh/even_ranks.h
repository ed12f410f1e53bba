// Stages whose ranks have as much to do as each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// A pipeline whose stages are consecutive runs of layers.
struct StagedRanks {
  std::vector<std::vector<int>> stages = {};  // [rank]: its stages, of all pipes
  // [rank][i][run]: what a run takes there as one of the i-th of these stages. Of a run, time that
  // the rank works on it; or anything else that adds up, as memory does.
  std::vector<std::vector<std::vector<std::int64_t>>> ticks = {};
};

// The slowest rank of `cuts`, the runs of each stage in order: what a rank's stages take together.
std::int64_t slowest_rank(const StagedRanks& ranks, const std::vector<Range>& cuts);

// `cuts` with the ends of its stages moved, and runs handed over from stage to stage: to where the
// slowest rank is fastest, and among such divisions to where ranks, and then stages, are most even;
// again and again until nothing moves. The slowest rank is no slower than before, and where each
// rank has one stage it is as fast as any division has it if `cuts` was so. Of ranks with several
// stages it is a search by single moves, which may miss a better division, and which ends after
// some milliseconds. Each stage has a run or more, before and behind.
std::vector<Range> even_ranks(const StagedRanks& ranks, std::vector<Range> cuts);

// The division whose slowest stage is as fast as it can be, on the slowest rank that has it. Errors
// as cut_uneven().
Result<std::vector<Range>> even_stages(const StagedRanks& ranks, std::size_t stages);

// What even_ranks() makes of even_stages(), or, where ranks have several stages and it has a faster
// slowest rank, of `own`, a division into as many. Errors as there.
Result<std::vector<Range>> even_division(const StagedRanks& ranks, const std::vector<Range>& own);

}  // namespace gradwire
