#include "apps/plan/read_cluster.h"

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

std::string rates_text(const Cluster& cluster) {
  std::vector<bool> types(cluster.types.size());
  std::vector<bool> links(cluster.links.size());
  for (const ClusterNode& node : cluster.nodes) {
    types[static_cast<std::size_t>(node.type)] = true;
    if (node.link >= 0 && node.devices > 1) links[static_cast<std::size_t>(node.link)] = true;
    if (node.uplink >= 0) links[static_cast<std::size_t>(node.uplink)] = true;
  }
  std::vector<std::string> given;
  for (std::size_t type = 0; type < types.size(); ++type) {
    if (types[type] && cluster.types[type].profile.empty()) {
      given.push_back(cluster.types[type].name);
    }
  }
  for (std::size_t link = 0; link < links.size(); ++link) {
    if (links[link] && cluster.links[link].profile.empty()) {
      given.push_back(cluster.links[link].name);
    }
  }
  if (given.empty()) return "rates are measured";
  return "rates of " + list_text(given) + " are given, not measured";
}

}  // namespace gradwire
