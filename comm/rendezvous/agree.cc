#include "comm/rendezvous/agree.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/hash.h"
#include "base/text.h"
#include "comm/rendezvous/hmac.h"

namespace gradwire::rendezvous {
namespace {

constexpr std::size_t kPart = std::size_t{512} << 10;  // of what a key may hold
constexpr char kMore = '+', kLast = '.';               // before each part of an answer

std::string difference(std::string_view name, std::string_view seen, int rank,
                       std::string_view wanted) {
  return format("%s: '%s' on rank %d (expected '%s', as on rank 0)", std::string(name).c_str(),
                std::string(seen).c_str(), rank, std::string(wanted).c_str());
}

std::string key_of_rank(const std::string& key, int rank) {
  return key + "/" + std::to_string(rank);
}

std::string key_of_part(const std::string& key, std::size_t part) {
  return part == 0 ? key : key + "+" + std::to_string(part);
}

// The first rank that has said nothing under `key`, in rank 0's answer's place: for it all wait.
Status absent(const Rendezvous& rendezvous, const std::string& key, const Status& late) {
  if (late.code() != Code::kTimedOut) return late;
  int rank = 1;
  while (rank < rendezvous.size &&
         rendezvous.store->get(key_of_rank(key, rank), deadline_in(0.1)).has_value()) {
    ++rank;
  }
  return late.with_context(format("rank %d has not come", rank % rendezvous.size));
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
    std::string answer;
    for (std::size_t part = 0;; ++part) {
      const auto more = store.get(key_of_part(key, part), deadline);
      if (!more.has_value()) return absent(rendezvous, key, more.error());
      const std::string text = text_of_bytes(more.value());
      answer += text.substr(std::min<std::size_t>(1, text.size()));
      if (!text.starts_with(kMore)) return answer;
    }
  }
  std::string answer = hear(0, own);
  for (int rank = 1; rank < rendezvous.size && answer.empty(); ++rank) {
    GW_ASSIGN(const std::vector<std::byte> word, store.get(key_of_rank(key, rank), deadline));
    answer = hear(rank, text_of_bytes(word));
  }
  for (std::size_t part = 0; part == 0 || part * kPart < answer.size(); ++part) {
    const char mark = (part + 1) * kPart < answer.size() ? kMore : kLast;
    GW_TRY(store.set(key_of_part(key, part),
                     bytes_of_text(mark + answer.substr(part * kPart, kPart)), deadline));
  }
  return answer;
}

}  // namespace

Status agree(const Rendezvous& rendezvous, std::string_view name, std::string_view value) {
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

// answer := (length " " bytes) of each rank
Result<std::vector<std::string>> gather(const Rendezvous& rendezvous, const std::string& key,
                                        std::string_view own) {
  std::string table;
  GW_ASSIGN(const std::string text,
            answer_of_root(rendezvous, key, own, [&](int rank, std::string_view theirs) {
              table += std::to_string(theirs.size()) + " ";
              table += theirs;
              return rank + 1 == rendezvous.size ? table : std::string();
            }));
  std::vector<std::string> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t gap = std::min(text.find(' ', at), text.size() - 1);
    const auto bytes = to_int(text.substr(at, gap - at));
    if (!bytes || *bytes < 0) break;
    all.push_back(text.substr(gap + 1, static_cast<std::size_t>(*bytes)));
    at = gap + 1 + all.back().size();
  }
  if (static_cast<int>(all.size()) == rendezvous.size) return all;
  return Status(Code::kCorruptPayload, format("rank 0's table \"%s\" has %zu ranks (expected %d)",
                                              key.c_str(), all.size(), rendezvous.size));
}

Result<std::vector<int>> nodes_of_job(const Rendezvous& rendezvous, std::string_view own) {
  if (rendezvous.size <= 1 || rendezvous.store == nullptr) {
    return std::vector<int>(static_cast<std::size_t>(rendezvous.size), 0);
  }
  const std::string hash =
      format("%016llx", static_cast<unsigned long long>(hash_name(std::string(own))));
  GW_ASSIGN(const std::vector<std::string> hashes, gather(rendezvous, "node", hash));
  std::map<std::string, int> known;
  std::vector<int> node_of;
  for (const std::string& theirs : hashes) {
    if (theirs.size() != hash.size()) {
      return Status(Code::kCorruptPayload,
                    format("rank %zu sent a node name of %zu bytes (expected %zu)", node_of.size(),
                           theirs.size(), hash.size()));
    }
    node_of.push_back(known.try_emplace(theirs, static_cast<int>(known.size())).first->second);
  }
  return node_of;
}

}  // namespace gradwire::rendezvous
