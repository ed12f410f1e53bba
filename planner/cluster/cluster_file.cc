#include "planner/cluster/cluster_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/text.h"

namespace gradwire {
namespace {

// "64K", "25M", "16G".
std::optional<std::int64_t> parse_memory(const std::string& text) {
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  const char last = text.empty() ? ' ' : text.back();
  const int shift = last == 'K' ? 10 : last == 'M' ? 20 : last == 'G' ? 30 : 0;
  const auto count = to_int(std::string_view(text).substr(0, text.size() - (shift > 0 ? 1 : 0)));
  if (!count || *count < 1 || *count > (kMost >> shift)) return std::nullopt;
  return *count << shift;
}

// What a file is read with: its name stands in every error.
class ClusterReader {
 public:
  explicit ClusterReader(std::string name) : name_(std::move(name)) {}

  Result<Cluster> read(const toml::table& root) {
    // Devices and links before nodes, which name them.
    for (const auto& [key, node] : root) {
      const std::string what(key.str());
      if (what == "name") {
        GW_TRY(text(node, what, cluster_.name));
      } else if (what == "device") {
        GW_TRY(each(node, what, [this](const std::string& one, const toml::table& table) {
          return add_device(one, table);
        }));
      } else if (what == "link") {
        GW_TRY(each(node, what, [this](const std::string& one, const toml::table& table) {
          return add_link(one, table);
        }));
      } else if (what != "node") {
        return bad(node, "unknown key '" + what + "' (expected name, device, link or node)");
      }
    }
    const toml::node* nodes = root.get("node");
    if (nodes == nullptr) return bad(root, "no [[node]] (expected at least one)");
    if (!nodes->is_array()) return bad(*nodes, "node must be an array of tables, [[node]]");
    for (const toml::node& one : *nodes->as_array()) {
      if (!one.is_table()) return bad(one, "a node must be a table, [[node]]");
      GW_TRY(add_node(*one.as_table()));
    }
    GW_TRY(check_at(check_cluster(cluster_), *nodes));
    return std::move(cluster_);
  }

 private:
  Status bad(const toml::node& at, const std::string& what) const {
    return {Code::kInvalidArgument, format("%s:%d: %s", name_.c_str(),
                                           static_cast<int>(at.source().begin.line), what.c_str())};
  }
  Status check_at(const Status& status, const toml::node& at) const {
    return status.ok() ? status : bad(at, std::string(status.message()));
  }

  template <typename Add>
  Status each(const toml::node& node, const std::string& what, const Add& add) {
    if (!node.is_table()) return bad(node, what + " must be tables, [" + what + ".NAME]");
    for (const auto& [key, one] : *node.as_table()) {
      if (!one.is_table()) {
        return bad(one, what + "." + std::string(key.str()) + " must be a table");
      }
      GW_TRY(add(std::string(key.str()), *one.as_table()));
    }
    return {};
  }

  Status text(const toml::node& node, const std::string& key, std::string& out) const {
    if (!node.is_string()) return bad(node, key + " must be a string");
    out = node.as_string()->get();
    return {};
  }
  Status number(const toml::node& node, const std::string& key, double& out, bool zero) const {
    const auto value = node.value<double>();
    if (!value || !(node.is_integer() || node.is_floating_point())) {
      return bad(node, key + " must be a number");
    }
    if (!std::isfinite(*value) || *value < 0 || (*value == 0 && !zero) || *value > 1e18) {
      return bad(node, format("%s=%s (expected %s, at most 1e18)", key.c_str(),
                              shortest(*value).c_str(), zero ? "0 or more" : "above 0"));
    }
    out = *value;
    return {};
  }
  Status integer(const toml::node& node, const std::string& key, int& out) const {
    constexpr std::int64_t kMost = 65536;
    if (!node.is_integer()) return bad(node, key + " must be a whole number");
    const std::int64_t value = node.as_integer()->get();
    if (value < 1 || value > kMost) {
      return bad(node, format("%s=%lld (expected 1 to %lld)", key.c_str(),
                              static_cast<long long>(value), static_cast<long long>(kMost)));
    }
    out = static_cast<int>(value);
    return {};
  }
  Status missing(const toml::table& table, const std::string& what, const char* key) const {
    return bad(table, what + " has no " + key + " (expected one)");
  }

