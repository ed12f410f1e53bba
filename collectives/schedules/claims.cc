#include "collectives/schedules/claims.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/text.h"

namespace gradwire {
namespace {

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

bool claims_rows(OpKind operation) {
  return operation == OpKind::kAllGather || operation == OpKind::kGather ||
         operation == OpKind::kScatter || operation == OpKind::kReduceScatter;
}

std::int64_t count_of(const ScheduleClaim& claim, int rank) {
  return claim.counts.empty() ? claim.elems : claim.counts[static_cast<std::size_t>(rank)];
}

// Where element `begin` of a rank's kOut comes from: the rank, which of its elements, and how many
// from there on.
struct Source {
  int rank = -1;
  std::int64_t origin = 0;
  std::int64_t left = 0;
};

Source source_at(const ScheduleClaim& claim, int rank, std::int64_t begin, std::int64_t elems) {
  const auto size = static_cast<std::size_t>(claim.size);
  const auto to = static_cast<std::size_t>(rank);
  if (claim.operation == OpKind::kBroadcast) return {claim.root, begin, elems - begin};
  if (claim.operation == OpKind::kSend) {
    return {(rank + claim.size - 1) % claim.size, begin, elems - begin};
  }
  if (claim.operation == OpKind::kScatter) {
    return {claim.root, row_of(claim, rank).begin + begin, elems - begin};
  }
  const bool all_to_all = claim.operation == OpKind::kAllToAll;
  const auto length = [&](std::size_t from) {
    return all_to_all ? claim.counts[from * size + to] : count_of(claim, static_cast<int>(from));
  };
  std::size_t from = 0;
  while (begin >= length(from)) begin -= length(from++);
  const std::int64_t before =
      all_to_all ? sum_of(std::span(claim.counts).subspan(from * size, to)) : 0;
  return {static_cast<int>(from), before + begin, length(from) - begin};
}

Status wrong_origin(std::int64_t seen, std::int64_t wanted) {
  return {Code::kInternal, format("holds elements from %lld on, not from %lld",
                                  static_cast<long long>(seen), static_cast<long long>(wanted))};
}

Status check_moved(const Source& source, const Stretch& stretch) {
  if (stretch.origin != source.origin) return wrong_origin(stretch.origin, source.origin);
  const Expression& value = *stretch.value;
  if (value.ranks == std::vector<int>{source.rank} && value.roundings == 0) return {};
  return {Code::kInternal, format("should be rank %d's, untouched", source.rank)};
}

}  // namespace

Status check_claim(const ScheduleClaim& claim) {
  const auto size = static_cast<std::size_t>(claim.size);
  const bool pairs = claim.operation == OpKind::kAllToAll;
  const std::size_t wanted = pairs ? size * size : size;
  if (claim.counts.size() == wanted) return {};
  if (claim.counts.empty() && !pairs) return {};
  return {Code::kInternal, format("claims %zu counts (expected %zu)", claim.counts.size(), wanted)};
}

Range row_of(const ScheduleClaim& claim, int rank) {
  if (!claims_rows(claim.operation)) return {0, claim.elems};
  std::int64_t begin = 0;
  for (int r = 0; r < rank; ++r) begin += count_of(claim, r);
  return {begin, begin + count_of(claim, rank)};
}

OutputCheck::OutputCheck(const ScheduleClaim& claim) : claim_(claim) {}

std::int64_t OutputCheck::wanted_elems(int rank) const {
  const bool root = rank == claim_.root;
  switch (claim_.operation) {
    case OpKind::kBarrier: return 0;
    case OpKind::kReduce: return root ? claim_.elems : 0;
    case OpKind::kAllGather: return row_of(claim_, claim_.size - 1).end;
    case OpKind::kGather: return root ? row_of(claim_, claim_.size - 1).end : 0;
    case OpKind::kReduceScatter:
    case OpKind::kScatter: return row_of(claim_, rank).size();
    case OpKind::kAllToAll: break;
    default: return claim_.elems;
  }
  std::int64_t sum = 0;
  for (int from = 0; from < claim_.size; ++from) {
    sum += claim_.counts[static_cast<std::size_t>(from * claim_.size + rank)];
  }
  return sum;
}

// below: how many ranks, from 0 on, contribute.
Status OutputCheck::check_reduction(const Expression& value, int below) const {
  std::vector<int> all(static_cast<std::size_t>(below));
  std::iota(all.begin(), all.end(), 0);
  if (claim_.rank_order && !(value.left_fold && value.ranks == all)) {
    return {Code::kInternal, "is not a left fold in rank order"};
  }
  if (claim_.rank_order && below > 1 && value.roundings != 1) {
    return {Code::kInternal, format("is rounded %d times, not once", value.roundings)};
  }
  std::vector<int> ranks = value.ranks;
  std::ranges::sort(ranks);
  if (ranks != all) return {Code::kInternal, "does not hold every contribution exactly once"};
  const int finished = claim_.operation == OpKind::kExclusiveScan || below == 1 ? 0 : 1;
  if (value.finished == finished) return {};
  return {Code::kInternal, format("is finished %d times", value.finished)};
}

Status OutputCheck::check_stretch(int rank, std::int64_t begin, const Stretch& stretch) {
  std::int64_t wanted = begin;
  if (claim_.operation == OpKind::kReduceScatter) wanted += row_of(claim_, rank).begin;
  if (stretch.origin != wanted) return wrong_origin(stretch.origin, wanted);
  if (complete_.contains(stretch.value)) return {};
  const bool scan = claim_.operation == OpKind::kExclusiveScan;
  GW_TRY(check_reduction(*stretch.value, scan ? rank : claim_.size));
  if (!scan) complete_.insert(stretch.value);
  return {};
}

// Replicas are bit-identical only if they were combined in the same way.
Status OutputCheck::check_alike(const Contents& contents) const {
  std::size_t i = 0;
  std::size_t j = 0;
  std::int64_t end_i = 0;  // of contents[i] and first_[j]
  std::int64_t end_j = 0;
  while (i < contents.size() && j < first_.size()) {
    if (contents[i].value->order != first_[j].value->order) {
      return {Code::kInternal, format("elements from %lld on are combined in another order than on "
                                      "rank 0",
                                      static_cast<long long>(std::max(end_i, end_j)))};
    }
    const std::int64_t next_i = end_i + contents[i].size;
    const std::int64_t next_j = end_j + first_[j].size;
    if (next_i <= next_j) ++i, end_i = next_i;
    if (next_j <= next_i) ++j, end_j = next_j;
  }
  return {};
}

Status OutputCheck::check(int rank, std::int64_t elems, const SymbolicMemory& memory,
                          std::int64_t shift) {
  const std::string place = format("rank %d's kOut", rank);
  if (elems != wanted_elems(rank)) {
    return {Code::kInternal,
            place + format(" has %lld elements (expected %lld)", static_cast<long long>(elems),
                           static_cast<long long>(wanted_elems(rank)))};
  }
  if (claim_.operation == OpKind::kExclusiveScan && rank == 0) return {};
  const Result<Contents> held = memory.read({shift, shift + elems});
  if (!held.has_value()) return held.error().with_context(place);
  const Contents& contents = held.value();
  const bool reduction =
      claim_.operation == OpKind::kAllReduce || claim_.operation == OpKind::kReduce ||
      claim_.operation == OpKind::kReduceScatter || claim_.operation == OpKind::kExclusiveScan;
  std::int64_t at = 0;
  for (Stretch rest : contents) {
    while (rest.size > 0) {
      const Source source = reduction ? Source{} : source_at(claim_, rank, at, elems);
      const std::int64_t size = reduction ? rest.size : std::min(rest.size, source.left);
      Status status = reduction ? check_stretch(rank, at, rest) : check_moved(source, rest);
      if (!status.ok()) {
        return status.with_context(place + format("[%lld, %lld)", static_cast<long long>(at),
                                                  static_cast<long long>(at + size)));
      }
      at += size;
      rest.size -= size;
      rest.origin += size;
    }
  }
  if (claim_.operation != OpKind::kAllReduce) return {};
  if (rank == 0) first_ = contents;
  return check_alike(contents).with_context(place);
}

}  // namespace gradwire
