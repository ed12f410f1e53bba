// The only place of the programs that reads the environment.
#pragma once

#include <optional>
#include <string>

namespace gradwire {

// nullopt when unset or empty. Fits EnvLookup of gradwire/config.h.
std::optional<std::string> environment(const std::string& name);

}  // namespace gradwire
