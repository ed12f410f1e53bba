#include "collectives/plan/group_agreement.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "base/hash.h"
#include "base/text.h"
#include "collectives/schedules/selection.h"

namespace gradwire {
namespace {

constexpr int kAttempts = 8;
// Of the slots that a channel has room for, no operation uses the last (Group).
constexpr std::uint32_t kLastSlot = 15;
constexpr std::uint64_t kOperationBits = 0xfffff;

// The n-th set bit, counted from 0; -1 if there are fewer.
int nth_bit(const std::vector<std::uint64_t>& bits, int n) {
  for (std::size_t i = 0; i < bits.size(); ++i) {
    for (std::uint64_t word = bits[i]; word != 0; word &= word - 1) {
      if (n-- == 0) return static_cast<int>(i) * 64 + std::countr_zero(word);
    }
  }
  return -1;
}

std::uint64_t hash_of(const std::vector<int>& members) {
  return hash_bytes(std::as_bytes(std::span(members)));
}

// Of the tag: one for lists of the same ranks in any order, which then turn out to differ.
std::uint64_t hash_of_set(std::vector<int> members) {
  std::ranges::sort(members);
  return hash_of(members);
}

Route route_among(const Group& group, const std::vector<int>& members) {
  std::vector<int> job_ranks;
  for (const int r : members) job_ranks.push_back(group.job_rank(r));
  return {.group = std::make_shared<const std::vector<int>>(std::move(job_ranks)),
          .communicator = static_cast<std::uint32_t>(group.id()),
          .operation = hash_of_set(members) & kOperationBits,
          .first_channel = first_channel(false, DType::kI64) | kLastSlot};
}

}  // namespace

// GroupMembers that are at different calls for the same list meet in order, since messages of one
// tag between two ranks do.
Result<std::vector<std::int64_t>> gather_among(Group& group, const std::vector<int>& members,
                                               std::span<const std::int64_t> own,
                                               std::string_view what) {
  const std::uint64_t hash = hash_of(members);
  const auto size = static_cast<int>(members.size());
  const auto self = std::ranges::find(members, group.rank()) - members.begin();
  std::vector<std::int64_t> mine{static_cast<std::int64_t>(hash)};
  mine.insert(mine.end(), own.begin(), own.end());
  std::vector<std::int64_t> all(mine.size() * members.size());
  auto layout = std::make_shared<const Layout>(
      make_schedule(OpKind::kAllGather, "bruck", static_cast<int>(self), size,
                    static_cast<std::int64_t>(mine.size())),
      DType::kI64, Segmentation{.slots = 1});
  const Operands operands{.in = reinterpret_cast<const std::byte*>(mine.data()),
                          .out = reinterpret_cast<std::byte*>(all.data())};
  auto work = std::make_shared<WorkState>(group.engine());
  GW_TRY(group.submit(std::make_unique<Operation>(
                          Operation{.signature = {.name = what},
                                    .collective = false,
                                    .execution = std::make_unique<Execution>(
                                        std::move(layout), operands, route_among(group, members)),
                                    .work = work,
                                    .bytes_sent = group.message_bytes()}),
                      std::nullopt));
  GW_TRY(Work(std::move(work)).wait());
  std::vector<std::int64_t> gathered;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const auto its = std::span(all).subspan(m * mine.size(), mine.size());
    if (its.front() != mine.front()) {
      return Status(Code::kRankMismatch, format("%s: rank %d has another list of %d ranks",
                                                std::string(what).c_str(), members[m], size));
    }
    gathered.insert(gathered.end(), its.begin() + 1, its.end());
  }
  return gathered;
}

// GroupMembers choose the smallest id that is free on all of them, claim it on their engines and
// say whether that worked. It fails when another thread, for another group, was quicker on some
// rank: then all try again, each time looking a little further.
Result<int> claim_common_id(Group& group, const std::vector<int>& members, std::string_view what) {
  ProgressEngine& engine = *group.engine();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::vector<std::uint64_t> free = engine.free_ids();
    const std::vector<std::int64_t> own(free.begin(), free.end());
    GW_ASSIGN(const auto all, gather_among(group, members, own, what));
    std::vector<std::uint64_t> common(own.size(), ~std::uint64_t{0});
    for (std::size_t i = 0; i < all.size(); ++i) {
      common[i % own.size()] &= static_cast<std::uint64_t>(all[i]);
    }
    // Communicators look in different places after a clash.
    const int id = nth_bit(common, attempt * (group.id() + 1));
    const bool claimed = id >= 0 && engine.claim_id(id);
    const std::int64_t success = claimed ? 1 : 0;
    const auto successes = gather_among(group, members, std::span(&success, 1), what);
    const bool good = successes.has_value() && std::ranges::min(successes.value()) == 1;
    if (good) return id;
    if (claimed) engine.release_id(id);
    if (!successes.has_value()) return successes.error();
  }
  return Status(Code::kInternal,
                format("%s: no communicator id was free on all members in %d attempts (at most %d "
                       "communicators at a time)",
                       std::string(what).c_str(), kAttempts, CommunicatorIds::kIds));
}

}  // namespace gradwire
