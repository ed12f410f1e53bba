// What a search for a mesh found, as a file that `gradwire train --plan` runs:
//
//   version = 1
//   [train]                       # flags of gradwire train
//   parallel = "dp=4,pp=2/1f1b"
//   batch = 64
//   accumulate = 8
//   ...
//   [predicted]                   # for people: nothing is done with it
//   step_seconds = 0.31
//   stale = true                  # where steps have no flush
//   [[profile]]                   # that rates come from, where any do
//   file = "profile.json"
//   host = "alpha"
//   processor = "AMD EPYC"
//   cores = 2
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
#include "apps/plan/read_cluster.h"
#include "gradwire/status.h"

namespace gradwire {

struct MeshPlan {
  // Names of flags of gradwire train, and values as TOML has them (texts in quotation marks).
  std::vector<std::pair<std::string, std::string>> train = {};
  std::string mesh = {};  // as the search's table has it
  double step_seconds = 0;
  std::int64_t memory_bytes = 0;
  std::string rates = {};  // which ones are measured
  bool stale = false;      // no flush: other mathematics
  std::vector<UsedProfile> profiles = {};
};

// A text in quotation marks, as TOML reads it.
std::string quoted_toml(const std::string& text);
// The file's text.
std::string plan_file_text(const MeshPlan& plan);

// A profile that a plan names, and the line where.
struct PlanProfile {
  UsedProfile of = {};
  int line = 0;
};

// Where the flags stand that a file gave, and what its rates come from.
struct PlanLines {
  std::string path = {};
  std::map<std::string, int, std::less<>> lines = {};  // by flag

  // An error that is about these flags, with "FILE:LINE: " in front: of the first of them that the
  // file gave, if any.
  Status placed(std::initializer_list<std::string_view> flags, const Status& status) const;
  std::vector<PlanProfile> profiles = {};

  // Rates of a profile are those of the machine that it was measured on. kInvalidArgument with
  // "FILE:LINE: " in front where there are profiles and none of them is of `here`: names what
  // differs of the first one.
  Status check_machine(const ProfileConditions& here) const;
};

// Gives the flags of gradwire train the values of the file, as if they stood on the command line.
// kInvalidArgument with "FILE:LINE: " in front: what is not TOML, another version, unknown tables
// and keys, [train] without parallel, batch or accumulate, values that the flag refuses, a flag
// that has been given beside it, and a [[profile]] that lacks a key.
Result<PlanLines> apply_plan_file(const std::string& path, Flags& flags);

}  // namespace gradwire
