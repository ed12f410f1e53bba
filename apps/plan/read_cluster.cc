#include "apps/plan/read_cluster.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "apps/flags.h"
#include "apps/profile/profile.h"
#include "apps/whole_file.h"
#include "planner/cluster/cluster_file.h"

namespace gradwire {

Result<Cluster> read_cluster(const std::string& path) {
  GW_ASSIGN(const std::string text, read_whole_file(path));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return parse_cluster(text, path, [&folder](const std::string& profile) {
    return read_profile((folder / profile).string());
  });
}

namespace {

// Of types and of links: whether a node has them.
struct InUse {
  explicit InUse(const Cluster& cluster)
      : types(cluster.types.size()), links(cluster.links.size()) {
    for (const ClusterNode& node : cluster.nodes) {
      types[static_cast<std::size_t>(node.type)] = true;
      if (node.link >= 0 && node.devices > 1) links[static_cast<std::size_t>(node.link)] = true;
      if (node.uplink >= 0) links[static_cast<std::size_t>(node.uplink)] = true;
    }
  }
  std::vector<bool> types;
  std::vector<bool> links;
};

// take(type or link), of all that are in use.
template <typename Take>
void for_each_used(const Cluster& cluster, const Take& take) {
  const InUse used(cluster);
  for (std::size_t i = 0; i < cluster.types.size(); ++i) {
    if (used.types[i]) take(cluster.types[i]);
  }
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    if (used.links[i]) take(cluster.links[i]);
  }
}

}  // namespace

std::string rates_text(const Cluster& cluster) {
  std::vector<std::string> given;
  for_each_used(cluster, [&given](const auto& one) {
    if (one.profile.empty()) given.push_back(one.name);
  });
  if (given.empty()) return "rates are measured";
  return "rates of " + list_text(given) + " are given, not measured";
}

std::vector<UsedProfile> used_profiles(const Cluster& cluster) {
  std::vector<UsedProfile> used;
  for_each_used(cluster, [&used](const auto& one) {
    const auto same = [&one](const UsedProfile& other) { return other.file == one.profile; };
    if (one.profile.empty() || std::ranges::any_of(used, same)) return;
    used.push_back({one.profile, one.conditions});
  });
  return used;
}

}  // namespace gradwire
