#include "base/mesh.h"

#include <algorithm>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr int kLongestAxis = 1 << 20;  // three of them multiply without overflow

// Stages d and pp - 1 - d are a pair; the smaller of them numbers it.
int pair_of(const MeshSizes& sizes, int stage) { return std::min(stage, sizes.pp - 1 - stage); }

Status check_axis(const char* axis, int size) {
  if (size >= 1 && size <= kLongestAxis) return {};
  return {Code::kInvalidArgument,
          format("%s=%d (expected 1 to %d ranks on an axis)", axis, size, kLongestAxis)};
}

// The stages of the group that a stage is in, ascending.
std::vector<int> stages_of(const MeshSizes& sizes, MeshScope scope, int stage) {
  const int last = sizes.pp - 1;
  switch (scope) {
    case MeshScope::kDp:
    case MeshScope::kTp: return {stage};
    case MeshScope::kEmbed:
      if (sizes.both_ways) return stage == 0 ? std::vector<int>{0} : std::vector<int>{};
      if (stage != 0 && stage != last) return {};
      return last == 0 ? std::vector<int>{0} : std::vector<int>{0, last};
    case MeshScope::kReplica: {
      if (sizes.both_ways) return {stage};
      const int first = pair_of(sizes, stage);
      const int second = last - first;
      return first == second ? std::vector<int>{first} : std::vector<int>{first, second};
    }
    case MeshScope::kPp:
    case MeshScope::kModel:
    case MeshScope::kWorld: break;
  }
  std::vector<int> all;
  for (int at = 0; at < sizes.pp; ++at) all.push_back(at);
  return all;
}

// [begin, end) on an axis: all of it, or this rank's place alone.
struct AxisPart {
  int begin;
  int end;
};
AxisPart axis_part(bool whole, int size, int at) {
  return whole ? AxisPart{0, size} : AxisPart{at, at + 1};
}

// Of ranks that go both ways: the pipeline's, ascending.
std::vector<int> pipeline_ranks(const MeshSizes& sizes, const MeshCoordinates& at) {
  const int down = at.dp - at.dp % 2;
  std::vector<int> ranks;
  for (int place = 0; place < sizes.pp; ++place)
    ranks.push_back(rank_at(sizes, {place, down, at.tp}));
  for (int place = sizes.pp; place-- > 0;)
    ranks.push_back(rank_at(sizes, {place, down + 1, at.tp}));
  return ranks;
}

// The replicas of the group that a rank is in.
AxisPart replicas_of(const MeshSizes& sizes, MeshScope scope, int at) {
  const bool pair = sizes.both_ways && scope == MeshScope::kReplica;
  if (pair) return {at - at % 2, at - at % 2 + 2};
  return axis_part(scope == MeshScope::kDp || scope == MeshScope::kWorld, sizes.dp, at);
}

bool spans_tp(MeshScope scope) {
  return scope == MeshScope::kTp || scope == MeshScope::kModel || scope == MeshScope::kWorld;
}

}  // namespace

std::string_view to_string(MeshScope scope) {
  switch (scope) {
    case MeshScope::kDp: return "dp";
    case MeshScope::kTp: return "tp";
    case MeshScope::kPp: return "pp";
    case MeshScope::kModel: return "model";
    case MeshScope::kEmbed: return "embed";
    case MeshScope::kReplica: return "replica";
    case MeshScope::kWorld: return "world";
  }
  return "?";
}

std::string to_string(const MeshSizes& sizes) {
  return format("pp=%d x dp=%d x tp=%d", sizes.pp, sizes.dp, sizes.tp);
}

Status check_mesh(const MeshSizes& sizes, int ranks) {
  GW_TRY(check_axis("pp", sizes.pp));
  GW_TRY(check_axis("dp", sizes.dp));
  GW_TRY(check_axis("tp", sizes.tp));
  if (sizes.ranks() == ranks) return {};
  return {Code::kInvalidArgument,
          format("%s = %lld rank%s, but the job has %d", to_string(sizes).c_str(),
                 static_cast<long long>(sizes.ranks()), sizes.ranks() == 1 ? "" : "s", ranks)};
}

