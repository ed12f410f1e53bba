#include "comm/crowd.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>

#include "base/text.h"
#include "comm/process_state.h"

namespace gradwire::comm {

// "3.0.f": hexadecimal words, the lowest processors first, without the zeros at the end.
std::string Crowd::word_of(const shm::Processors& processors) {
  std::size_t words = processors.size();
  while (words > 1 && processors[words - 1] == 0) --words;
  std::string text;
  for (std::size_t i = 0; i < words; ++i) {
    text += format(i == 0 ? "%llx" : ".%llx", static_cast<unsigned long long>(processors[i]));
  }
  return text;
}

std::optional<shm::Processors> Crowd::read(std::string_view word) {
  shm::Processors processors{};
  for (std::size_t i = 0; i < processors.size(); ++i) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
    if (error != std::errc()) return std::nullopt;
    processors[i] = static_cast<std::int64_t>(value);
    word.remove_prefix(static_cast<std::size_t>(end - word.data()));
    if (word.empty()) return processors;
    if (word.front() != '.') return std::nullopt;
    word.remove_prefix(1);
  }
  return std::nullopt;
}

namespace {

// "boot/process namespace"; "-" where the system does not say.
std::string_view boot_of(std::string_view process_space) {
  return process_space.substr(0, process_space.find('/'));
}

}  // namespace

void Crowd::add(int rank, std::string_view process_space, const shm::Processors& processors) {
  const std::string own = comm::process_space();
  if (process_space == "-" || boot_of(process_space) != boot_of(own)) return;
  processors_of_[rank] = processors;
}

void Crowd::keep(std::span<const int> survivors) {
  std::erase_if(processors_of_, [&](const auto& entry) {
    return std::ranges::find(survivors, entry.first) == survivors.end();
  });
}

bool Crowd::is_crowded() const {
  shm::Processors together{};
  for (const auto& [rank, processors] : processors_of_) {
    for (std::size_t i = 0; i < together.size(); ++i) together[i] |= processors[i];
  }
  std::size_t count = 0;
  for (const std::int64_t word : together) {
    count += static_cast<std::size_t>(std::popcount(static_cast<std::uint64_t>(word)));
  }
  return processors_of_.size() > count;
}

}  // namespace gradwire::comm
