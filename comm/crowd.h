// Whether a machine has more ranks of a job than processors for them: then who waits gives way.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/shm/host.h"

namespace gradwire::comm {

// The ranks on this rank's machine, with the processors that each may use.
class Crowd {
 public:
  // Their processors in one word, for other ranks to read; nullopt for what is no such word.
  static std::string word_of(const shm::Processors& processors);
  static std::optional<shm::Processors> read(std::string_view word);

  // A rank, this one too. process_space: as comm/process_state.h has it; one of another boot is
  // another machine's and does not count. Containers of one machine share its processors.
  void add(int rank, std::string_view process_space, const shm::Processors& processors);
  // Those who are not among `survivors` need no processor any more.
  void keep(std::span<const int> survivors);
  // Whether the ranks are more than the processors that they may use together: each may be bound
  // to some of its own.
  bool is_crowded() const;

 private:
  std::map<int, shm::Processors> processors_of_;
};

}  // namespace gradwire::comm
