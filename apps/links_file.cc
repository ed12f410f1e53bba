#include "apps/links_file.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/environment.h"
#include "apps/whole_file.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

// "" when neither variable is set.
std::string cache_path() {
  if (const auto cache = environment("XDG_CACHE_HOME")) return *cache + "/gradwire/links.json";
  if (const auto home = environment("HOME")) return *home + "/.cache/gradwire/links.json";
  return "";
}

// Home folders are shared between hosts.
std::string key_of(const std::string& transport) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return std::string(host.data()) + " " + transport;
}

Json read_all() {
  const std::string path = cache_path();
  if (path.empty()) return Json::object();
  const auto text = read_whole_file(path);
  Json all = text.has_value() ? Json::parse(text.value(), nullptr, false) : Json::object();
  return all.is_object() ? all : Json::object();
}

constexpr std::array kNumbers{
    std::pair{"alpha", &LinkModel::alpha},
    std::pair{"beta", &LinkModel::beta},
    std::pair{"gamma", &LinkModel::gamma},
    std::pair{"alpha_intra", &LinkModel::alpha_intra},
    std::pair{"beta_intra", &LinkModel::beta_intra},
    std::pair{"gap", &LinkModel::gap},
};

}  // namespace

std::optional<LinkModel> cached_links(const std::string& transport) {
  const Json all = read_all();
  const auto found = all.find(key_of(transport));
  if (found == all.end() || !found->is_object()) return std::nullopt;
  LinkModel links;
  for (const auto& [name, member] : kNumbers) {
    const auto number = found->find(name);
    if (number == found->end() || !number->is_number()) return std::nullopt;
    const auto value = number->get<double>();
    if (!(value >= 0 && value < 1e4)) return std::nullopt;
    links.*member = value;
  }
  return links;
}

void cache_links(const std::string& transport, const LinkModel& links) {
  const std::string path = cache_path();
  if (path.empty()) return;
  Json all = read_all();
  Json& own = all[key_of(transport)] = Json::object();
  for (const auto& [name, member] : kNumbers) own[name] = links.*member;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  // In one step, so that another job never reads half of it.
  const std::string fresh = path + "." + std::to_string(getpid());
  if (!write_whole_file(fresh, all.dump(1) + "\n").ok()) return;
  std::filesystem::rename(fresh, path, ignored);
}

}  // namespace gradwire
