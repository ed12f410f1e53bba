// Large messages to different ranks leave one after another, in the order of their batches.
//
// A rank that runs ahead of others would share its link, and theirs, between what somebody waits
// for and what nobody needs yet. Links then stand still in turn: over four of 1 Gbit/s, pairwise
// exchanges with partners that change took up to three times as long as with one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "gradwire/tensor.h"

namespace gradwire::tcp {

class Turns {
 public:
  // Messages of no more bytes take no turns.
  static constexpr std::size_t kLarge = std::size_t{64} << 10;

  // `left`: bytes that were written to a rank's connection and have not reached it; 0 if it has
  // none any more.
  explicit Turns(std::function<std::size_t(int rank)> left) : left_(std::move(left)) {}

  // A large message to a rank.
  struct Message {
    int rank = 0;
    std::uint64_t serial = 0;  // of its batch
  };
  // Whether one that has not been begun waits until nearly all of an earlier one has reached
  // another rank. It does not wait for a rank that takes nothing for a while.
  bool waits(const Message& message, Deadline now);
  // It, or a part of it, has been written.
  void begun(const Message& message, Deadline now);

 private:
  // A rank that large messages were written to.
  struct Receiver {
    int rank = 0;
    std::uint64_t serial = 0;  // of the last one
    std::size_t left = 0;      // when it was last looked at,
    Deadline since{};          // and from when on
  };
  bool busy(Receiver& receiver, Deadline now) const;

  std::function<std::size_t(int rank)> left_;
  std::vector<Receiver> receivers_;
};

}  // namespace gradwire::tcp
