#include "collectives/schedules/symbolic_memory.h"

#include <algorithm>
#include <utility>

#include "base/philox.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::uint64_t kFinished = 0x46;  // what happened last, in Expression::order
constexpr std::uint64_t kRounded = 0x52;

// Consecutive elements of the same kind are one stretch.
void append(Contents& contents, Stretch stretch) {
  if (stretch.size == 0) return;
  if (!contents.empty()) {
    Stretch& last = contents.back();
    if (last.value == stretch.value && last.origin + last.size == stretch.origin) {
      last.size += stretch.size;
      return;
    }
  }
  contents.push_back(std::move(stretch));
}

Result<std::shared_ptr<const Expression>> sum_of(const Expression& a, const Expression& b) {
  if (a.finished + b.finished > 0) {
    return Status(Code::kInternal, "combines a finished reduction");
  }
  Expression sum = a;
  sum.left_fold = a.left_fold && b.ranks.size() == 1;
  sum.roundings += b.roundings;
  sum.order = mix64(a.order + mix64(b.order));
  sum.ranks.insert(sum.ranks.end(), b.ranks.begin(), b.ranks.end());
  return std::shared_ptr<const Expression>(std::make_shared<Expression>(std::move(sum)));
}

}  // namespace

Result<Contents> combine(const Contents& into, const Contents& from) {
  Contents sum;
  std::size_t i = 0;
  std::size_t j = 0;
  std::int64_t in_i = 0;  // elements of into[i] and from[j] that are done
  std::int64_t in_j = 0;
  while (i < into.size() && j < from.size()) {
    const std::int64_t size = std::min(into[i].size - in_i, from[j].size - in_j);
    if (into[i].origin + in_i != from[j].origin + in_j) {
      return Status(Code::kInternal, "combines different elements");
    }
    GW_ASSIGN(auto value, sum_of(*into[i].value, *from[j].value));
    append(sum, {size, into[i].origin + in_i, std::move(value)});
    in_i += size;
    in_j += size;
    if (in_i == into[i].size) ++i, in_i = 0;
    if (in_j == from[j].size) ++j, in_j = 0;
  }
  return sum;
}

Contents rounded(const Contents& contents, bool finish) {
  Contents result = contents;
  for (Stretch& stretch : result) {
    auto value = std::make_shared<Expression>(*stretch.value);
    if (finish) {
      ++value->finished;
      value->order = mix64(value->order ^ kFinished);
    }
    ++value->roundings;
    value->order = mix64(value->order ^ kRounded);
    stretch.value = std::move(value);
  }
  return result;
}

SymbolicMemory::SymbolicMemory(std::int64_t elems, bool given, int rank) : elems_(elems) {
  if (!given) return;
  const auto order = mix64(static_cast<std::uint64_t>(rank) + 1);
  own_ = std::make_shared<Expression>(Expression{.ranks = {rank}, .order = order});
}

Status SymbolicMemory::name(Range range, bool divisible) {
  if (range.begin < 0 || range.end < range.begin || range.end > elems_) {
    return {Code::kInternal, format("outside the buffer of %lld", static_cast<long long>(elems_))};
  }
  if (range.size() == 0 || !divisible) return {};
  const auto next = cells_.upper_bound(range.begin);
  bool overlaps = next != cells_.end() && next->first < range.end;
  if (next != cells_.begin()) {
    const auto& [begin, end] = *std::prev(next);
    if (begin == range.begin && end == range.end) return {};
    overlaps = overlaps || end > range.begin;
  }
  if (overlaps) return {Code::kInternal, "overlaps another cell without being it"};
  cells_[range.begin] = range.end;
  return {};
}

Result<Contents> SymbolicMemory::read(Range range) const {
  Contents contents;
  auto next = written_.upper_bound(range.begin);
  if (next != written_.begin()) --next;
  for (std::int64_t at = range.begin; at < range.end;) {
    while (next != written_.end() && next->first + next->second.size <= at) ++next;
    const bool here = next != written_.end() && next->first <= at;
    if (here) {
      const auto& [begin, stretch] = *next;
      const std::int64_t end = std::min(range.end, begin + stretch.size);
      append(contents, {end - at, stretch.origin + (at - begin), stretch.value});
      at = end;
      continue;
    }
    if (own_ == nullptr) return Status(Code::kInternal, "read before it was written");
    const std::int64_t end = next == written_.end() ? range.end : std::min(range.end, next->first);
    append(contents, {end - at, at, own_});
    at = end;
  }
  return contents;
}

void SymbolicMemory::split_at(std::int64_t at) {
  const auto next = written_.upper_bound(at);
  if (next == written_.begin()) return;
  auto& [begin, stretch] = *std::prev(next);
  if (begin == at || begin + stretch.size <= at) return;
  written_[at] = {begin + stretch.size - at, stretch.origin + (at - begin), stretch.value};
  stretch.size = at - begin;
}

void SymbolicMemory::write(Range range, const Contents& contents) {
  split_at(range.begin);
  split_at(range.end);
  written_.erase(written_.lower_bound(range.begin), written_.lower_bound(range.end));
  std::int64_t at = range.begin;
  for (const Stretch& stretch : contents) {
    written_[at] = stretch;
    at += stretch.size;
  }
}

}  // namespace gradwire
