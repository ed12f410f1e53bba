// Who sends which elements to whom, and when: a plain value that can be printed, counted and
// simulated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradwire {

// Elements [begin, end) of one buffer.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  constexpr std::int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// Piece i of `parts`; the first elems % parts pieces are one element longer. Pieces may be empty.
constexpr Range piece(std::int64_t elems, int parts, int i) {
  const std::int64_t base = elems / parts;
  const std::int64_t extra = elems % parts;
  const std::int64_t begin = i * base + (i < extra ? i : extra);
  return {begin, begin + base + (i < extra ? 1 : 0)};
}

// The operation's input, its output (the same memory when in place) and the executor's own.
enum class BufferId : std::uint8_t { kIn, kOut, kScratch };

struct Place {
  BufferId buffer = BufferId::kOut;
  Range range = {};
  friend bool operator==(const Place&, const Place&) = default;
};

// Sends read `from`; receives write `to`; local steps do what they say:
//   kRecvReduce  to = to op message, the message's elements in order
//   kCopy        to = from
//   kReduce      to = to op from
//   kFinish      `to` now holds a complete reduction: times 1/size for a mean, else nothing
struct Step {
  enum class Op : std::uint8_t { kSend, kRecvReduce, kRecvCopy, kCopy, kReduce, kFinish } op;
  int peer = -1;  // group rank; -1 for local steps
  Place from = {};
  Place to = {};
};

// The messages of a round may all be in flight at once; rounds are in order. What kRecvReduce gets
// lands in memory of the executor's own and is reduced when all messages of the round are done, in
// the order of the steps; then its local steps run in order. So a round may send what it reduces
// into. Reductions into one place that follow one another, and a kFinish behind them, are one
// reduction: f16 and bf16 are added in f32 and rounded once.
using Round = std::vector<Step>;

// Cells: in a divisible schedule any two ranges of one buffer are equal or disjoint, so whoever
// runs it may cut every cell in the same way and run the cuts as independent schedules. In any
// other, ranges may nest, and it runs in one cut. The two places of a step (or of a send and its
// receive) have equal sizes in either. All ranks' schedules of one operation are alike in this.
struct Schedule {
  int rank = 0;
  int size = 1;
  std::int64_t in_elems = 0;
  std::int64_t out_elems = 0;
  std::int64_t scratch_elems = 0;
  bool in_place = false;  // kIn and kOut are the same memory
  bool divisible = true;
  int fan_in = 1;  // on some rank so many messages of a round wait in scratch; equal on all ranks
  std::vector<Round> rounds = {};
  // Instead of rounds, for tensors that an indivisible schedule would move in messages too large to
  // stay in a cache: the same operation on consecutive stretches of kIn and kOut, each with ranges
  // and scratch of its own. They may run at the same time.
  std::vector<Schedule> stretches = {};
};

// A table of rounds for people; what `gradwire inspect schedule` prints.
std::string to_string(const Schedule& schedule);

}  // namespace gradwire
