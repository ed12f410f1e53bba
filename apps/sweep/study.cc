#include "apps/sweep/study.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "adapters/trainer/compressor_check.h"
#include "adapters/trainer/mesh/parallel_spec.h"
#include "adapters/trainer/optimizers/optimizer_spec.h"
#include "apps/flags.h"
#include "apps/sweep/run_spec.h"
#include "apps/train/mode_flags.h"
#include "apps/train/own_momentum.h"
#include "apps/train/parallel/parallel_flag.h"
#include "apps/train/rank_run.h"
#include "apps/train/train_options.h"
#include "base/nearest.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::size_t kMostCases = 100'000;

Status refuse(const std::string& what) { return {Code::kInvalidArgument, "study: " + what}; }

// What a run is given by the study itself, and where its own reports go.
bool belongs_to_the_run(const std::string& name) {
  static const std::set<std::string> own{"compressor",  "seed",        "inproc",     "metrics",
                                         "quiet",       "log-level",   "flight",     "config",
                                         "save-params", "dry-run",     "checkpoint", "resume",
                                         "trace",       "trace-steps", "traffic",    "plan"};
  return own.count(name) != 0;
}

// A cell while it grows: what a setting has put together so far.
struct Setting {
  std::string name;
  TrainFlags flags;
  int ranks;
  std::string transport;
  std::string lab;
};

// --steps and --epochs exclude one another: what is said last holds.
void put(TrainFlags& flags, const std::string& name, const std::string& value) {
  if (name == "epochs") flags.erase("steps");
  if (name == "steps") flags.erase("epochs");
  flags[name] = value;
}

Status apply(const StudyAxis& axis, const std::string& value, Setting& setting) {
  if (axis.key == "ranks") {
    const auto ranks = to_int(value);
    if (!ranks || *ranks < 1 || *ranks > 4096)
      return refuse("axis 'ranks' must have 1 to 4096 ranks (got '" + value + "')");
    setting.ranks = static_cast<int>(*ranks);
  } else if (axis.key == "transport") {
    setting.transport = value;
  } else if (axis.key == "lab") {
    setting.lab = value;
  } else {
    put(setting.flags, axis.key, value);
  }
  // Choices that all settings share need no name.
  if (axis.values.size() > 1)
    setting.name += (setting.name.empty() ? "" : ", ") + axis.key + " " + value;
  return {};
}

Result<std::vector<Setting>> multiplied(const Study& study) {
  std::vector<Setting> settings{{.name = {},
                                 .flags = study.train,
                                 .ranks = study.ranks,
                                 .transport = study.transport,
                                 .lab = study.lab}};
  for (const StudyAxis& axis : study.grid) {
    if (axis.key == "compressor") continue;
    std::vector<Setting> next;
    for (const Setting& setting : settings) {
      for (const std::string& value : axis.values) {
        next.push_back(setting);
        GW_TRY(apply(axis, value, next.back()));
      }
    }
    settings = std::move(next);
    if (settings.size() * std::max<std::size_t>(1, study.rows.size()) > kMostCases)
      return refuse("more than 100000 cases");
  }
  return settings;
}

// Without rows and compressors the meshes are what is compared: an axis 'parallel' becomes rows of
// them, uncompressed.
void compare_meshes(Study& study) {
  const auto meshes = std::ranges::find(study.grid, "parallel", &StudyAxis::key);
  if (meshes == study.grid.end()) return;
  for (const std::string& mesh : meshes->values) {
    study.rows.push_back({.name = mesh,
                          .compressor = "none",
                          .setting = {},
                          .ranks = 0,
                          .overrides = {{"parallel", mesh}}});
  }
  study.grid.erase(meshes);
}

Status complete_rows(Study& study) {
  for (const StudyAxis& axis : study.grid) {
    if (axis.key != "compressor") continue;
    for (const std::string& spec : axis.values)
      study.rows.push_back(
          {.name = {}, .compressor = spec, .setting = {}, .ranks = 0, .overrides = {}});
  }
  if (study.rows.empty()) compare_meshes(study);
  if (study.rows.empty())
    return refuse(
        "nothing to run (expected --compressors, [[row]], or [grid] with compressor = [...] or "
        "parallel = [...])");
  std::set<std::pair<std::string, std::string>> names;
  for (StudyRow& row : study.rows) {
    if (row.name.empty()) row.name = row.compressor;
    if (!names.insert({row.setting, row.name}).second)
      return refuse("two rows are named '" + row.name + "'");
    for (const StudyAxis& axis : study.grid) {
      if (row.overrides.count(axis.key) != 0 || (axis.key == "ranks" && row.ranks > 0))
        return refuse("row '" + row.name + "' sets '" + axis.key + "', which is an axis of [grid]");
    }
  }
  return {};
}

