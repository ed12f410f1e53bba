#include "comm/rendezvous/nodes.h"

#include <map>
#include <string>

#include "base/hash.h"
#include "base/text.h"

namespace gradwire::rendezvous {
namespace {

std::string key_of(int rank) { return "node/" + std::to_string(rank); }

}  // namespace

Result<std::vector<int>> nodes_of_job(const Rendezvous& rendezvous, std::string_view own) {
  if (rendezvous.size <= 1 || rendezvous.store == nullptr) {
    return std::vector<int>(static_cast<std::size_t>(rendezvous.size), 0);
  }
  const Deadline deadline = deadline_in(rendezvous.timeout_seconds);
  const std::string hash =
      format("%016llx", static_cast<unsigned long long>(hash_name(std::string(own))));
  GW_TRY(rendezvous.store->set(key_of(rendezvous.rank),
                               std::as_bytes(std::span(hash.data(), hash.size())), deadline));
  std::map<std::string, int> known;
  std::vector<int> node_of;
  for (int rank = 0; rank < rendezvous.size; ++rank) {
    GW_ASSIGN(const std::vector<std::byte> bytes, rendezvous.store->get(key_of(rank), deadline));
    std::string theirs(reinterpret_cast<const char*>(bytes.data()), bytes.size());
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
