#include "apps/train/train.h"

#include <cstdio>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "adapters/trainer/sharded/sharded_options.h"
#include "apps/catalogue.h"
#include "apps/environment.h"
#include "apps/flight_folder.h"
#include "apps/job.h"
#include "apps/log_lines.h"
#include "apps/plan/plan_file.h"
#include "apps/profile/profile.h"
#include "apps/run/verdict.h"
#include "apps/train/end_signals.h"
#include "apps/train/mode_run.h"
#include "apps/train/own_momentum.h"
#include "apps/train/parallel/auto_mesh.h"
#include "apps/train/parallel/parallel_flag.h"
#include "apps/train/parallel/unserved.h"
#include "apps/train/rank_run.h"
#include "apps/train/report.h"
#include "apps/train/run_estimate.h"
#include "apps/train/run_options.h"
#include "apps/train/traffic_flag.h"
#include "apps/train/train_options.h"
#include "base/text.h"
#include "gradwire/config.h"

namespace gradwire {
namespace {

CommunicatorOptions communicator_options(const TrainOptions& options, const Log& log) {
  CommunicatorOptions c;
  c.deadline_seconds = options.deadline;
  c.algorithm = dense_algorithm(options);
  c.flight_folder = flight_folder(options.flight);
  c.warn = [log](std::string_view line) { log(LogLevel::kWarn, line); };
  return c;
}

Status train_rank(const TrainOptions& options, const Problem& problem, Communicator& communicator,
                  RunReport* report, Interruption& interruption) {
  Interruption* const heeded = options.checkpoint.empty() ? nullptr : &interruption;
  if (heeded != nullptr) heeded->listen();
  if (options.mode.name != "sync") {
    GW_ASSIGN(const auto run, ModeRun::create(options, problem, communicator, report, heeded));
    return run->run();
  }
  GW_ASSIGN(const auto run, RankRun::create(options, problem, communicator, report, heeded));
  return run->run();
}

// What a run ends with that came to no end: its error and exit status. Where a signal asked for it,
// that is the reason, whatever became of ranks that ended earlier than others.
struct Ending {
  Status error;
  int exit_status = 1;
};
Ending ending_of(const Status& status, const TrainOptions& options,
                 const Interruption& interruption) {
  const int signal = interruption.agreed() != 0 ? interruption.agreed() : interruption.asked();
  if (signal == 0) return {status};
  std::string text = "train: ended by " + signal_text(signal);
  text += interruption.saved() < 0
              ? ", without a checkpoint: " + std::string(status.message())
              : format(" after step %lld, with a checkpoint in %s (--resume continues from it)",
                       static_cast<long long>(interruption.saved()), options.checkpoint.c_str());
  return {{Code::kCancelled, text}, 128 + signal};
}

// Of threads: nothing but this process counts on its end.
Result<int> end_with(const Ending& ending) {
  if (ending.exit_status == 1) return ending.error;
  std::fflush(stdout);
  std::fprintf(stderr, "gradwire: error: %s\n", std::string(ending.error.message()).c_str());
  return ending.exit_status;
}

// check_room(), or what it says as a warning.
Status look_for_room(const TrainOptions& options, const Problem& problem, int ranks, int here,
                     bool one_process, const Log& log) {
  const Status room = check_room(options, problem, ranks, here, one_process);
  if (room.ok() || !options.allow_overcommit) return room;
  log(LogLevel::kWarn, room.message());
  return {};
}

TrainOptions on_rank(TrainOptions options, const launch::RankPlace& place) {
  options.place = place.device;
  options.transport = place.transport;
  return options;
}

// A rank that ends because another one did says less than the one that caused it.
bool is_consequence(const Status& status) {
  return status.code() == Code::kPeerLost || status.code() == Code::kCancelled;
}

// Ranks as threads of this process; the error is that of the rank that failed first, by itself.
Result<int> train_threads(const TrainOptions& options, const Problem& problem, int ranks,
                          const Log& log, EndSignals& signals) {
  GW_ASSIGN(RunReport report, RunReport::create(options));
  if (options.mode.name == "hogwild") {
    GW_TRY(look_for_room(options, problem, ranks, ranks, true, log));
    Interruption interruption(signals);
    const Status status = run_hogwild_threads(options, problem, ranks, report,
                                              options.checkpoint.empty() ? nullptr : &interruption);
    if (!status.ok()) return end_with(ending_of(status, options, interruption));
    return 0;
  }
  GW_ASSIGN(const launch::DeviceName device, launch::parse_device(options.device));
  GW_TRY(look_for_room(options, problem, ranks, ranks, true, log));
  GW_ASSIGN(const auto places, place_threads(device, options.transport, ranks));
  GW_ASSIGN(auto communicators, make_inproc_groups(ranks, communicator_options(options, log)));
  std::deque<Interruption> interruptions;
  for (int rank = 0; rank < ranks; ++rank) interruptions.emplace_back(signals);
  std::mutex mutex;
  Status first;
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    threads.emplace_back([&, rank, world = std::move(communicators[rank])]() mutable {
      if (const auto own = make_log(options.log_level, static_cast<int>(rank)); own.has_value()) {
        log_place(own.value(), places[rank]);
      }
      const auto taken = launch::take_place(places[rank]);
      Status status = join_threads(*world, places[rank]);
      if (status.ok()) {
        status = train_rank(on_rank(options, places[rank]), problem, *world,
                            rank == 0 ? &report : nullptr, interruptions[rank]);
      }
      // Before the communicator goes: what its end does to others is not the first error.
      const std::lock_guard lock(mutex);
      if (first.ok() || (is_consequence(first) && !status.ok() && !is_consequence(status)))
        first = status;
    });
  }
  threads.clear();
  if (!first.ok()) return end_with(ending_of(first, options, interruptions.front()));
  return 0;
}

// Ranks that share this host's memory, as far as the launcher tells: `gradwire run` starts all
// here.
int ranks_here(const LaunchInfo& launch) {
  if (launch.local_size > 0) return launch.local_size;
  return environment("GRADWIRE_LAUNCHER") ? launch.size : 1;
}

// This process is one rank of a job.
Result<int> train_process(const TrainOptions& options, const Problem& problem,
                          const LaunchInfo& launch, const Log& log, EndSignals& signals) {
  GW_TRY(look_for_room(options, problem, launch.size, ranks_here(launch), false, log));
  std::optional<RunReport> report;
  if (launch.rank == 0) {
    GW_ASSIGN(report, RunReport::create(options));
  }
  // Runs of a study are to differ in their compressors alone, on every machine.
  GW_ASSIGN(const LinksFrom links, links_from_environment(environment, LinksFrom::kDefaults));
  GW_ASSIGN(const launch::DeviceName device, launch::parse_device(options.device));
  const std::string transport =
      options.transport.empty() ? environment("GRADWIRE_TRANSPORT").value_or(messages_of("auto"))
                                : options.transport;
  GW_ASSIGN(const launch::RankPlace place, place_process(launch, device, transport, log));
  log_place(log, place);
  const auto taken = launch::take_place(place);
  GW_ASSIGN(JoinedJob job,
            join_job(launch, place.transport, communicator_options(options, log), log, links));
  RunReport* mine = report ? &*report : nullptr;
  Interruption interruption(signals);
  const Status status =
      train_rank(on_rank(options, place), problem, *job.communicator, mine, interruption);
  if (status.ok()) return 0;
  const Ending ending = ending_of(status, options, interruption);
  return fail_promptly(ending.error, ending.exit_status);
}

Status check_launch(const TrainOptions& options, const LaunchInfo& launch) {
  if (options.mode.name == "hogwild" && !options.transport.empty()) {
    return {Code::kInvalidArgument, "train: --transport " + options.transport +
                                        " cannot be used with --mode hogwild, whose threads "
                                        "share parameters and send nothing"};
  }
  if (options.mode.name == "hogwild" && launch.size > 1) {
    return {Code::kInvalidArgument,
            "train: --mode hogwild needs threads of one process, which share parameters (got " +
                std::to_string(launch.size) + " processes from " + launch.source +
                "; use --inproc, or --mode ps-async)"};
  }
  if (options.inproc == 0 || launch.size == 1) return {};
  return {Code::kInvalidArgument,
          "train: --inproc " + std::to_string(options.inproc) + " needs a single process (got " +
              std::to_string(launch.size) + " processes from " + launch.source + ")"};
}

// What `plan` gave is named with its line there.
Status check_together(const Flags& flags, const TrainOptions& options, const PlanLines& plan) {
  GW_TRY(plan.placed({"batch"}, check_batch(options)));
  GW_TRY(plan.placed({"momentum", "optimizer"}, check_optimizer(flags, options)));
  const std::string misplaced = misplaced_model_flag(flags, options);
  GW_TRY(plan.placed({misplaced, "model"}, check_model_flags(flags, options)));
  GW_TRY(check_train_options(flags, options));
  if (const Unserved* const one = first_unserved(options); one != nullptr) {
    return plan.placed({one->flag.substr(2), "parallel"}, check_division_served(options));
  }
  if (options.zero == 0) return {};
  return plan.placed({"compressor"}, check_sharded_compressor(Registry::builtin(),
                                                              parallel_options(options, nullptr)));
}

// All that follows the command line.
Result<int> train_as_asked(Flags& flags, TrainOptions& options, const PlanLines& plan) {
  if (!plan.profiles.empty()) GW_TRY(plan.check_machine(conditions_here()));
  GW_TRY(settle_mode(flags, options));
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  GW_ASSIGN(const std::string chosen, settle_auto(flags, options, launch, ranks_here(launch)));
  if (!chosen.empty() && !options.quiet && launch.rank == 0) {
    std::printf("parallel auto: %s\n", chosen.c_str());
  }
  const int ranks = launch.source == "alone" ? 0 : launch.size;
  GW_TRY(plan.placed({"parallel"}, settle_parallel(flags, options, ranks)));
  GW_TRY(settle_traffic(flags, options));
  GW_TRY(plan.placed({"optimizer"}, settle_own_momentum(flags, options)));
  GW_TRY(check_together(flags, options, plan));
  if (!plan.path.empty() && goes_without_flush(options) && !options.quiet && launch.rank == 0) {
    std::printf(
        "plan: stale: %s has no flush, which is other mathematics than a step of its "
        "batch\n",
        to_string(options.parallel).c_str());
  }
  if (!flags.given("deadline")) {
    GW_ASSIGN(options.deadline, deadline_from_environment(options.deadline));
  }
  GW_TRY(check_launch(options, launch));
  GW_TRY(check_flight_folder(flight_folder(options.flight)));
  GW_ASSIGN(const Log log, make_log(options.log_level, launch.rank));
  EndSignals signals(options.deadline);
  GW_ASSIGN(const Problem problem,
            load_problem(options, environment("GRADWIRE_DATA").value_or("")));
  GW_TRY(plan.placed({"parallel"}, check_stages(options, problem)));
  GW_TRY(plan.placed({"recompute", "parallel"}, check_recompute(options, problem)));
  if (launch.size > 1) return train_process(options, problem, launch, log, signals);
  return train_threads(options, problem, options.inproc > 0 ? static_cast<int>(options.inproc) : 1,
                       log, signals);
}

}  // namespace

