// What the ranks of one process do when one of them is gone: notes, and going on without it.
#include <algorithm>

#include "base/text.h"
#include "comm/inproc/hub.h"

namespace gradwire::inproc {

bool Hub::is_member(int rank, int of) const {
  const auto& members = ranks_[static_cast<std::size_t>(of)].members;
  return !members || std::ranges::binary_search(*members, rank);
}

void Hub::tell(int rank, int peer, ConstByteSpan note) {
  const std::lock_guard lock(mutex_);
  const Rank& self = at(rank);
  Rank& other = at(peer);
  if (self.gone || self.silent_after || other.gone || other.closed) return;
  other.notes.push_back({rank, {note.begin(), note.end()}});
  other.woken = true;
  other.news.notify_one();
}

std::vector<Note> Hub::take_notes(int rank) {
  const std::lock_guard lock(mutex_);
  Rank& self = at(rank);
  if (self.gone || self.silent_after) return {};
  return std::exchange(self.notes, {});
}

// Threads of one process cannot be parted: who is gone is gone for certain.
std::vector<LostPeer> Hub::all_lost(int rank) {
  const std::lock_guard lock(mutex_);
  look_for_silence();
  std::vector<LostPeer> lost;
  for (int r = 0; r < size(); ++r) {
    if (!is_member(r, rank)) continue;
    if (at(r).gone) lost.push_back({.rank = r, .reason = *at(r).gone, .certain = true});
    if (at(r).closed && r != rank) {
      lost.push_back({.rank = r, .reason = "closed", .certain = true, .cause = LossCause::kClosed});
    }
  }
  return lost;
}

void Hub::sever(int rank) {
  std::unique_lock lock(mutex_);
  Rank& self = at(rank);
  self.severed = true;
  fail_all(rank, Status(Code::kCancelled, format("rank %d severed its connections", rank)));
  // A copy that has begun ends by itself: it waits for nobody.
  self.news.wait(lock, [&] { return self.copying == 0; });
}

Status Hub::rebuild(int rank, std::span<const int> survivors, std::uint32_t generation) {
  const std::lock_guard lock(mutex_);
  Rank& self = at(rank);
  for (const int survivor : survivors) {
    if (!at(survivor).gone && !at(survivor).closed) continue;
    return {Code::kPeerLost, format("rank %d lost: %s", survivor,
                                    at(survivor).closed ? "closed" : at(survivor).gone->c_str())};
  }
  fail_all(rank,
           Status(Code::kCancelled, format("rank %d begins generation %u", rank, generation)));
  self.members.emplace(survivors.begin(), survivors.end());
  self.generation = generation;
  self.lost.reset();
  self.severed = false;
  return {};
}

}  // namespace gradwire::inproc