bool has_case(const StudyPlan& plan, const std::string& row, const std::string& setting) {
  return std::any_of(plan.cases.begin(), plan.cases.end(), [&](const StudyCase& one) {
    return one.row == row && (setting.empty() || one.setting == setting);
  });
}

Status check_rule(const StudyPlan& plan, const AcceptRule& rule) {
  const auto known = [&](const std::string& name) -> Status {
    if (has_case(plan, name, rule.setting)) return {};
    return refuse("accept: there is no row '" + name + "'" +
                  (rule.setting.empty() ? "" : " in setting '" + rule.setting + "'"));
  };
  GW_TRY(known(rule.row));
  if (!rule.minus.empty()) GW_TRY(known(rule.minus));
  if (rule.metric != "accuracy" && rule.metric != "loss" && rule.metric != "test_loss")
    return refuse("accept: metric must be one of accuracy, loss, test_loss (got '" + rule.metric +
                  "'" + did_you_mean(rule.metric, {"accuracy", "loss", "test_loss"}) + ")");
  if (!(rule.at_least <= rule.at_most))
    return refuse("accept: the rule about row '" + rule.row + "' accepts nothing (" +
                  format("got at_least %g, at_most %g, expected at_least <= at_most)",
                         rule.at_least, rule.at_most));
  if (std::isinf(rule.at_least) && std::isinf(rule.at_most))
    return refuse("accept: the rule about row '" + rule.row +
                  "' accepts anything (expected at_least or at_most)");
  return {};
}

Status complete(Study& study, const std::string& transport) {
  GW_TRY(complete_rows(study));
  if (study.seeds.empty()) study.seeds = {1};
  if (study.ranks < 1) return refuse("no ranks (expected at least 1)");
  if (study.transport.empty()) study.transport = transport;
  if (study.baseline.empty()) {
    const auto dense = std::find_if(study.rows.begin(), study.rows.end(),
                                    [](const StudyRow& row) { return row.compressor == "none"; });
    study.baseline = dense == study.rows.end() ? study.rows.front().name : dense->name;
  }
  return {};
}

Status check_place(const StudyCase& one) {
  static const std::set<std::string> known{"inproc", "ucx", "tcp", "shm", "auto", "nccl"};
  if (known.count(one.transport) == 0)
    return refuse("unknown transport '" + one.transport + "'" +
                  did_you_mean(one.transport, {known.begin(), known.end()}) +
                  " (expected inproc, ucx, tcp, shm, auto or nccl)");
  if (!one.lab.empty() && one.transport == "inproc")
    return refuse("threads of one process have no links (got lab " + one.lab +
                  " with transport inproc, expected ucx or tcp)");
  if (one.transport == "inproc" && one.ranks > kMostThreadRanks)
    return refuse(format("transport inproc takes at most %d ranks (got %d); use another transport",
                         kMostThreadRanks, one.ranks));
  if (one.lab.empty()) return {};
  GW_ASSIGN(const LabLinks links, parse_lab(one.lab));
  if (one.ranks % links.hosts == 0) return {};
  return refuse(format("lab %s: ranks must be a multiple of hosts (got %d ranks on %d hosts)",
                       one.lab.c_str(), one.ranks, links.hosts));
}

// What `gradwire train` says of a case's flags, without data and without ranks that meet.
Status check_flags(const StudyCase& one, std::uint64_t seed) {
  const std::vector<std::string> argv = command_of(one, seed).argv;
  const auto command = std::find(argv.begin(), argv.end(), "train");
  TrainOptions options;
  Flags flags("train", "");
  add_train_flags(flags, options);
  GW_TRY(flags.parse({command + 1, argv.end()}).error());
  GW_TRY(settle_mode(flags, options));
  GW_TRY(settle_own_momentum(flags, options));
  GW_TRY(settle_parallel(flags, options, one.ranks));
  GW_TRY(check_train_options(flags, options));
  GW_TRY(check_problem(options));
  for (const std::string& spec : {options.compressor, options.mode.pull_compressor,
                                  options.optimizer_compressor, options.parameter_compressor}) {
    if (!spec.empty()) GW_TRY(check_compressor(spec));
  }
  // Threads have said it already; ranks that are processes say it once they have met.
  GW_ASSIGN(const int workers, workers_among(options, one.ranks));
  return check_batch_shares(options, workers);
}

