// How the ranks that are left agree on who they are. Facts go in, messages come out: no transport,
// no clock.
//
// Each rank proposes the set of ranks that it holds for lost, and takes over what others propose;
// sets only grow, so at most as many proposals follow as ranks are lost. A rank is ready when
// everybody that it holds for alive proposes the same set, and goes on when all these are ready.
// A rank that dies meanwhile makes the sets grow, and it begins again. The same holds for the
// generation: each rank proposes the highest that anybody has tried, and all propose the same one
// in the end, so that the next one is new to all. A rank that went on and hears of a larger set
// afterwards has to vote again (ProgressEngine sees to that), so that nobody stays behind.
//
// A network that falls apart leaves several sets of ranks, each of which holds the others for lost.
// Only one may go on: the larger one; of two equal ones that with the lowest rank. One rank alone
// does not: that all others are out of its reach is rather its own fault. Ranks whose end is
// certain (the process table of their host says that they have ended or are stopped) are on no
// side. Where a token decides instead, the vote says only that it is needed (contested()).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace gradwire {

struct Proposal {
  std::uint32_t generation = 0;  // the highest that the rank has tried, or has heard of
  bool ready = false;
  std::vector<int> lost = {};     // ascending
  std::vector<int> certain = {};  // of these
  friend bool operator==(const Proposal&, const Proposal&) = default;
};

// Which side goes on.
struct SideRule {
  bool by_token = false;    // all may agree; then the token decides
  bool allow_lone = false;  // one rank alone, too
};

// Whether `here` (not empty) ends, since `beyond`, who may live on out of its reach, may go on.
// Both ascending; those who certainly have ended are in neither. Nothing is known of what the ranks
// beyond think of each other: they count as one side.
bool outvoted(const std::vector<int>& here, const std::vector<int>& beyond, const SideRule& rule);

class SurvivorVote {
 public:
  // Among `group` (ascending, `self` among them). `generation`: the highest that this rank has
  // tried, whether it came about or not.
  SurvivorVote(int self, std::vector<int> group, std::uint32_t generation,
               const SideRule& rule = {});

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
  // Some of the lost may live on, beyond a network that fails, and go on themselves.
  bool contested() const { return !beyond().empty(); }
  // With kAgreed, the same on all survivors: who they are, and a generation that is new to all.
  std::vector<int> survivors() const;
  std::uint32_t next_generation() const { return own_.generation + 1; }

 private:
  bool is_lost(int rank) const { return lost_.contains(rank); }
  void update();
  std::vector<int> beyond() const;

  int self_;
  std::vector<int> group_;
  SideRule rule_;
  std::set<int> lost_;
  std::set<int> certain_;
  std::map<int, Proposal> heard_;  // the last one of each rank
  Proposal own_;
  State state_ = State::kOpen;
};

}  // namespace gradwire