  Status add_device(const std::string& name, const toml::table& table) {
    DeviceType type;
    type.name = name;
    for (const auto& [key, node] : table) {
      const std::string what(key.str());
      if (what == "memory") {
        GW_TRY(memory(node, type.memory_bytes));
      } else if (what == "macs_per_second") {
        GW_TRY(number(node, what, type.macs_per_second, false));
      } else {
        return bad(node, "unknown key '" + what + "' (expected memory or macs_per_second)");
      }
    }
    if (type.memory_bytes == 0) return missing(table, "device '" + name + "'", "memory");
    if (type.macs_per_second == 0) {
      return missing(table, "device '" + name + "'", "macs_per_second");
    }
    types_[name] = static_cast<int>(cluster_.types.size());
    cluster_.types.push_back(std::move(type));
    return {};
  }

  Status memory(const toml::node& node, std::int64_t& out) const {
    const char* wanted = "(expected bytes, from 1, or \"16G\", with K, M or G)";
    if (node.is_string()) {
      const auto bytes = parse_memory(node.as_string()->get());
      if (!bytes) return bad(node, "memory='" + node.as_string()->get() + "' " + wanted);
      out = *bytes;
      return {};
    }
    if (!node.is_integer() || node.as_integer()->get() < 1) {
      return bad(node, format("memory of another kind, or below 1 %s", wanted));
    }
    out = node.as_integer()->get();
    return {};
  }

  Status add_link(const std::string& name, const toml::table& table) {
    ClusterLink link;
    link.name = name;
    for (const auto& [key, node] : table) {
      const std::string what(key.str());
      if (what == "latency") {
        constexpr double kNanoseconds = 1e9;
        double seconds = 0;
        GW_TRY(number(node, what, seconds, true));
        if (seconds > 1000) return bad(node, "latency above 1000 seconds (expected less)");
        link.latency = std::llround(seconds * kNanoseconds);
      } else if (what == "bandwidth") {
        GW_TRY(number(node, what, link.bytes_per_second, false));
      } else if (what == "shared") {
        if (!node.is_boolean()) return bad(node, "shared must be true or false");
        link.shared = node.as_boolean()->get();
      } else {
        return bad(node, "unknown key '" + what + "' (expected latency, bandwidth or shared)");
      }
    }
    if (link.bytes_per_second == 0) return missing(table, "link '" + name + "'", "bandwidth");
    links_[name] = static_cast<int>(cluster_.links.size());
    cluster_.links.push_back(std::move(link));
    return {};
  }

  Status known(const toml::node& node, const std::string& key,
               const std::map<std::string, int>& all, int& out) const {
    std::string name;
    GW_TRY(text(node, key, name));
    const auto place = all.find(name);
    if (place == all.end()) {
      std::vector<std::string> names;
      for (const auto& entry : all) names.push_back(entry.first);
      return bad(node, key + "='" + name + "' is not there (expected " +
                           (names.empty() ? std::string("one to be declared") : joined(names)) +
                           ")");
    }
    out = place->second;
    return {};
  }

  Status add_node(const toml::table& table) {
    ClusterNode one;
    one.type = -1;
    int count = 1;
    for (const auto& [key, node] : table) {
      const std::string what(key.str());
      if (what == "name") {
        GW_TRY(text(node, what, one.name));
      } else if (what == "count") {
        GW_TRY(integer(node, what, count));
      } else if (what == "devices") {
        GW_TRY(integer(node, what, one.devices));
      } else if (what == "device") {
        GW_TRY(known(node, what, types_, one.type));
      } else if (what == "link") {
        GW_TRY(known(node, what, links_, one.link));
      } else if (what == "uplink") {
        GW_TRY(known(node, what, links_, one.uplink));
      } else {
        return bad(node, "unknown key '" + what +
                             "' (expected name, count, devices, device, link or uplink)");
      }
    }
    if (one.name.empty()) return missing(table, "a node", "name");
    if (one.type < 0) return missing(table, "node '" + one.name + "'", "device");
    if (one.devices > 1 && one.link < 0) return missing(table, "node '" + one.name + "'", "link");
    for (int number = 0; number < count; ++number) {
      cluster_.nodes.push_back(one);
      if (count > 1) cluster_.nodes.back().name += std::to_string(number);
    }
    return {};
  }

  std::string name_;
  Cluster cluster_;
  std::map<std::string, int> types_;
  std::map<std::string, int> links_;
};

}  // namespace

Result<Cluster> parse_cluster(const std::string& text, const std::string& name) {
  toml::table table;
  try {
    table = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    return Status(Code::kInvalidArgument, format("%s:%d: not TOML (%s)", name.c_str(),
                                                 static_cast<int>(error.source().begin.line),
                                                 std::string(error.description()).c_str()));
  }
  return ClusterReader(name).read(table);
}

}  // namespace gradwire
