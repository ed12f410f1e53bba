// A schedule: the messages and local steps of one collective on one rank. A plain value that can be
// printed, checked and simulated. docs/algorithms.md has the algorithms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradwire {

// Elements [begin, end) of one buffer.
struct Range {
  std::int64_t begin = 0;  // first element
  std::int64_t end = 0;    // one past the last element
  // The number of elements.
  constexpr std::int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// Shard i of `elems` elements divided among `parts` ranks, 0 <= i < parts: the first elems % parts
// shards are one element longer. Shards may be empty.
constexpr Range piece(std::int64_t elems, int parts, int i) {
  const std::int64_t base = elems / parts;
  const std::int64_t extra = elems % parts;
  const std::int64_t begin = i * base + (i < extra ? i : extra);
  return {begin, begin + base + (i < extra ? 1 : 0)};
}

// kIn: the operation's input. kOut: its output, which is the same memory in place. kScratch: memory
// of the executor's.
enum class BufferId : std::uint8_t { kIn, kOut, kScratch };

// A range of elements in one of the buffers.
struct Place {
  BufferId buffer = BufferId::kOut;  // which buffer
  Range range = {};                  // its elements
  friend bool operator==(const Place&, const Place&) = default;
};

// One message or one local operation, as `op` says:
//   kSend        sends `from` to the peer
//   kRecvReduce  receives a message and combines it: to = to op message
//   kRecvCopy    receives a message: to = message
//   kCopy        local: to = from
//   kReduce      local: to = to op from
//   kFinish      local: `to` holds a complete reduction; a mean is multiplied by 1/size now
struct Step {
  // The kind of step.
  enum class Op : std::uint8_t { kSend, kRecvReduce, kRecvCopy, kCopy, kReduce, kFinish } op;
  int peer = -1;    // group rank of the other side; -1 for a local operation
  Place from = {};  // read by kSend, kCopy and kReduce
  Place to = {};    // written by all others
};

// A round. Its messages may all be in flight at the same time; rounds run one after another.
// Messages of kRecvReduce arrive in memory of the executor's. Once all messages of the round are
// complete, the executor combines them in the order of the steps, and then runs the local steps in
// order. A round may therefore send the elements that it reduces into. Consecutive reductions into
// one place, with a kFinish after them, count as one reduction: f16 and bf16 are added in f32 and
// rounded once.
using Round = std::vector<Step>;

// The schedule of one operation on one rank.
//
// In a divisible schedule any two ranges of one buffer are equal or disjoint. An executor may split
// every range in the same way into chunks, and run the chunks as independent schedules. In a
// schedule that is not divisible ranges may nest, and it runs as a whole. In both, the two places
// of a step, and of a send and its receive, have equal sizes. The schedules of all ranks of one
// operation agree in `divisible` and `fan_in`.
struct Schedule {
  int rank = 0;                    // the group rank that runs it
  int size = 1;                    // number of ranks in the group
  std::int64_t in_elems = 0;       // elements of kIn
  std::int64_t out_elems = 0;      // elements of kOut
  std::int64_t scratch_elems = 0;  // elements of kScratch
  bool in_place = false;           // kIn and kOut are the same memory
  bool divisible = true;           // ranges may be split into chunks, as above
  int fan_in = 1;                  // the largest number of messages that one round of any rank
                                   // keeps in scratch memory
  std::vector<Round> rounds = {};  // in order; empty if `stretches` is used
  // Used instead of `rounds` where a schedule that is not divisible would send messages too large
  // for a cache: the same operation on consecutive chunks of kIn and kOut, each with ranges and
  // scratch memory of its own. The chunks may run at the same time.
  std::vector<Schedule> stretches = {};
};

// The rounds as a table for people; `gradwire inspect schedule` prints it.
std::string to_string(const Schedule& schedule);

}  // namespace gradwire
