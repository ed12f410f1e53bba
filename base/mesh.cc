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
      if (stage != 0 && stage != last) return {};
      return last == 0 ? std::vector<int>{0} : std::vector<int>{0, last};
    case MeshScope::kReplica: {
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

bool spans_dp(MeshScope scope) { return scope == MeshScope::kDp || scope == MeshScope::kWorld; }

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
  return {replica / sizes.dp, replica % sizes.dp, rank % sizes.tp};
}

int rank_at(const MeshSizes& sizes, const MeshCoordinates& at) {
  return (at.pp * sizes.dp + at.dp) * sizes.tp + at.tp;
}

std::vector<int> group_ranks(const MeshSizes& sizes, MeshScope scope, int rank) {
  const MeshCoordinates at = coordinates_of(sizes, rank);
  const AxisPart replicas = axis_part(spans_dp(scope), sizes.dp, at.dp);
  const AxisPart shares = axis_part(spans_tp(scope), sizes.tp, at.tp);
  std::vector<int> ranks;
  for (const int stage : stages_of(sizes, scope, at.pp)) {
    for (int dp = replicas.begin; dp < replicas.end; ++dp) {
      for (int tp = shares.begin; tp < shares.end; ++tp) {
        ranks.push_back(rank_at(sizes, {stage, dp, tp}));
      }
    }
  }
  return ranks;
}

int group_count(const MeshSizes& sizes, MeshScope scope) {
  switch (scope) {
    case MeshScope::kDp: return sizes.pp * sizes.tp;
    case MeshScope::kTp: return sizes.pp * sizes.dp;
    case MeshScope::kPp:
    case MeshScope::kEmbed: return sizes.dp * sizes.tp;
    case MeshScope::kModel: return sizes.dp;
    case MeshScope::kReplica: return (sizes.pp + 1) / 2 * sizes.dp * sizes.tp;
    case MeshScope::kWorld: break;
  }
  return 1;
}

int group_index(const MeshSizes& sizes, MeshScope scope, int rank) {
  const MeshCoordinates at = coordinates_of(sizes, rank);
  switch (scope) {
    case MeshScope::kDp: return at.pp * sizes.tp + at.tp;
    case MeshScope::kTp: return at.pp * sizes.dp + at.dp;
    case MeshScope::kPp: return at.dp * sizes.tp + at.tp;
    case MeshScope::kModel: return at.dp;
    case MeshScope::kEmbed:
      return at.pp == 0 || at.pp == sizes.pp - 1 ? at.dp * sizes.tp + at.tp : -1;
    case MeshScope::kReplica: return rank_at(sizes, {pair_of(sizes, at.pp), at.dp, at.tp});
    case MeshScope::kWorld: break;
  }
  return 0;
}

}  // namespace gradwire
