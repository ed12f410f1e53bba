// From a cache, or by measuring, to the numbers that all ranks choose by.
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/elements.h"
#include "base/hash.h"
#include "collectives/cost/link_cache.h"
#include "collectives/cost/measure.h"
#include "comm/shm/host.h"
#include "gradwire/communicator.h"

namespace gradwire {
namespace {

constexpr std::array kNumbers{
    &LinkModel::alpha,      &LinkModel::beta, &LinkModel::gamma,      &LinkModel::alpha_intra,
    &LinkModel::beta_intra, &LinkModel::gap,  &LinkModel::contention, &LinkModel::contention_beta};

std::int64_t now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

// The same links have the same key: what carries rank 0's messages, and the ranks' hosts. A host is
// one boot of a machine, or of a part of it with a network of its own.
Result<std::uint64_t> key_of(Communicator& communicator) {
  const auto own = static_cast<std::int64_t>(shm::hash_of_host(shm::host_identity()));
  std::vector<std::int64_t> hosts(static_cast<std::size_t>(communicator.size()));
  GW_ASSIGN(Work work,
            communicator.all_gather(const_view_of(std::span<const std::int64_t>(&own, 1)),
                                    view_of(std::span(hosts))));
  GW_TRY(work.wait());
  for (const int node : communicator.nodes()) hosts.push_back(node);
  return hash_bytes(std::as_bytes(std::span(hosts)), hash_name(communicator.describe()));
}

// Rank 0's cache, for all.
Result<std::optional<LinkModel>> from_cache(Communicator& communicator,
                                            const LinkSettings& settings, std::uint64_t key) {
  std::array<double, kNumbers.size() + 1> message{};
  if (communicator.rank() == 0 && !settings.measure && !settings.cache.empty()) {
    if (const auto cached = cached_links(settings.cache, key, now())) {
      message[0] = 1;
      for (std::size_t i = 0; i < kNumbers.size(); ++i) message[i + 1] = *cached.*kNumbers[i];
    }
  }
  GW_ASSIGN(Work work, communicator.broadcast(view_of(std::span<double>(message)), 0));
  GW_TRY(work.wait());
  if (message[0] == 0) return std::optional<LinkModel>();
  LinkModel links;
  for (std::size_t i = 0; i < kNumbers.size(); ++i) links.*kNumbers[i] = message[i + 1];
  return std::optional(links);
}

}  // namespace

Result<LinkModel> calibrate(Communicator& communicator, const LinkSettings& settings) {
  if (communicator.size() == 1) return communicator.links();
  GW_ASSIGN(const std::uint64_t key, key_of(communicator));
  GW_ASSIGN(std::optional<LinkModel> links, from_cache(communicator, settings, key));
  if (!links) {
    GW_ASSIGN(links, measure_links(communicator));
    if (communicator.rank() == 0 && !settings.cache.empty()) {
      cache_links(settings.cache, key, now(), *links);
    }
  }
  communicator.set_link_parameters(*links);
  return *links;
}

}  // namespace gradwire
