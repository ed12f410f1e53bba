// How runs of one schedule use messages and memory: what a cell is cut into, and where its cuts
// lie.
//
// Large cells are cut into segments, and segment c of every cell together is a schedule of its own,
// cut c (that is what the cells' rule of schedule.h is for). Slot s runs the cuts s, s + slots, ...
// one after another. A schedule that is not divisible runs in one cut, or in one for each of its
// stretches.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/schedules/schedules.h"
#include "gradwire/schedule.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Equal on all ranks of a job: they decide which message is which.
struct Segmentation {
  // As in TransportCaps. 512 KiB was measured with one copy per message between two ranks of one
  // host: at 16 MiB it beat 256 KiB by a fifth, at 1 and 64 MiB they were alike; four slots of it
  // are one core's 2 MiB of L2.
  std::size_t segment_bytes = 512 << 10;  // of one message of a divisible schedule, at most
  std::size_t least_segment_bytes = 512 << 10;
  int slots = 4;            // cuts in flight, at most 128
  bool ends_short = false;  // as Cuts has it; of messages of which one rank alone knows the length
};

// How the elements of a cell are cut into messages, equal on all ranks.
//
// Parts of `most` elements at most, at least one. They are about as long as each other; or, with
// `ends_short`, all but the last have `most` and the last has fewer, perhaps none: then a rank that
// takes another number of elements than it is sent meets a part of another length than it takes.
class Cuts {
 public:
  Cuts(std::int64_t elems, std::int64_t most, bool ends_short)
      : elems_(elems), most_(most), ends_short_(ends_short) {}

  // Without a division: most messages of small operations are whole, and each is looked at often.
  bool whole() const { return ends_short_ ? elems_ < most_ : elems_ <= most_; }
  int count() const {
    if (whole()) return 1;
    const std::int64_t parts = ends_short_ ? elems_ / most_ + 1 : (elems_ + most_ - 1) / most_;
    return static_cast<int>(std::max<std::int64_t>(1, parts));
  }
  // The first one is the longest.
  Range operator[](int part) const {
    if (whole() && part == 0) return {0, elems_};
    if (!ends_short_) return piece(elems_, count(), part);
    const std::int64_t begin = part * most_;
    return {begin, std::min(elems_, begin + most_)};
  }

 private:
  std::int64_t elems_;
  std::int64_t most_;
  bool ends_short_;
};

// Which of the caller's tensors pass through the slots (staging.h), as scratch always does.
struct StagedTensors {
  bool in = false;
  bool out = false;
  auto operator<=>(const StagedTensors&) const = default;
};

// Immutable, and shared by all runs.
class Layout {
 public:
  // Where a stretch begins, in elements.
  struct Begin {
    std::int64_t in = 0;
    std::int64_t out = 0;
  };

  Layout(Schedule schedule, DType dtype, Segmentation segmentation, StagedTensors staged = {});
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  const Schedule& schedule() const { return schedule_; }
  DType dtype() const { return dtype_; }
  int slots() const { return segmentation_.slots; }
  int cuts() const { return cuts_; }
  // Whether a send or a receive is all that there is to do.
  bool is_message() const {
    return begins_.empty() && schedule_.rounds.size() == 1 && schedule_.rounds[0].size() == 1 &&
           schedule_.rounds[0][0].peer >= 0 && schedule_.rounds[0][0].op != Step::Op::kRecvReduce;
  }
  // Scratch memory that one slot needs.
  std::size_t slot_bytes() const { return slot_bytes_; }

  // The schedule of a cut.
  const Schedule& part(int cut) const;
  // What is to be done in a round of it behind its messages, in order.
  const std::vector<const Step*>& actions(int cut, std::size_t round) const;
  Begin begin(int cut) const;
  // Whether a cut has elements of a step, or of cells of that length.
  bool takes_part(const Step& step, int cut) const { return takes_part(elems_of(step), cut); }
  bool takes_part(std::int64_t elems, int cut) const;
  // The cut of a cell of that length.
  Range cut_of(std::int64_t elems, int cut) const;
  // kIn of a schedule in place is another name for kOut.
  BufferId home_of(BufferId buffer) const;
  // Whether such cells lie in slots, not where the caller has them.
  bool in_slots(BufferId home) const;
  // Bytes from the slot's beginning: of a cell that lies there, and of a message of a round that
  // waits to be reduced, behind the earlier ones.
  std::size_t offset_of(const Place& place) const;
  std::size_t arrival_of(const Step& step, int cut, std::size_t round) const;

  // Both places of a step have this length.
  static std::int64_t elems_of(const Step& step) {
    return step.op == Step::Op::kSend ? step.from.range.size() : step.to.range.size();
  }

 private:
  struct Spot {
    Place cell;
    std::size_t offset = 0;  // bytes
  };

  Cuts cuts_of(std::int64_t elems) const;
  std::size_t reserve(std::int64_t elems, std::size_t& used) const;
  void place_whole_buffers();
  std::size_t place_cells(const Schedule& part);
  void order_actions(const Schedule& part);

  Schedule schedule_;
  DType dtype_;
  Segmentation segmentation_;
  StagedTensors staged_;
  int cuts_ = 0;
  std::vector<Begin> begins_;  // of stretches
  std::vector<Spot> spots_;
  std::array<std::size_t, 3> regions_{};  // of an indivisible schedule's buffers, by BufferId
  std::size_t arrival_offset_ = 0;        // of messages that wait to be reduced
  std::size_t slot_bytes_ = 0;
  std::vector<std::vector<std::vector<const Step*>>> actions_;  // by stretch, if any, and round
};

// Of a schedule for an input and an output that are not the same memory (apart), or share some of
// it. segment_bytes: what its cells are best cut into; 0: as all are.
std::shared_ptr<const Layout> lay_out(Schedule schedule, bool apart, const SharedElems& shared,
                                      DType dtype, Segmentation segmentation,
                                      std::int64_t segment_bytes, StagedTensors staged = {});

}  // namespace gradwire
