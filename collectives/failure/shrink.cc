#include "collectives/failure/shrink.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <span>
#include <string>

#include "base/hash.h"
#include "base/text.h"
#include "collectives/failure/notes.h"
#include "collectives/failure/roll_call.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

// Proposals are told again this often: a rank that had not failed yet has only failed because of
// the first one.
constexpr auto kAgain = std::chrono::milliseconds(150);
// To ask the launcher's store: heartbeats wait meanwhile.
constexpr auto kAsking = std::chrono::milliseconds(1000);
constexpr auto kNap = std::chrono::milliseconds(20);
// For the vote without those who have not come by the deadline.
constexpr auto kGrace = std::chrono::milliseconds(600);
// Nothing lasts longer than this beyond the deadline.
constexpr auto kOvertime = std::chrono::milliseconds(1000);

class Shrinking {
 public:
  Shrinking(Transport& transport, const ShrinkCall& call, const FlightRecorder& recorder)
      : transport_(transport),
        call_(call),
        recorder_(recorder),
        vote_(first_vote()),
        until_(call.deadline) {}

  Result<Survivors> run() {
    while (true) {
      GW_TRY(look());
      const Deadline now = Clock::now();
      tell(now);
      if (vote_.state() == SurvivorVote::State::kIsolated) {
        leave();
        return isolated();
      }
      if (vote_.state() == SurvivorVote::State::kAgreed) {
        GW_TRY(take_token());
        Survivors survivors{vote_.survivors(), vote_.proposal().lost, vote_.next_generation()};
        GW_ASSIGN(const bool rebuilt, rebuild());
        if (rebuilt) return survivors;
        continue;
      }
      GW_TRY(on_deadline(now));
      GW_TRY(transport_.wait(std::min(until_, now + kNap)));
    }
  }

 private:
  // Whom an earlier shrink left behind, too: so one who calls a second time, for a rank that died
  // while the first went on, can meet one who is still in its first.
  std::vector<int> everybody() const {
    std::vector<int> all;
    std::ranges::set_union(call_.group, call_.left_behind, std::back_inserter(all));
    return all;
  }

  SurvivorVote first_vote() const {
    SurvivorVote vote(
        transport_.rank(), everybody(), call_.attempt.generation,
        {.by_token = static_cast<bool>(call_.take_token), .allow_lone = call_.allow_lone_survivor});
    for (const int rank : call_.left_behind) vote.lose(rank, true);
    for (const int rank : call_.attempt.lost) {
      vote.lose(rank, std::ranges::binary_search(call_.attempt.certain, rank));
    }
    return vote;
  }

  // What the transport and the others have to say.
  Status look() {
    GW_TRY(transport_.progress().error());
    for (const LostPeer& lost : transport_.all_lost()) {
      if (lost.rank == transport_.rank()) {
        return {Code::kPeerLost, format("shrink: the others go on without rank %d: %s", lost.rank,
                                        lost.reason.c_str())};
      }
      vote_.lose(lost.rank, lost.certain);
    }
    for (const Note& note : transport_.take_notes()) hear(note);
    return {};
  }

  void hear(const Note& note) {
    const auto heard = decode_note(note.bytes, transport_.size());
    if (!heard) return;
    if (heard->kind == EngineNote::Kind::kAsk) {
      answer(transport_, note.from, *heard, recorder_, call_.failure);
    }
    if (heard->communicator != call_.communicator) return;
    if (heard->kind != EngineNote::Kind::kPropose) return;
    came_.insert(note.from);
    vote_.hear(note.from, heard->proposal);
  }

  void tell(Deadline now) {
    const Proposal& own = vote_.proposal();
    if (own == told_ && now < tell_again_) return;
    told_ = own;
    tell_again_ = now + kAgain;
    const EngineNote note{
        .kind = EngineNote::Kind::kPropose, .communicator = call_.communicator, .proposal = own};
    for (const int rank : vote_.audience()) transport_.tell(rank, encode(note));
  }

  // Those who have said nothing by the deadline are not coming. They may live, and come later,
  // together, or be beyond a network that fails: look() finds them among the lost, as another side.
  // There is one more chance then, also where another rank, whose deadline was earlier, has just
  // said who is missing.
  Status on_deadline(Deadline now) {
    if (now < until_) return {};
    std::vector<int> absent = vote_.absent();
    std::erase_if(absent, [&](int rank) { return came_.contains(rank); });
    if (last_call_) {
      return {Code::kTimedOut, format("shrink: rank %d found no agreement with %s",
                                      transport_.rank(), ranks_text(vote_.audience()).c_str())};
    }
    last_call_ = true;
    until_ = now + kGrace;
    for (const int rank : absent) {
      transport_.announce(
          {.rank = rank, .reason = "did not join shrink", .cause = LossCause::kLeftBehind});
    }
    return {};
  }

