#include "collectives/failure/side_token.h"

#include <chrono>
#include <cstddef>
#include <span>

#include "base/hash.h"
#include "base/text.h"

namespace gradwire {
namespace {

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

// The ranks of "GENERATION:RANK,RANK,...".
std::string ranks_in(const std::string& holder) { return holder.substr(holder.find(':') + 1); }

}  // namespace

SideToken::SideToken(const TakeToken& take, const std::vector<int>& all, int self)
    : take_(take),
      chain_(format("shrink/%016llx/", static_cast<unsigned long long>(
                                           hash_bytes(std::as_bytes(std::span(all)), all.size())))),
      self_(self) {}

Result<std::string> SideToken::take(const std::vector<int>& here, std::uint32_t generation,
                                    Deadline until) {
  // Two tries of the same ranks differ in the generation: each has a token of its own.
  const std::string own = format("%u:", generation) + list_of(here);
  const std::string self = "," + std::to_string(self_) + ",";
  while (std::chrono::steady_clock::now() < until) {
    GW_ASSIGN(const std::string held, take_(chain_ + std::to_string(next_), own, until));
    if (held == own) return std::string();
    const std::string ranks = ranks_in(held);
    if (("," + ranks + ",").find(self) == std::string::npos) return ranks;
    ++next_;
  }
  return Status(Code::kTimedOut, "the chain of tokens did not end in time");
}

}  // namespace gradwire
