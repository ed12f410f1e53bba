// The only place of the programs that reads the environment.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace gradwire {

// nullopt when unset or empty. Fits EnvLookup of gradwire/config.h.
std::optional<std::string> environment(const std::string& name);

// All variables whose names start with one of these, by name.
std::map<std::string, std::string> environment_with(std::initializer_list<std::string_view> starts);

}  // namespace gradwire
