// What a comparison runs: rows (a compressor, with overrides of training flags) times seeds, on the
// same model, data and order; and what is expected of the outcome.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// Flags of `gradwire train` without their dashes: "lr" -> "0.05". A switch has the value "true".
using TrainFlags = std::map<std::string, std::string>;

struct StudyRow {
  std::string name;        // unique; the compressor's spec when the study names none
  std::string compressor;  // a spec or rules
  TrainFlags overrides;
};

// About the mean test accuracy of `row` in percent or, with `minus`, its mean difference to that
// row, paired by seed. A run that diverged counts as 0 %.
struct AcceptRule {
  std::string text;  // what a reader is told
  std::string row;
  std::string minus;
  double at_least = -std::numeric_limits<double>::infinity();
  double at_most = std::numeric_limits<double>::infinity();
};

struct Study {
  std::string title = "gradwire compare";
  std::vector<std::uint64_t> seeds;
  int ranks = 4;
  bool inproc = false;  // ranks as threads of one process instead of UCX processes
  TrainFlags train;     // of every row
  std::vector<StudyRow> rows;
  std::string baseline;  // a row's name; differences and ratios refer to it
  std::vector<AcceptRule> accept;
};

// The training flags that a study may set.
const std::vector<std::string>& study_train_flags();

// STUDY.toml: keys title, ranks | inproc, seeds (a count or a list), baseline; a table [train] of
// training flags; an array [[row]] of name, compressor and overrides; an array [[accept]] of text,
// row, minus, at_least, at_most. Errors name file, line and key.
Result<Study> load_study(const std::string& path);

// Fills defaults (row names, the baseline) and refuses what cannot run: no row, two of one name,
// unknown names in rules, seeds or ranks below one.
Status complete_study(Study& study);

}  // namespace gradwire
