// Flat TOML files: one key per flag.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

struct ConfigEntry {
  std::string key;
  std::string value;  // as it would stand on the command line; arrays with commas between
  int line = 0;       // 1 is the first
};

// Strings, numbers, booleans and arrays of them, in the file's order. Errors name the file and the
// line: unreadable, not TOML, a table where a value is wanted.
Result<std::vector<ConfigEntry>> read_config_file(const std::string& path);

}  // namespace gradwire