Status check_rows(const StudyPlan& plan) {
  std::map<std::string, Status> rows;  // ok once a setting can run it
  for (const StudyCase& one : plan.cases) {
    const auto [at, is_new] = rows.try_emplace(one.row);
    if (!is_new && at->second.ok()) continue;
    at->second = check_flags(one, plan.seeds.front());
  }
  for (const StudyCase& one : plan.cases) {
    const Status& status = rows.at(one.row);
    if (!status.ok())
      return refuse("row '" + one.row + "' cannot run: " + std::string(status.message()));
  }
  return {};
}

// Stages both hold the embedding of a tied model, and tensor ranks hold norms: what is measured of
// them would count more than once.
bool holds_copies(const TrainFlags& flags) {
  const auto tied = flags.find("tied");
  const auto parallel = flags.find("parallel");
  if (parallel == flags.end()) return false;
  const auto spec = ParallelSpec::parse(parallel->second);
  if (!spec.has_value()) return false;
  const bool is_tied = tied != flags.end() && tied->second != "false";
  return spec.value().tp > 1 || (is_tied && spec.value().pp > 1);
}

// Whether a run has averaged gradients that --measure-every can compare: whole ones, and no momenta
// or updates in their place.
bool has_averages(const TrainFlags& flags) {
  if (holds_copies(flags)) return false;
  const auto mode = flags.find("mode");
  if (mode != flags.end() && mode->second != "sync") return false;
  const auto narrow = flags.find("no-main-grads");
  if (narrow != flags.end() && narrow->second != "false") return false;
  const auto optimizer = flags.find("optimizer");
  if (optimizer == flags.end()) return true;
  const auto choice = parse_optimizer(optimizer->second);
  return !choice.has_value() || !choice.value().method;
}

StudyCase case_of(const Setting& setting, const StudyRow& row) {
  StudyCase one{.setting = setting.name,
                .row = row.name,
                .compressor = row.compressor,
                .flags = setting.flags,
                .ranks = row.ranks > 0 ? row.ranks : setting.ranks,
                .transport = setting.transport,
                .lab = setting.lab};
  if (!row.setting.empty())
    one.setting = row.setting + (setting.name.empty() ? "" : ", " + setting.name);
  for (const auto& [name, value] : row.overrides) put(one.flags, name, value);
  // What the report says of errors and residuals is measured at so many steps, outside their time.
  if (has_averages(one.flags)) one.flags.emplace("measure-every", "50");
  return one;
}

}  // namespace

const std::vector<StudyFlag>& study_train_flags() {
  static const std::vector<StudyFlag> flags = [] {
    TrainOptions options;
    Flags train("train", "");
    add_train_flags(train, options);
    std::vector<StudyFlag> all;
    for (const FlagFacts& facts : train.facts().flags) {
      if (!belongs_to_the_run(facts.name)) all.push_back({facts.name, facts.is_toggle, facts});
    }
    return all;
  }();
  return flags;
}

Status check_study_value(const std::string& name, const std::string& value) {
  TrainOptions options;
  Flags train("train", "");
  add_train_flags(train, options);
  return train.set(name, value);
}

Result<StudyPlan> plan_of(Study study, const std::string& transport) {
  GW_TRY(complete(study, transport));
  GW_ASSIGN(const std::vector<Setting> settings, multiplied(study));
  StudyPlan plan{.title = study.title,
                 .expected = study.expected,
                 .baseline = study.baseline,
                 .target = study.target,
                 .seeds = study.seeds,
                 .cases = {},
                 .accept = study.accept};
  std::vector<std::string> own;  // rows' settings, in order
  for (const StudyRow& row : study.rows) {
    if (std::find(own.begin(), own.end(), row.setting) == own.end()) own.push_back(row.setting);
  }
  for (const Setting& setting : settings) {
    for (const std::string& name : own) {
      for (const StudyRow& row : study.rows) {
        if (row.setting != name) continue;
        plan.cases.push_back(case_of(setting, row));
        GW_TRY(check_place(plan.cases.back()));
      }
    }
  }
  if (!has_case(plan, plan.baseline, {}))
    return refuse("baseline '" + plan.baseline + "' is not a row");
  for (const AcceptRule& rule : plan.accept) GW_TRY(check_rule(plan, rule));
  GW_TRY(check_rows(plan));
  return plan;
}

std::vector<std::string> settings_of(const StudyPlan& plan) {
  std::vector<std::string> settings;
  for (const StudyCase& one : plan.cases) {
    if (std::find(settings.begin(), settings.end(), one.setting) == settings.end())
      settings.push_back(one.setting);
  }
  return settings;
}

}  // namespace gradwire
