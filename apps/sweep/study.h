// What a sweep or a comparison runs, as its file and flags say it: rows (a compressor, with
// overrides of training flags) and a grid of other choices, times seeds; and what is expected.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/help_text.h"
#include "gradwire/status.h"

namespace gradwire {

// Flags of `gradwire train` without their dashes: "lr" -> "0.05". A switch has the value "true".
using TrainFlags = std::map<std::string, std::string>;

struct StudyRow {
  std::string name;        // unique in its setting; the compressor's spec when the study names none
  std::string compressor;  // a spec or rules
  std::string setting;     // rows of one setting are compared with each other
  int ranks = 0;           // 0: the study's
  TrainFlags overrides;
};

// One dimension of the grid: "ranks", "transport", "lab", "compressor" or a training flag.
struct StudyAxis {
  std::string key;
  std::vector<std::string> values;
};

// About the mean over seeds of one figure of `row` or, with `minus`, its mean difference to that
// row of the same setting, paired by seed. Holds in every setting that has the row, or in
// `setting` alone. A run that diverged counts as an accuracy of 0 % and an infinite loss.
struct AcceptRule {
  std::string text;  // what a reader is told
  std::string row;
  std::string minus;
  std::string setting;
  std::string metric = "accuracy";  // on the test set in percent; "test_loss" there; "loss": mean
                                    // of the last ten training losses
  double at_least = -std::numeric_limits<double>::infinity();
  double at_most = std::numeric_limits<double>::infinity();
};

struct Study {
  std::string title = "gradwire compare";
  std::string expected;  // in prose: what should come out, and why
  std::vector<std::uint64_t> seeds;
  int ranks = 4;
  // inproc (threads of one process), ucx, tcp, shm, auto, nccl; "": the caller's
  std::string transport;
  std::string lab;   // hosts and rate, "4x1gbit": shaped links; "": none
  TrainFlags train;  // of every row
  std::vector<StudyAxis> grid;
  std::vector<StudyRow> rows;
  std::string baseline;  // a row's name; differences and ratios refer to it, in each setting
  std::optional<double> target;  // accuracy in percent that "time to accuracy" is about
  std::vector<AcceptRule> accept;
};

// A training flag that a study may set, and whether it is a switch.
struct StudyFlag {
  std::string name;
  bool is_toggle = false;
  FlagFacts facts;  // of gradwire train: its help, default and choices
};
// All of `gradwire train` but what a run is given by the study itself (compressor, seed, ranks) and
// what says where its reports go.
const std::vector<StudyFlag>& study_train_flags();

// Whether a run takes the value: of a training flag, or of "compressor". The error names both.
Status check_study_value(const std::string& name, const std::string& value);

// A cell of the cross product, with everything in its place: what is run once per seed.
struct StudyCase {
  std::string setting;  // "" where there is one only
  std::string row;
  std::string compressor;
  TrainFlags flags;
  int ranks = 1;
  std::string transport;
  std::string lab;
};

// A study worked out. Cases of one setting are neighbours, rows in the study's order.
struct StudyPlan {
  std::string title;
  std::string expected;
  std::string baseline;
  std::optional<double> target;
  std::vector<std::uint64_t> seeds;
  std::vector<StudyCase> cases;
  std::vector<AcceptRule> accept;
};

// Fills defaults (row names, the baseline: "none" where it is a row, seed 1, measure-every; where a
// grid has neither rows nor compressors, its meshes, "parallel", as rows) and multiplies out.
// `transport` is taken where the study names none. kInvalidArgument says what cannot be: no row,
// two of one name, unknown names in rules, an axis that a row sets too, a row whose flags exclude
// one another in every setting, ranks that a transport or a laboratory cannot have. A row that only
// some settings exclude stays: its other runs can be.
Result<StudyPlan> plan_of(Study study, const std::string& transport);

// The settings of a plan, in order of their first case.
std::vector<std::string> settings_of(const StudyPlan& plan);

}  // namespace gradwire
