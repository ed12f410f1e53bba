// How the ranks that are left agree on who they are. Facts go in, messages come out: no transport,
// no clock.
//
// Each rank proposes the set of ranks that it holds for lost, and takes over what others propose;
// sets only grow, so at most as many proposals follow as ranks are lost. A rank is ready when
// everybody that it holds for alive proposes the same set, and goes on when all these are ready.
// Whoever dies meanwhile makes the sets grow, and it begins again. A rank that went on and hears of
// a larger set afterwards has to vote again (ProgressEngine sees to that), so that nobody stays
// behind.
//
// A network that falls apart leaves several sets of ranks, each of which holds the others for lost.
// Only one may go on: the larger one; of two equal ones that with the lowest rank. Ranks whose end
// is certain (the kernel reset their connection, their process is stopped) are on no side.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace gradwire {

struct Proposal {
  std::uint32_t generation = 0;  // the highest that the rank has been in
  bool ready = false;
  std::vector<int> lost = {};     // ascending
  std::vector<int> certain = {};  // of these
  friend bool operator==(const Proposal&, const Proposal&) = default;
};

class SurvivorVote {
 public:
  // Among `group` (ascending, `self` among them).
  SurvivorVote(int self, std::vector<int> group, std::uint32_t generation);

  // What this rank has found out itself. Ranks outside the group are ignored, and so is everything
  // once the vote has ended: the others ended it without knowing; it is for the next one.
  void lose(int rank, bool certain);
  void hear(int from, const Proposal& proposal);

  // To be told to audience() whenever it changes, and now and then to those who came late.
  const Proposal& proposal() const { return own_; }
  std::vector<int> audience() const;
  // Of the audience: who has proposed nothing so far.
  std::vector<int> absent() const;

  enum class State : std::uint8_t {
    kOpen,
    kAgreed,
    kIsolated,  // another side goes on, without this rank
  };
  State state() const { return state_; }
  // With kAgreed, the same on all survivors: who they are, and a generation that is new to all.
  std::vector<int> survivors() const;
  std::uint32_t next_generation() const;

 private:
  bool is_lost(int rank) const { return lost_.contains(rank); }
  void update();
  bool outvoted() const;

  int self_;
  std::vector<int> group_;
  std::set<int> lost_;
  std::set<int> certain_;
  std::map<int, Proposal> heard_;  // the last one of each rank
  Proposal own_;
  State state_ = State::kOpen;
};

}  // namespace gradwire
