#include "comm/rendezvous/agree.h"

#include <map>
#include <string>

#include "base/hash.h"
#include "base/text.h"
#include "comm/rendezvous/hmac.h"

namespace gradwire::rendezvous {
namespace {

std::string difference(std::string_view name, std::string_view seen, int rank,
                       std::string_view wanted) {
  return format("%s: '%s' on rank %d (expected '%s', as on rank 0)", std::string(name).c_str(),
                std::string(seen).c_str(), rank, std::string(wanted).c_str());
}

std::string key_of_rank(const std::string& key, int rank) {
  return key + "/" + std::to_string(rank);
}

// The others say their `own`, and all learn rank 0's answer: the first that `hear(rank, word)`
// gives, in the order of ranks; "" where no word gave one.
template <typename Hear>
Result<std::string> answer_of_root(const Rendezvous& rendezvous, const std::string& key,
                                   std::string_view own, const Hear& hear) {
  const Deadline deadline = deadline_in(rendezvous.timeout_seconds);
  KeyValueStore& store = *rendezvous.store;
  if (rendezvous.rank != 0) {
    GW_TRY(store.set(key_of_rank(key, rendezvous.rank), bytes_of_text(own), deadline));
    GW_ASSIGN(const std::vector<std::byte> answer, store.get(key, deadline));
    return text_of_bytes(answer);
  }
  std::string answer = hear(0, own);
  for (int rank = 1; rank < rendezvous.size && answer.empty(); ++rank) {
    GW_ASSIGN(const std::vector<std::byte> word, store.get(key_of_rank(key, rank), deadline));
    answer = hear(rank, text_of_bytes(word));
  }
  GW_TRY(store.set(key, bytes_of_text(answer), deadline));
  return answer;
}

}  // namespace

Status agree(const Rendezvous& rendezvous, std::string_view name, std::string_view value) {
  if (rendezvous.size <= 1 || rendezvous.store == nullptr) return {};
  const Deadline deadline = deadline_in(rendezvous.timeout_seconds);
  const std::string key = "agree/" + std::string(name);
  if (rendezvous.rank == 0) {
    return rendezvous.store->set(key, bytes_of_text(value), deadline);
  }
  GW_ASSIGN(const std::vector<std::byte> bytes, rendezvous.store->get(key, deadline));
  const std::string wanted = text_of_bytes(bytes);
  if (wanted == value) return {};
  return {Code::kRankMismatch, difference(name, value, rendezvous.rank, wanted)};
}

Status agree_together(const Rendezvous& rendezvous, std::string_view name, std::string_view value) {
  if (rendezvous.size <= 1 || rendezvous.store == nullptr) return {};
  GW_ASSIGN(const std::string seen,
            answer_of_root(rendezvous, "agree/" + std::string(name), value,
                           [&](int rank, std::string_view theirs) {
                             return theirs == value ? "" : difference(name, theirs, rank, value);
                           }));
  return seen.empty() ? Status() : Status(Code::kRankMismatch, seen);
}

Result<bool> everywhere(const Rendezvous& rendezvous, std::string_view name, bool here) {
  if (rendezvous.size <= 1 || rendezvous.store == nullptr) return here;
  constexpr std::string_view kYes = "yes";
  constexpr std::string_view kNo = "no";
  GW_ASSIGN(const std::string no,
            answer_of_root(rendezvous, "everywhere/" + std::string(name), here ? kYes : kNo,
                           [&](int, std::string_view theirs) {
                             return std::string(theirs == kYes ? "" : kNo);
                           }));
  return no.empty();
}

Result<std::vector<int>> nodes_of_job(const Rendezvous& rendezvous, std::string_view own) {
  if (rendezvous.size <= 1 || rendezvous.store == nullptr) {
    return std::vector<int>(static_cast<std::size_t>(rendezvous.size), 0);
  }
  const Deadline deadline = deadline_in(rendezvous.timeout_seconds);
  const std::string hash =
      format("%016llx", static_cast<unsigned long long>(hash_name(std::string(own))));
  GW_TRY(
      rendezvous.store->set(key_of_rank("node", rendezvous.rank), bytes_of_text(hash), deadline));
  std::map<std::string, int> known;
  std::vector<int> node_of;
  for (int rank = 0; rank < rendezvous.size; ++rank) {
    GW_ASSIGN(const std::vector<std::byte> bytes,
              rendezvous.store->get(key_of_rank("node", rank), deadline));
    std::string theirs = text_of_bytes(bytes);
    if (theirs.size() != hash.size()) {
      return Status(Code::kCorruptPayload,
                    format("rank %d sent a node name of %zu bytes (expected %zu)", rank,
                           theirs.size(), hash.size()));
    }
    node_of.push_back(
        known.try_emplace(std::move(theirs), static_cast<int>(known.size())).first->second);
  }
  return node_of;
}

}  // namespace gradwire::rendezvous
