#include "comm/members.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>

#include "base/text.h"
#include "comm/rendezvous/agree.h"
#include "comm/rendezvous/hmac.h"

namespace gradwire::comm {

// "3.0.f": hexadecimal words, the lowest processors first, without the zeros at the end.
std::string word_of(const Processors& processors) {
  std::size_t words = processors.size();
  while (words > 1 && processors[words - 1] == 0) --words;
  std::string text;
  for (std::size_t i = 0; i < words; ++i) {
    text += format(i == 0 ? "%llx" : ".%llx", static_cast<unsigned long long>(processors[i]));
  }
  return text;
}

std::optional<Processors> read_processors(std::string_view word) {
  Processors processors{};
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

bool is_crowded(std::span<const Processors> ranks) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < Processors{}.size(); ++i) {
    std::int64_t together = 0;
    for (const Processors& processors : ranks) together |= processors[i];
    count += static_cast<std::size_t>(std::popcount(static_cast<std::uint64_t>(together)));
  }
  return ranks.size() > count;
}

namespace {

using rendezvous::Mac;

// The HMAC-SHA256, with the job's secret as its key, of what follows, the job and the rank; zero
// without a secret. Who can write into a store without seals cannot have ranks call others.
Mac seal_of(const Rendezvous& job, int rank, const std::string& transport,
            std::string_view record) {
  if (job.secret.empty()) return {};
  const std::string who = format("gradwire %s address %d", transport.c_str(), rank);
  return rendezvous::hmac(rendezvous::bytes_of_text(job.secret),
                          {rendezvous::bytes_of_text(who), rendezvous::bytes_of_text(job.job),
                           rendezvous::bytes_of_text(record)});
}

// Stale messages of another job match nothing; 7 bits do not keep anybody out.
std::uint8_t epoch_of(const Rendezvous& job) {
  const Mac mac = rendezvous::hmac(
      rendezvous::bytes_of_text(job.secret),
      {rendezvous::bytes_of_text("gradwire epoch"), rendezvous::bytes_of_text(job.job)});
  return std::to_integer<std::uint8_t>(mac[0]) & 0x7f;
}

// "boot/process namespace"; "-" where the system does not say.
std::string_view boot_of(std::string_view process_space) {
  return process_space.substr(0, process_space.find('/'));
}

}  // namespace

// What a rank puts into the store:
//   seal{32} "gw-TRANSPORT-7 EPOCH PID SPACE PROCESSORS\n" address
Result<Members> Members::meet(const Rendezvous& job, const std::string& transport,
                              std::string_view address) {
  const std::string own_space = process_space();
  const Processors own = usable_processors();
  const int epoch = epoch_of(job);
  const std::string head = "gw-" + transport + "-7 ";
  std::vector<Member> all(1, {std::string(address), own_space, 0, own});
  if (job.size == 1) return Members(0, std::move(all), static_cast<std::uint8_t>(epoch));
  all.clear();
  const std::string record = head +
                             format("%d %d %s %s\n", epoch, static_cast<int>(::getpid()),
                                    own_space.c_str(), word_of(own).c_str()) +
                             std::string(address);
  const Mac seal = seal_of(job, job.rank, transport, record);
  const std::string sealed(reinterpret_cast<const char*>(seal.data()), seal.size());
  GW_ASSIGN(const auto texts, rendezvous::gather(job, transport, sealed + record));
  for (int rank = 0; rank < job.size; ++rank) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    const std::string theirs = text.substr(std::min(text.size(), seal.size()));
    Mac seen{};
    std::copy_n(rendezvous::bytes_of_text(text).begin(), text.size() - theirs.size(), seen.begin());
    if (!rendezvous::equal(seen, seal_of(job, rank, transport, theirs))) {
      return Status(Code::kInvalidArgument,
                    format("%s: the address of rank %d was not written with this rank's secret",
                           transport.c_str(), rank));
    }
    int their_epoch = 0, pid = 0;
    char space[128] = {}, processors[320] = {};
    const std::size_t line = theirs.find('\n');
    const bool fits = line != std::string::npos && theirs.starts_with(head) &&
                      std::sscanf(theirs.c_str() + head.size(), "%d %d %127s %319s", &their_epoch,
                                  &pid, space, processors) == 4;
    const auto usable = read_processors(processors);
    if (!fits || !usable || their_epoch != epoch) {
      return Status(Code::kRankMismatch,
                    format("%s: the record of rank %d is not one of job \"%s\" and this version",
                           transport.c_str(), rank, job.job.c_str()));
    }
    const bool known = own_space != "-" && own_space == space;
    all.push_back({theirs.substr(line + 1), space, known ? pid : 0, *usable});
  }
  return Members(job.rank, std::move(all), static_cast<std::uint8_t>(epoch));
}

void Members::advance(std::span<const int> survivors, std::uint32_t version) {
  version_ = version;
  for (Member& member : all_) member.left = true;
  for (const int uid : survivors) all_[static_cast<std::size_t>(uid)].left = false;
}

bool Members::surely_gone(int uid) const {
  return at(uid).pid != 0 && has_ended_or_stopped(at(uid).pid);
}

// One of another boot is on another machine. Containers of one machine share its processors.
bool Members::is_crowded() const {
  std::vector<Processors> here;
  const std::string_view own = boot_of(at(self_).node);
  for (const Member& member : all_) {
    const bool counts = !member.left && member.node != "-" && boot_of(member.node) == own;
    if (counts) here.push_back(member.processors);
  }
  return comm::is_crowded(here);
}

}  // namespace gradwire::comm
