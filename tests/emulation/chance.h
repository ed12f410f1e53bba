// What the emulator leaves to chance: when a stream's work begins, and in which order the blocks of
// a grid run. All of it follows from one number, which a program that fails prints.
#pragma once

#include <cstdint>

namespace gradwire::emulation {

// GRADWIRE_EMULATION_SEED where that is a number, else another one in each process. From the first
// call on the process prints it when it ends with another status than 0. Any thread.
std::uint64_t seed();
// Prints it, and how to have it again, on stderr. Signal handlers may call it once seed() was.
void print_seed();

// A sequence of random numbers (SplitMix64: Steele, Lea, Flood, OOPSLA 2014, figure 17), another
// one for each `number`. One thread at a time.
class Chance {
 public:
  explicit Chance(std::uint64_t number) : state_(seed() + number * 0xd1342543de82ef95u) {}
  std::uint64_t next();
  // 0 <= it < limit.
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }
  bool one_in(std::uint64_t count) { return below(count) == 0; }

 private:
  std::uint64_t state_;
};

}  // namespace gradwire::emulation
