// Which numbers of communicators are taken on a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradwire {

// Numbers 0 .. kIds - 1 (the last of 12 bits is the transport's own). One that is released while
// operations bear it is free when the last of them has ended: until then their messages have it.
// Used by one thread at a time.
class CommunicatorIds {
 public:
  static constexpr int kIds = 4095;

  // One bit each, set when free.
  std::vector<std::uint64_t> free_bits() const {
    std::vector<std::uint64_t> bits((kIds + 63) / 64, 0);
    for (std::size_t id = 0; id < uses_.size(); ++id) {
      if (!uses_[id].taken) bits[id / 64] |= std::uint64_t{1} << (id % 64);
    }
    return bits;
  }
  // False when it was not free.
  bool claim(int id) {
    Use& use = uses_[static_cast<std::size_t>(id)];
    if (use.taken) return false;
    return use.taken = true;
  }
  void release(int id) {
    Use& use = uses_[static_cast<std::size_t>(id)];
    use.released = use.under_way > 0;
    use.taken = use.released;
  }

  // An operation of that communicator begins, and ends.
  void begin_operation(std::uint32_t id) {
    if (id < uses_.size()) ++uses_[id].under_way;
  }
  void end_operation(std::uint32_t id) {
    if (id >= uses_.size()) return;
    Use& use = uses_[id];
    if (--use.under_way == 0 && use.released) use = {};
  }

 private:
  struct Use {
    bool taken = false;
    bool released = false;  // but for what is under way
    int under_way = 0;
  };
  std::vector<Use> uses_ = std::vector<Use>(kIds);
};

}  // namespace gradwire
