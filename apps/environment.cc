#include "apps/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace gradwire {

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::map<std::string, std::string> environment_with(
    std::initializer_list<std::string_view> starts) {
  std::map<std::string, std::string> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const bool wanted = std::ranges::any_of(
        starts, [&](std::string_view start) { return text.starts_with(start); });
    if (wanted) found.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return found;
}

}  // namespace gradwire
