// What a search for a mesh found, as a file that `gradwire train --plan` runs:
//
//   version = 1
//   [train]                       # flags of gradwire train
//   parallel = "dp=4,pp=2/1f1b"
//   batch = 64
//   accumulate = 8
//   ...
//   [predicted]                   # for people: nothing reads it
//   step_seconds = 0.31
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/flags.h"
#include "gradwire/status.h"

namespace gradwire {

struct MeshPlan {
  // Names of flags of gradwire train, and values as TOML has them (texts in quotation marks).
  std::vector<std::pair<std::string, std::string>> train = {};
  std::string mesh = {};  // as the search's table has it
  double step_seconds = 0;
  std::int64_t memory_bytes = 0;
  std::string rates = {};  // which ones are measured
};

// A text in quotation marks, as TOML reads it.
std::string quoted_toml(const std::string& text);
// The file's text.
std::string plan_file_text(const MeshPlan& plan);

// Where the flags stand that a file gave.
struct PlanLines {
  std::string path = {};
  std::map<std::string, int, std::less<>> lines = {};  // by flag

  // An error that is about these flags, with "FILE:LINE: " in front: of the first of them that the
  // file gave, if any.
  Status placed(std::initializer_list<std::string_view> flags, const Status& status) const;
};

// Gives the flags of gradwire train the values of the file, as if they stood on the command line.
// kInvalidArgument with "FILE:LINE: " in front: what is not TOML, another version, unknown tables
// and keys, [train] without parallel, batch or accumulate, values that the flag refuses, and a flag
// that has been given beside it.
Result<PlanLines> apply_plan_file(const std::string& path, Flags& flags);

}  // namespace gradwire
