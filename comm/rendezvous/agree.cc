#include "comm/rendezvous/agree.h"

#include <span>
#include <string>

#include "base/text.h"

namespace gradwire::rendezvous {
namespace {

ConstByteSpan bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string value_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string difference(std::string_view name, std::string_view seen, int rank,
                       std::string_view wanted) {
  return format("%s: '%s' on rank %d (expected '%s', as on rank 0)", std::string(name).c_str(),
                std::string(seen).c_str(), rank, std::string(wanted).c_str());
}

}  // namespace

Status agree(const Rendezvous& rendezvous, std::string_view name, std::string_view value) {
  if (rendezvous.size <= 1 || rendezvous.store == nullptr) return {};
  const Deadline deadline = deadline_in(rendezvous.timeout_seconds);
  const std::string key = "agree/" + std::string(name);
  if (rendezvous.rank == 0) {
    return rendezvous.store->set(key, bytes_of(value), deadline);
  }
  GW_ASSIGN(const std::vector<std::byte> bytes, rendezvous.store->get(key, deadline));
  const std::string wanted = value_text(bytes);
  if (wanted == value) return {};
  return {Code::kRankMismatch, difference(name, value, rendezvous.rank, wanted)};
}

Status agree_together(const Rendezvous& rendezvous, std::string_view name, std::string_view value) {
  if (rendezvous.size <= 1 || rendezvous.store == nullptr) return {};
  const Deadline deadline = deadline_in(rendezvous.timeout_seconds);
  const std::string key = "agree/" + std::string(name);
  const auto key_of = [&](int rank) { return key + "/" + std::to_string(rank); };
  if (rendezvous.rank != 0) {
    GW_TRY(rendezvous.store->set(key_of(rendezvous.rank), bytes_of(value), deadline));
    GW_ASSIGN(const std::vector<std::byte> verdict, rendezvous.store->get(key, deadline));
    return verdict.empty() ? Status() : Status(Code::kRankMismatch, value_text(verdict));
  }
  std::string verdict;
  for (int rank = 1; rank < rendezvous.size; ++rank) {
    GW_ASSIGN(const std::vector<std::byte> theirs, rendezvous.store->get(key_of(rank), deadline));
    if (value_text(theirs) == value) continue;
    verdict = difference(name, value_text(theirs), rank, value);
    break;
  }
  GW_TRY(rendezvous.store->set(key, bytes_of(verdict), deadline));
  return verdict.empty() ? Status() : Status(Code::kRankMismatch, verdict);
}

Result<bool> everywhere(const Rendezvous& rendezvous, std::string_view name, bool here) {
  if (rendezvous.size <= 1 || rendezvous.store == nullptr) return here;
  constexpr std::string_view kYes = "yes";
  constexpr std::string_view kNo = "no";
  const Deadline deadline = deadline_in(rendezvous.timeout_seconds);
  const std::string key = "everywhere/" + std::string(name);
  const auto key_of = [&](int rank) { return key + "/" + std::to_string(rank); };
  if (rendezvous.rank != 0) {
    GW_TRY(rendezvous.store->set(key_of(rendezvous.rank), bytes_of(here ? kYes : kNo), deadline));
    GW_ASSIGN(const std::vector<std::byte> answer, rendezvous.store->get(key, deadline));
    return value_text(answer) == kYes;
  }
  bool all = here;
  for (int rank = 1; rank < rendezvous.size; ++rank) {
    GW_ASSIGN(const std::vector<std::byte> theirs, rendezvous.store->get(key_of(rank), deadline));
    all = all && value_text(theirs) == kYes;
  }
  GW_TRY(rendezvous.store->set(key, bytes_of(all ? kYes : kNo), deadline));
  return all;
}

}  // namespace gradwire::rendezvous
