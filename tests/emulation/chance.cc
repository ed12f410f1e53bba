#include "tests/emulation/chance.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>

namespace gradwire::emulation {
namespace {

std::uint64_t draw_seed() {
  if (const char* const wanted = std::getenv("GRADWIRE_EMULATION_SEED"); wanted != nullptr) {
    std::uint64_t number = 0;
    const char* const end = wanted + std::strlen(wanted);
    if (std::from_chars(wanted, end, number).ptr == end && end != wanted) return number;
  }
  return std::random_device{}();
}

void print_after_failure(int status, void*) {
  if (status != 0) print_seed();
}

}  // namespace

std::uint64_t seed() {
  static const std::uint64_t drawn = [] {
    static_cast<void>(::on_exit(print_after_failure, nullptr));
    return draw_seed();
  }();
  return drawn;
}

// Without the C library's buffers, which a signal handler must not touch.
void print_seed() {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), seed()).ptr;
  constexpr std::string_view kBefore =
      "CUDA emulator: to have the same order of blocks and delays of streams again, set "
      "GRADWIRE_EMULATION_SEED=";
  std::array<char, kBefore.size() + 25> line{};
  char* at = std::copy(kBefore.begin(), kBefore.end(), line.begin());
  at = std::copy(digits.begin(), end, at);
  *at++ = '\n';
  const auto length = static_cast<std::size_t>(at - line.begin());
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), length);
}

std::uint64_t Chance::next() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

}  // namespace gradwire::emulation