Result<MeshSizes> with_all_replicas(MeshSizes sizes, int ranks) {
  sizes.dp = 1;
  const std::int64_t replica = sizes.ranks();
  if (ranks % replica != 0) {
    return Status(Code::kInvalidArgument,
                  format("pp=%d x tp=%d = %lld ranks, and the job's %d are no multiple of them",
                         sizes.pp, sizes.tp, static_cast<long long>(replica), ranks));
  }
  sizes.dp = static_cast<int>(ranks / replica);
  return sizes;
}

MeshCoordinates coordinates_of(const MeshSizes& sizes, int rank) {
  const int replica = rank / sizes.tp;  // pp * dp_size + dp
  if (sizes.both_ways) {
    const int stage = replica / (sizes.dp / 2);
    const int back = 2 * sizes.pp - 1 - stage;
    const int pipeline = replica % (sizes.dp / 2);
    return {std::min(stage, back), 2 * pipeline + (stage < back ? 0 : 1), rank % sizes.tp};
  }
  return {replica / sizes.dp, replica % sizes.dp, rank % sizes.tp};
}

int rank_at(const MeshSizes& sizes, const MeshCoordinates& at) {
  if (sizes.both_ways) {
    const int stage = at.dp % 2 == 0 ? at.pp : 2 * sizes.pp - 1 - at.pp;
    return (stage * (sizes.dp / 2) + at.dp / 2) * sizes.tp + at.tp;
  }
  return (at.pp * sizes.dp + at.dp) * sizes.tp + at.tp;
}

std::vector<int> group_ranks(const MeshSizes& sizes, MeshScope scope, int rank) {
  const MeshCoordinates at = coordinates_of(sizes, rank);
  if (sizes.both_ways && scope == MeshScope::kPp) return pipeline_ranks(sizes, at);
  const AxisPart replicas = replicas_of(sizes, scope, at.dp);
  const AxisPart shares = axis_part(spans_tp(scope), sizes.tp, at.tp);
  std::vector<int> ranks;
  for (const int stage : stages_of(sizes, scope, at.pp)) {
    for (int dp = replicas.begin; dp < replicas.end; ++dp) {
      for (int tp = shares.begin; tp < shares.end; ++tp) {
        ranks.push_back(rank_at(sizes, {stage, dp, tp}));
      }
    }
  }
  // The job's own order.
  if (sizes.both_ways && scope == MeshScope::kWorld) std::ranges::sort(ranks);
  return ranks;
}

int group_count(const MeshSizes& sizes, MeshScope scope) {
  switch (scope) {
    case MeshScope::kDp: return sizes.pp * sizes.tp;
    case MeshScope::kTp: return sizes.pp * sizes.dp;
    case MeshScope::kPp: return (sizes.both_ways ? sizes.dp / 2 : sizes.dp) * sizes.tp;
    case MeshScope::kEmbed: return sizes.dp * sizes.tp;
    case MeshScope::kModel: return sizes.dp;
    case MeshScope::kReplica:
      if (sizes.both_ways) return sizes.pp * sizes.dp / 2 * sizes.tp;
      return (sizes.pp + 1) / 2 * sizes.dp * sizes.tp;
    case MeshScope::kWorld: break;
  }
  return 1;
}

int group_index(const MeshSizes& sizes, MeshScope scope, int rank) {
  const MeshCoordinates at = coordinates_of(sizes, rank);
  switch (scope) {
    case MeshScope::kDp: return at.pp * sizes.tp + at.tp;
    case MeshScope::kTp: return at.pp * sizes.dp + at.dp;
    case MeshScope::kPp: return (sizes.both_ways ? at.dp / 2 : at.dp) * sizes.tp + at.tp;
    case MeshScope::kModel: return at.dp;
    case MeshScope::kEmbed:
      if (sizes.both_ways) return at.pp == 0 ? at.dp * sizes.tp + at.tp : -1;
      return at.pp == 0 || at.pp == sizes.pp - 1 ? at.dp * sizes.tp + at.tp : -1;
    case MeshScope::kReplica:
      if (sizes.both_ways) return (at.pp * sizes.dp / 2 + at.dp / 2) * sizes.tp + at.tp;
      return rank_at(sizes, {pair_of(sizes, at.pp), at.dp, at.tp});
    case MeshScope::kWorld: break;
  }
  return 0;
}

}  // namespace gradwire