Result<int> train_command(const std::vector<std::string>& args) {
  TrainOptions options;
  Flags flags(
      "train",
      "Trains one model on one data set. Ranks are started by a launcher (gradwire run, mpirun, "
      "srun, torchrun) or by --inproc or --parallel; without these there is one. Defaults stand in "
      "brackets.");
  add_train_flags(flags, options);
  flags.config_file();
  bool list_models = false;
  bool list_data = false;
  flags.toggle("list-models", list_models, "list of the models; nothing is trained");
  flags.toggle("list-data", list_data, "list of the data sets; nothing is trained");
  bool json = false;
  flags.toggle("json", json, "JSON lines from --list-models and --list-data");
  flags.example("gradwire train --model mlp --data digits --steps 20");
  flags.example("gradwire train --parallel dp=4,zero=1 --steps 20");
  flags.example("gradwire train --inproc 4 --compressor topk:ratio=0.01,ef=ef14 --steps 20");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  PlanLines plan;
  if (flags.given("plan")) {
    GW_ASSIGN(plan, apply_plan_file(options.plan, flags));
  }
  if (list_models || list_data) {
    const std::string models = json ? model_json_lines() : model_list();
    const std::string data = json ? data_json_lines() : data_list();
    std::printf("%s", ((list_models ? models : "") + (list_data ? data : "")).c_str());
    return 0;
  }
  if (json) {
    return Status(Code::kInvalidArgument,
                  "train: --json without --list-models or --list-data (got it alone; --metrics "
                  "writes a run's figures as JSON lines)");
  }
  return train_as_asked(flags, options, plan);
}

}  // namespace gradwire