  Status isolated() const {
    const std::vector<int> here = vote_.survivors();
    const std::string lost = ranks_text(vote_.proposal().lost);
    if (here.size() == 1) {
      return {Code::kPeerLost,
              format("shrink: rank %d is isolated: %s may go on without it, and it does not go on "
                     "alone; provide a launcher's store, or set allow_lone_survivor",
                     here.front(), lost.c_str())};
    }
    return {Code::kPeerLost,
            format("shrink: rank %d is isolated with %s: %s may go on without them",
                   transport_.rank(), ranks_text(here).c_str(), lost.c_str())};
  }

  // Those whom only the vote holds for lost, since another rank of this side said so, still hear
  // this rank, which ends: they are not to wait for it. Where nobody has been called lost so far
  // they would be told that they are given up, and are left alone.
  void leave() {
    if (!transport_.lost()) return;
    for (const int rank : vote_.proposal().lost) {
      transport_.announce(
          {.rank = rank, .reason = "continues without this rank", .cause = LossCause::kLeftBehind});
    }
  }

  // Which of several sides goes on, where the launcher's store decides.
  //
  // The tokens of a communicator form a chain, from 1 on: each is written once and names the ranks
  // that went on with it, as "GENERATION:RANK,RANK,...". Who wants to go on walks the chain from
  // its begin and writes the first token that nobody has. A token that does not name a rank shows
  // it that others have gone on without it: it never gets a later one. So all ranks see one
  // history, whatever number of tries or of shrinks each of them has behind it, and of two sides
  // one finds the other's token.
  //
  // Each of those who have agreed asks for itself; all learn the same. "" when they have the token,
  // else the ranks that have gone on without this one, for people. Errors: of the store; kTimedOut.
  Result<std::string> walk_chain(Deadline until) {
    // The ranks of the communicator and those it lost in earlier shrinks name the chain, so it is
    // the same on all sides.
    const std::vector<int> all = everybody();
    const std::string chain = format(
        "shrink/%016llx/",
        static_cast<unsigned long long>(hash_bytes(std::as_bytes(std::span(all)), all.size())));
    // Two tries of the same ranks differ in the generation: each has a token of its own.
    const std::string own =
        format("%u:", vote_.next_generation()) + numbers_text(vote_.survivors(), ",");
    const std::string self = "," + std::to_string(transport_.rank()) + ",";
    while (Clock::now() < until) {
      GW_ASSIGN(const std::string held,
                call_.take_token(chain + std::to_string(next_token_), own, until));
      if (held == own) return std::string();
      const std::string ranks = held.substr(held.find(':') + 1);
      if (("," + ranks + ",").find(self) == std::string::npos) return ranks;
      ++next_token_;
    }
    return Status(Code::kTimedOut, "the chain of tokens did not end in time");
  }

  // Whether this side has the launcher's token; also where nobody contests it, so that who is left
  // out now, alive or not, finds that out there whenever it comes.
  Status take_token() {
    if (!call_.take_token) return {};
    const Deadline until = std::min(Clock::now() + kAsking, call_.deadline + kOvertime);
    const auto others = walk_chain(until);
    const int self = transport_.rank();
    if (others.has_value() && !others.value().empty()) {
      return {
          Code::kPeerLost,
          format("shrink: rank %d is isolated: the others, %s, have the launcher's token and go "
                 "on without it",
                 self, others.value().c_str())};
    }
    // Who has ended, or knows that it is left behind, takes no token.
    if (others.has_value() || !vote_.contested()) return {};
    if (call_.allow_lone_survivor && vote_.survivors().size() == 1) return {};
    return {Code::kPeerLost,
            format("shrink: rank %d is isolated: %s may go on without it, and the launcher's store "
                   "does not answer: %s",
                   self, ranks_text(vote_.proposal().lost).c_str(),
                   std::string(others.error().message()).c_str())};
  }

  // False: somebody was lost meanwhile, or has given the try up, and there is another vote. What is
  // left of the failed try, addresses and greetings, bears its number and is of no use to the next.
  Result<bool> rebuild() {
    const Deadline end = call_.deadline + kOvertime;
    call_.attempt = vote_.proposal();
    call_.attempt.generation = vote_.next_generation();
    const Status rebuilt = transport_.rebuild(vote_.survivors(), call_.attempt.generation,
                                              std::min(until_ + kGrace, end));
    if (rebuilt.ok()) return true;
    if (rebuilt.code() != Code::kPeerLost) return rebuilt;
    until_ = std::min(std::max(until_, Clock::now() + kGrace), end);
    vote_ = first_vote();
    return false;
  }

  Transport& transport_;
  const ShrinkCall& call_;
  const FlightRecorder& recorder_;
  SurvivorVote vote_;
  Deadline until_;
  std::uint32_t next_token_ = 1;  // all before it name this rank
  std::set<int> came_;            // have proposed something in this call, be it in an earlier vote
  bool last_call_ = false;
  Proposal told_;
  Deadline tell_again_{};
};

}  // namespace

Result<Survivors> agree_and_rebuild(Transport& transport, const ShrinkCall& call,
                                    const FlightRecorder& recorder) {
  if (!transport.caps().notes) {
    return Status(Code::kUnsupported, "shrink: " + transport.describe() + " cannot go on");
  }
  return Shrinking(transport, call, recorder).run();
}

}  // namespace gradwire
