// split(): who is in which group, and a communicator id that is free on all of its members.
//
//   1  everybody gathers (color, key)
//   2  everybody gathers the ids that are free on each rank; the members of a group choose the
//      smallest that is free on all of them. Groups may choose alike: their members are disjoint.
//   3  everybody claims the id on its own engine and says whether that worked. It fails when
//      another split, of another communicator and from another thread, was quicker on some rank:
//      then all try again, each time looking a little further.
#include <algorithm>
#include <bit>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "collectives/group_communicator.h"

namespace gradwire {
namespace {

constexpr int kAttempts = 8;

// All ranks' `own`, one after another.
template <typename T>
Result<std::vector<T>> gathered(Communicator& communicator, const std::vector<T>& own) {
  std::vector<T> all(own.size() * static_cast<std::size_t>(communicator.size()));
  GW_ASSIGN(Work work, communicator.all_gather(const_view_of(std::span<const T>(own)),
                                               view_of(std::span<T>(all))));
  GW_TRY(work.wait());
  return all;
}

// The n-th set bit, counted from 0; -1 if there are fewer.
int nth_bit(const std::vector<std::uint64_t>& bits, int n) {
  for (std::size_t i = 0; i < bits.size(); ++i) {
    for (std::uint64_t word = bits[i]; word != 0; word &= word - 1) {
      if (n-- == 0) return static_cast<int>(i) * 64 + std::countr_zero(word);
    }
  }
  return -1;
}

}  // namespace

// The id of this rank's group, claimed on this rank; -1 if this attempt failed on some rank.
Result<int> GroupCommunicator::agree_on_id(int color, const std::vector<std::int64_t>& colors,
                                           int attempt) {
  const std::vector<std::uint64_t> own = engine_->free_ids();
  GW_ASSIGN(const std::vector<std::int64_t> all,
            gathered(*this, std::vector<std::int64_t>(own.begin(), own.end())));
  std::vector<std::uint64_t> common(own.size(), ~std::uint64_t{0});
  for (std::size_t r = 0; r < group_->size(); ++r) {
    if (colors[2 * r] != color) continue;
    for (std::size_t i = 0; i < own.size(); ++i) {
      common[i] &= static_cast<std::uint64_t>(all[r * own.size() + i]);
    }
  }
  // Communicators look in different places after a clash.
  const int id = color < 0 ? -1 : nth_bit(common, attempt * (group_->id() + 1));
  const bool claimed = id >= 0 && engine_->claim_id(id);
  const std::vector<std::int64_t> verdict{color < 0 || claimed ? 1 : 0};
  auto verdicts = gathered(*this, verdict);
  const bool good = verdicts.has_value() &&
                    std::ranges::all_of(verdicts.value(), [](std::int64_t v) { return v == 1; });
  if (claimed && !good) engine_->release_id(id);
  if (!verdicts.has_value()) return verdicts.error();
  if (good) return color < 0 ? kNoGroup : id;
  return kTryAgain;
}

// By messages alone.
Result<std::unique_ptr<GroupCommunicator>> GroupCommunicator::split_messages(int color, int key) {
  GW_ASSIGN(const std::vector<std::int64_t> colors,
            gathered(*this, std::vector<std::int64_t>{color < 0 ? -1 : color, key}));
  const int own_color = color < 0 ? -1 : color;
  int id = kTryAgain;
  for (int attempt = 0; attempt < kAttempts && id == kTryAgain; ++attempt) {
    GW_ASSIGN(id, agree_on_id(own_color, colors, attempt));
  }
  if (id == kTryAgain) {
    return Status(
        Code::kInternal,
        format("split: no communicator id was free on all members in %d attempts (at most "
               "%d communicators at a time)",
               kAttempts, CommunicatorIds::kIds));
  }
  if (id == kNoGroup) return std::unique_ptr<GroupCommunicator>();
  std::vector<std::pair<std::int64_t, int>> members;  // (key, old rank)
  for (int r = 0; r < size(); ++r) {
    const auto at = static_cast<std::size_t>(2 * r);
    if (colors[at] == own_color) members.emplace_back(colors[at + 1], r);
  }
  std::ranges::sort(members);
  std::vector<int> group;
  int rank = 0;
  for (const auto& [member_key, old_rank] : members) {
    if (old_rank == this->rank()) rank = static_cast<int>(group.size());
    group.push_back(job_rank(old_rank));
  }
  return std::make_unique<GroupCommunicator>(group_->engine(), std::move(group), rank, id,
                                             group_->options(), group_->segmentation());
}

}  // namespace gradwire
