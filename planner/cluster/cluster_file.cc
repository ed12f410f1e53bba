#include "planner/cluster/cluster_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>

#include "base/nearest.h"
#include "base/text.h"

namespace gradwire {
namespace {

// Below these, times of real models leave what 64 bits of nanoseconds hold.
constexpr double kLeastMacs = 1e6;
constexpr double kLeastBytes = 1e3;
constexpr double kMostWritten = 1e18;
constexpr double kMostLatencySeconds = 1000;

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
  ClusterReader(std::string name, const ReadProfile& read) : name_(std::move(name)), read_(read) {}

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
        return unknown(node, what, {"name", "device", "link", "node"});
      }
    }
    const toml::node* nodes = root.get("node");
    if (nodes == nullptr) return bad(root, "no [[node]] (expected at least one)");
    if (!nodes->is_array()) return bad(*nodes, "node must be an array of tables, [[node]]");
    for (const toml::node& one : *nodes->as_array()) {
      if (!one.is_table()) return bad(one, "a node must be a table, [[node]]");
      GW_TRY(add_node(*one.as_table()));
    }
    for (std::size_t i = 0; i < cluster_.nodes.size(); ++i) {
      GW_TRY(check_at(check_node(cluster_, cluster_.nodes[i]), *tables_[i]));
    }
    GW_TRY(check_at(check_cluster(cluster_), *nodes));
    return std::move(cluster_);
  }

 private:
  Status bad(const toml::node& at, const std::string& what) const {
    return {Code::kInvalidArgument, format("%s:%d: %s", name_.c_str(),
                                           static_cast<int>(at.source().begin.line), what.c_str())};
  }
  Status unknown(const toml::node& at, const std::string& key,
                 const std::vector<std::string>& expected) const {
    return bad(at, "unknown key '" + key + "'" + did_you_mean(key, expected) + " (expected " +
                       joined(expected) + ")");
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
    if (!node.is_string()) return bad(node, key + "=" + shown(node) + " (expected a string)");
    out = node.as_string()->get();
    return {};
  }
  // A value as an error shows it; of a table or list that it is one.
  static std::string shown(const toml::node& node) {
    if (node.is_table()) return "a table";
    if (node.is_array()) return "a list";
    if (const auto* number = node.as_floating_point()) return shortest(number->get());
    std::ostringstream out;
    node.visit([&](const auto& value) { out << value; });
    return out.str();
  }
  Status number(const toml::node& node, const std::string& key, double& out, double least,
                double most = kMostWritten) const {
    const auto value = node.value<double>();
    const bool is_number = value && (node.is_integer() || node.is_floating_point());
    if (!is_number || !std::isfinite(*value) || *value < least || *value > most) {
      return bad(node,
                 format("%s=%s (expected a number from %s to %s)", key.c_str(), shown(node).c_str(),
                        shortest(least).c_str(), shortest(most).c_str()));
    }
    out = *value;
    return {};
  }
  Status integer(const toml::node& node, const std::string& key, int& out) const {
    constexpr std::int64_t kMost = 65536;
    const auto* value = node.as_integer();
    if (value == nullptr || value->get() < 1 || value->get() > kMost) {
      return bad(node, format("%s=%s (expected a whole number, 1 to %lld)", key.c_str(),
                              shown(node).c_str(), static_cast<long long>(kMost)));
    }
    out = static_cast<int>(value->get());
    return {};
  }
  Status missing(const toml::table& table, const std::string& what, const char* key) const {
    return bad(table, what + " has no " + key + " (expected one)");
  }

  Status add_device(const std::string& name, const toml::table& table) {
    DeviceType type;
    type.name = name;
    GW_TRY(check_alone(table, {"macs_per_second", "memory_bandwidth"}));
    for (const auto& [key, node] : table) {
      const std::string what(key.str());
      if (what == "memory") {
        GW_TRY(memory(node, type.memory_bytes));
      } else if (what == "macs_per_second") {
        GW_TRY(number(node, what, type.macs_per_second, kLeastMacs));
      } else if (what == "memory_bandwidth") {
        GW_TRY(number(node, what, type.memory_bandwidth, kLeastBytes));
      } else if (what == "profile") {
        GW_TRY(take_products(node, type));
      } else {
        return unknown(node, what, {"memory", "macs_per_second", "memory_bandwidth", "profile"});
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
      return bad(node, format("memory=%s %s", shown(node).c_str(), wanted));
    }
    out = node.as_integer()->get();
    return {};
  }

  Status add_link(const std::string& name, const toml::table& table) {
    ClusterLink link;
    link.name = name;
    if (table.get("profile") != nullptr) {
      GW_TRY(take_link(table, link));
    } else if (const toml::node* transport = table.get("transport"); transport != nullptr) {
      return bad(*transport, "transport of link '" + name + "' (expected with profile= alone)");
    }
    for (const auto& [key, node] : table) GW_TRY(set_link(std::string(key.str()), node, link));
    for (const char* needed : {"latency", "bandwidth"}) {
      if (table.get("profile") != nullptr || table.get(needed) != nullptr) continue;
      return missing(table, "link '" + name + "'", needed);
    }
    links_[name] = static_cast<int>(cluster_.links.size());
    cluster_.links.push_back(std::move(link));
    return {};
  }

  // What the file gives stands in place of what the profile says: the link is not measured then.
  Status set_link(const std::string& key, const toml::node& node, ClusterLink& link) const {
    if (key == "latency" || key == "bandwidth") link.profile.clear();
    if (key == "latency") {
      double seconds = 0;
      GW_TRY(number(node, key, seconds, 0, kMostLatencySeconds));
      GW_TRY(take_latency(node, seconds, link));
    } else if (key == "bandwidth") {
      GW_TRY(number(node, key, link.bytes_per_second, kLeastBytes));
    } else if (key == "processor") {
      constexpr double kMost = 1e3;
      GW_TRY(number(node, key, link.processor_seconds_per_byte, 0, kMost));
    } else if (key == "shared") {
      if (!node.is_boolean()) {
        return bad(node, "shared=" + shown(node) + " (expected true or false)");
      }
      link.shared = node.as_boolean()->get();
    } else if (key != "profile" && key != "transport") {
      return unknown(node, key,
                     {"latency", "bandwidth", "processor", "shared", "profile", "transport"});
    }
    return {};
  }

  Status take_latency(const toml::node& node, double seconds, ClusterLink& link) const {
    if (seconds > kMostLatencySeconds) {
      return bad(node, "latency of " + shortest(seconds) + " seconds (expected at most 1000)");
    }
    link.latency = std::llround(seconds * 1e9);
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
        return unknown(node, what, {"name", "count", "devices", "device", "link", "uplink"});
      }
    }
    if (one.name.empty()) return missing(table, "a node", "name");
    if (one.type < 0) return missing(table, "node '" + one.name + "'", "device");
    if (one.devices > 1 && one.link < 0) return missing(table, "node '" + one.name + "'", "link");
    for (int number = 0; number < count; ++number) {
      cluster_.nodes.push_back(one);
      std::string& name = cluster_.nodes.back().name;
      if (count > 1) name += std::to_string(number);
      if (const auto [before, added] = names_.emplace(name, &table); !added) {
        return bad(
            *table.get("name"),
            format("node '%s': the name stands twice (expected once; the other is of line %d)",
                   name.c_str(), static_cast<int>(before->second->source().begin.line)));
      }
      tables_.push_back(&table);
    }
    return {};
  }

  // The profile that `node` names.
  Result<Profile> profile(const toml::node& node, std::string& path) const {
    GW_TRY(text(node, "profile", path));
    if (!read_) return bad(node, "profile='" + path + "' is not read here (expected rates)");
    auto found = read_(path);
    if (!found.has_value()) return bad(node, std::string(found.error().message()));
    return found;
  }

  Status take_products(const toml::node& node, DeviceType& type) const {
    GW_ASSIGN(const Profile found, profile(node, type.profile));
    type.conditions = found.conditions;
    type.measured = product_times(found);
    type.times = std::make_shared<const DeviceTimes>(found);
    for (const auto& [macs, seconds] : type.measured) {
      if (seconds <= 0) continue;
      type.macs_per_second = std::max(type.macs_per_second, static_cast<double>(macs) / seconds);
    }
    if (type.macs_per_second > 0) return {};
    return bad(node, "profile '" + type.profile + "' has no products (expected at least one)");
  }

  // Where a table names a profile, the keys that it stands for are not there.
  Status check_alone(const toml::table& table, std::initializer_list<const char*> rates) const {
    for (const char* rate : rates) {
      const toml::node* given = table.get(rate);
      if (given == nullptr || table.get("profile") == nullptr) continue;
      return bad(*given, std::string(rate) + " beside profile (expected one of the two)");
    }
    return {};
  }

  Status take_link(const toml::table& table, ClusterLink& link) const {
    const toml::node& node = *table.get("profile");
    const toml::node* transport = table.get("transport");
    if (transport == nullptr) return bad(node, "profile without transport (expected both)");
    std::string name;
    GW_TRY(text(*transport, "transport", name));
    GW_ASSIGN(const Profile found, profile(node, link.profile));
    const ProfiledLink* measured = find_link(found, name);
    if (measured == nullptr) {
      std::vector<std::string> names;
      for (const ProfiledLink& one : found.links) names.push_back(one.transport);
      return bad(*transport,
                 "profile '" + link.profile + "' has no link '" + name + "' (expected " +
                     (names.empty() ? std::string("one with links") : joined(names)) + ")");
    }
    link.conditions = found.conditions;
    link.bytes_per_second = measured->bytes_per_second;
    link.processor_seconds_per_byte = measured->cpu_seconds_per_byte;
    auto times = std::make_shared<const LinkTimes>(found, name);
    if (times->any()) link.times = std::move(times);
    return take_latency(*transport, measured->latency_seconds, link);
  }

  std::string name_;
  const ReadProfile& read_;
  Cluster cluster_;
  std::map<std::string, int> types_;
  std::map<std::string, int> links_;
  std::map<std::string, const toml::table*> names_;  // of nodes
  std::vector<const toml::table*> tables_;           // by node
};

}  // namespace

Result<Cluster> parse_cluster(const std::string& text, const std::string& name,
                              const ReadProfile& read) {
  toml::table table;
  try {
    table = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    return Status(Code::kInvalidArgument, format("%s:%d: not TOML (%s)", name.c_str(),
                                                 static_cast<int>(error.source().begin.line),
                                                 std::string(error.description()).c_str()));
  }
  return ClusterReader(name, read).read(table);
}

}  // namespace gradwire
