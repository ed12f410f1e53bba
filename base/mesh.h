// The ranks of a job as a mesh [pp][dp][tp]: pipeline stages, replicas, and the ranks that share a
// tensor. tp is the fastest axis, so that neighbouring ranks share tensors. Pure functions of a
// rank and the sizes, without anything global: the ranks of a job may be threads of one process.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// The sizes of the axes.
struct MeshSizes {
  int pp = 1;  // pipeline stages
  int dp = 1;  // replicas, each of which trains on samples of its own
  int tp = 1;  // ranks that share every tensor
  // A pipeline of 2 pp ranks whose stages go through them both ways (Chimera): ranks d and
  // 2 pp - 1 - d of it have the same two stages and are replicas 2 i and 2 i + 1 of place d < pp on
  // the axis, where i numbers the pipeline. dp, even, counts both; the job's ranks are
  // [2 pp][dp / 2][tp] all the same.
  bool both_ways = false;

  std::int64_t ranks() const { return static_cast<std::int64_t>(pp) * dp * tp; }
  // Of one replica, which together hold the model.
  std::int64_t model_ranks() const { return static_cast<std::int64_t>(pp) * tp; }
  friend bool operator==(const MeshSizes&, const MeshSizes&) = default;
};

// The place of a rank on each axis, from 0.
struct MeshCoordinates {
  int pp = 0;
  int dp = 0;
  int tp = 0;
  friend bool operator==(const MeshCoordinates&, const MeshCoordinates&) = default;
};

// Who takes part in an exchange, as seen from one rank.
enum class MeshScope : std::uint8_t {
  kDp,       // the same part of the model in every replica: gradients are averaged here
  kTp,       // the ranks that share this rank's tensors
  kPp,       // the stages of this rank's pipeline; of both ways all of its ranks
  kModel,    // one whole replica, pp x tp: norms and flags are added here
  kEmbed,    // the first and the last stage, which both use tied embeddings; middle stages have no
             // such group
  kReplica,  // stages d and pp - 1 - d, alone in the middle of an odd pp; of both ways the two
             // ranks that have the same stages
  kWorld,    // all
};

inline constexpr std::array kMeshScopes{MeshScope::kDp,    MeshScope::kTp,    MeshScope::kPp,
                                        MeshScope::kModel, MeshScope::kEmbed, MeshScope::kReplica,
                                        MeshScope::kWorld};

// "dp", "tp", "pp", "model", "embed", "replica", "world".
std::string_view to_string(MeshScope scope);

// "pp=2 x dp=3 x tp=1".
std::string to_string(const MeshSizes& sizes);

// kInvalidArgument unless every size is from 1 to 2^20 and their product is the job's `ranks`. All
// other functions want sizes that fit.
Status check_mesh(const MeshSizes& sizes, int ranks);
// The sizes with as many replicas as `ranks` have room for, whatever sizes.dp is; pp and tp are
// from 1 to 2^20. kInvalidArgument, with the product, where the ranks are no multiple of pp x tp.
Result<MeshSizes> with_all_replicas(MeshSizes sizes, int ranks);

// 0 <= rank < sizes.ranks(), and the inverse.
MeshCoordinates coordinates_of(const MeshSizes& sizes, int rank);
int rank_at(const MeshSizes& sizes, const MeshCoordinates& at);

// The group of a scope that `rank` is in, by its members' places on the axes, which ascends but for
// both ways, in which kPp ascends and kDp has replicas in their order; empty where it is in none.
// The same list on every member.
std::vector<int> group_ranks(const MeshSizes& sizes, MeshScope scope, int rank);

// How many groups a scope has, and the number of the one that `rank` is in: 0 to group_count() - 1,
// -1 where it is in none. The groups of a scope have no rank in common.
int group_count(const MeshSizes& sizes, MeshScope scope);
int group_index(const MeshSizes& sizes, MeshScope scope, int rank);

// How the samples of a step are dealt. A step has dp x `accumulate` micro-batches of equal length;
// coordinate d of dp takes [d * accumulate, (d + 1) * accumulate), and its pp and tp peers take the
// same ones. dp = 4, accumulate = 1 and dp = 2, accumulate = 2 therefore have the same
// micro-batches in the same order. A micro-batch's number in the step is also that of the worker
// that it stands for.
struct BatchShares {
  int dp = 1;
  int accumulate = 1;

  constexpr std::int64_t micro_batches() const {
    return static_cast<std::int64_t>(dp) * accumulate;
  }
  // 0 <= micro < accumulate.
  constexpr int number(int dp_coordinate, int micro) const {
    return dp_coordinate * accumulate + micro;
  }
  // Of a micro-batch. `batch`: samples of a step, a multiple of micro_batches().
  constexpr std::int64_t samples(std::int64_t batch) const { return batch / micro_batches(); }
  // A micro-batch's samples among those of its step.
  constexpr Range samples_of(std::int64_t batch, int number) const {
    const std::int64_t each = samples(batch);
    return {each * number, each * (number + 1)};
  }
};

// Part i of `elems` things among `parts`: the cuts are at elems * i / parts, rounded down, so that
// lengths differ by at most 1. Long parts are anywhere, unlike those of piece().
constexpr Range even_part(std::int64_t elems, int parts, int i) {
  return {elems * i / parts, elems * (i + 1) / parts};
}

// Whether all parts are of one length.
constexpr bool divides_evenly(std::int64_t elems, int parts) { return elems % parts == 0; }

// Where part i of what is numbered from 0, in `parts` parts of `length` each behind one another,
// begins in thing `number` of such: (number, part) to an index.
constexpr std::int64_t part_begin(std::int64_t number, int parts, std::int64_t i,
                                  std::int64_t length) {
  return (number * parts + i) * length;
}

// The length of the longest part, of even_part() and of piece().
constexpr std::int64_t longest_part(std::int64_t elems, int parts) {
  return (elems + parts - 1) / parts;
}

// Part i of `elems` things among `parts`, all of longest_part() things: those that would go beyond
// the end overlap with the ones before them.
constexpr Range equal_part(std::int64_t elems, int parts, int i) {
  const std::int64_t each = longest_part(elems, parts);
  const std::int64_t begin = each * i < elems - each ? each * i : elems - each;
  return {begin, begin + each};
}

// Of `parts` parts of `elems` things together.
constexpr std::int64_t parts_elems(std::int64_t elems, int parts) { return elems * parts; }

}  // namespace gradwire
