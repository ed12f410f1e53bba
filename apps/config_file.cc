#include "apps/config_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <optional>

#include "apps/whole_file.h"
#include "base/text.h"

namespace gradwire {
namespace {

std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return shortest(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return std::nullopt;
}

std::optional<std::string> value_text(const toml::node& node) {
  const auto* array = node.as_array();
  if (array == nullptr) return scalar_text(node);
  std::string text;
  for (const toml::node& element : *array) {
    const auto one = scalar_text(element);
    if (!one) return std::nullopt;
    text += (text.empty() ? "" : ",") + *one;
  }
  return text;
}

}  // namespace

Result<std::vector<ConfigEntry>> read_config_file(const std::string& path) {
  GW_ASSIGN(const std::string text, read_whole_file(path));
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return Status(Code::kInvalidArgument, path + ":" + std::to_string(error.source().begin.line) +
                                              ": not TOML (" + std::string(error.description()) +
                                              ")");
  }
  std::vector<ConfigEntry> entries;
  for (const auto& [key, node] : table) {
    const int line = static_cast<int>(node.source().begin.line);
    const auto value = value_text(node);
    if (!value) {
      return Status(Code::kInvalidArgument,
                    path + ":" + std::to_string(line) + ": " + std::string(key.str()) +
                        " must be a string, a number, true, false or an array of these");
    }
    entries.push_back({std::string(key.str()), *value, line});
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const ConfigEntry& a, const ConfigEntry& b) { return a.line < b.line; });
  return entries;
}

}  // namespace gradwire
