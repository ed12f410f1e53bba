// The members of a job: who they are, where each can be called, and on which node. The table has
// versions: with the losses that those who are left agree on, the next one begins, and a message of
// an earlier version matches nothing (epoch()).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/host.h"
#include "gradwire/rendezvous.h"

namespace gradwire::comm {

struct Member {
  std::string address = {};    // as its transport writes it
  std::string node = {};       // its process space (comm/host.h)
  pid_t pid = 0;               // where this process knows it by that, else 0
  Processors processors = {};  // that it may use
  bool left = false;           // not of this version any more
};

// By uid: a member's rank in the job, the same in every version.
class Members {
 public:
  // Version 0. `epoch`: of the job, 7 bits.
  Members(int self, std::vector<Member> all, std::uint8_t epoch = 0)
      : self_(self), all_(std::move(all)), epoch_(epoch) {}
  // Collective, once a job and `transport`: each member says its address, of any bytes, and
  // hears all. Errors: of the store; kInvalidArgument for an address that was not written with the
  // job's secret; kRankMismatch for one of another job or version of gradwire.
  static Result<Members> meet(const Rendezvous& job, const std::string& transport,
                              std::string_view address);

  int self() const { return self_; }
  // Uids are below it.
  int size() const { return static_cast<int>(all_.size()); }
  const Member& at(int uid) const { return all_[static_cast<std::size_t>(uid)]; }
  bool has(int uid) const { return !at(uid).left; }
  std::uint32_t version() const { return version_; }
  // The next version: `survivors` have agreed on it.
  void advance(std::span<const int> survivors, std::uint32_t version);
  // 7 bits that tell messages of this version from those of others, and of other jobs. They go
  // round: after 127 comes 0.
  std::uint8_t epoch() const { return static_cast<std::uint8_t>((epoch_ + version_) & kEpochs); }
  // Whether `epoch` is of a version that comes after that of `than`, by no more than 63.
  static bool is_later(std::uint64_t epoch, std::uint64_t than) {
    const std::uint64_t ahead = (epoch - than) & kEpochs;
    return ahead > 0 && ahead <= kEpochs / 2;
  }
  // Those of version 0, for what goes on over all versions.
  std::uint8_t job_epoch() const { return epoch_; }

  // Whether its process has ended or is stopped, as the process table of this host says.
  bool surely_gone(int uid) const;
  // Whether this machine has more members than processors for them.
  bool is_crowded() const;

 private:
  static constexpr std::uint64_t kEpochs = 0x7f;  // a mask

  int self_;
  std::vector<Member> all_;
  std::uint8_t epoch_;
  std::uint32_t version_ = 0;
};

// Whether ranks are more than the processors that they may use together: each may be bound to some
// of its own.
bool is_crowded(std::span<const Processors> ranks);
// Processors in one word, for other ranks to read; nullopt for what is no such word.
std::string word_of(const Processors& processors);
std::optional<Processors> read_processors(std::string_view word);

}  // namespace gradwire::comm
