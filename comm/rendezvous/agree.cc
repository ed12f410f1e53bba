#include "comm/rendezvous/agree.h"

#include <string>

#include "base/text.h"

namespace gradwire::rendezvous {

Status agree(const Rendezvous& rendezvous, std::string_view name, std::string_view value) {
  if (rendezvous.size <= 1 || rendezvous.store == nullptr) return {};
  const Deadline deadline = deadline_in(rendezvous.timeout_seconds);
  const std::string key = "agree/" + std::string(name);
  if (rendezvous.rank == 0) {
    return rendezvous.store->set(key, std::as_bytes(std::span(value.data(), value.size())),
                                 deadline);
  }
  GW_ASSIGN(const std::vector<std::byte> bytes, rendezvous.store->get(key, deadline));
  const std::string wanted(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (wanted == value) return {};
  return {Code::kRankMismatch,
          format("%s: '%s' on rank %d ('%s' wanted, as on rank 0)", std::string(name).c_str(),
                 std::string(value).c_str(), rendezvous.rank, wanted.c_str())};
}

}  // namespace gradwire::rendezvous
