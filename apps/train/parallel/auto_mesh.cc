#include "apps/train/parallel/auto_mesh.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "adapters/launch/rank_place.h"
#include "adapters/trainer/optimizers/optimizer_spec.h"
#include "apps/environment.h"
#include "apps/memory_room.h"
#include "apps/profile/profile.h"
#include "apps/sim/sim_text.h"
#include "apps/train/parallel/unserved.h"
#include "apps/train/rank_run.h"
#include "base/text.h"
#include "planner/cluster/cluster.h"
#include "planner/mesh/mesh_search.h"

namespace gradwire {
namespace {

Status refuse_auto(const std::string& why) {
  return {Code::kInvalidArgument, "train: --parallel auto: " + why};
}

Status check_asked(const TrainOptions& options, const LaunchInfo& launch, int ranks_here) {
  if (launch.size > ranks_here) {
    return refuse_auto(
        format("%d ranks, %d of them on this machine (expected all: for several "
               "machines gradwire plan --cluster searches)",
               launch.size, ranks_here));
  }
  if (launch.source == "alone" && options.inproc == 0) {
    return refuse_auto("no ranks to divide (expected gradwire run -n N, or --inproc N)");
  }
  GW_ASSIGN(const launch::DeviceName device, launch::parse_device(options.device));
  if (device.space != MemorySpace::kHost) {
    return refuse_auto("--device " + options.device +
                       " (expected cpu: profiles are of processors)");
  }
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(options.optimizer));
  if (!choice.method) return {};
  return refuse_auto("--optimizer " + options.optimizer +
                     " (expected sgd, nesterov, adamw or lamb)");
}

Result<Profile> own_profile(const std::string& path) {
  auto profile = read_own_profile(path);
  if (profile.has_value()) return profile;
  return refuse_auto(std::string(profile.error().message()) + "; `gradwire profile --again " +
                     path + "` makes one of this machine");
}

// Between threads, and over shared memory, as over shm.
Result<const ProfiledLink*> link_of(const Profile& profile, const TrainOptions& options,
                                    const LaunchInfo& launch) {
  const std::string asked = options.transport.empty()
                                ? environment("GRADWIRE_TRANSPORT").value_or("")
                                : options.transport;
  const std::string name = launch.size > 1 && asked == "tcp" ? "tcp" : "shm";
  const ProfiledLink* link = find_link(profile, name);
  if (link != nullptr) return link;
  return refuse_auto("profile " + options.profile + " has no link '" + name +
                     "' (expected one measured without --no-links)");
}

Cluster this_machine(const Profile& profile, const ProfiledLink& link, const std::string& path,
                     int ranks) {
  constexpr double kNanoseconds = 1e9;
  DeviceType type{.name = "rank", .memory_bytes = host_memory().bytes / ranks};
  type.profile = path;
  type.measured = product_times(profile);
  type.times = std::make_shared<const DeviceTimes>(profile);
  for (const auto& [macs, seconds] : type.measured) {
    if (seconds > 0) {
      type.macs_per_second = std::max(type.macs_per_second, static_cast<double>(macs) / seconds);
    }
  }
  ClusterLink between{.name = link.transport,
                      .latency = std::llround(link.latency_seconds * kNanoseconds),
                      .bytes_per_second = link.bytes_per_second};
  between.processor_seconds_per_byte = link.cpu_seconds_per_byte;
  between.profile = path;
  auto times = std::make_shared<const LinkTimes>(profile, link.transport);
  if (times->any()) between.times = std::move(times);
  Cluster cluster{.name = "this machine"};
  cluster.types = {std::move(type)};
  cluster.links = {std::move(between)};
  cluster.nodes = {{.name = "machine", .devices = ranks, .type = 0, .link = 0, .uplink = -1}};
  return cluster;
}

MeshModel model_of(const TrainOptions& options, const DataSet& data) {
  return MeshModel([&options, &data](const TensorShare& share, bool /*flush*/) {
    ModelOptions asked = model_options(options);
    asked.share = share;
    if (options.model != "mlp" && options.model != "gpt") {
      asked.share.layout = TensorShare::Layout::kSamples;
    }
    return make_model<float>(asked, data.shape(), data.classes());
  });
}

Result<MeshProblem> problem_of(const TrainOptions& options, const DataSet& data) {
  MeshProblem problem;
  problem.batch = options.batch;
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(options.optimizer));
  problem.optimizer = choice.optimizer.name;
  problem.momentum = options.momentum;
  GW_ASSIGN(problem.precision, parse_precision(options.precision));
  problem.main_gradients = !options.no_main_grads;
  problem.labels = data.labels_per_sample();
  problem.compressors = {options.compressor};
  problem.bucket_bytes = options.bucket_bytes;
  problem.layout = options.model == "mlp" || options.model == "gpt" ? "megatron" : "hybrid";
  return problem;
}

// What a choice says beside the flags that were given, which stay.
std::string parallel_of(const Flags& flags, MeshChoice choice) {
  if (flags.given("zero")) choice.zero = 0;
  return parallel_text(choice);
}

bool is_served(const Flags& flags, const TrainOptions& options, const MeshChoice& choice) {
  if (flags.given("zero") && options.zero != choice.zero) return false;
  if (flags.given("accumulate") && options.accumulate != choice.accumulate) return false;
  if (flags.given("recompute") && options.recompute != choice.recompute) return false;
  TrainOptions asked = options;
  auto spec = ParallelSpec::parse(parallel_of(flags, choice));
  if (!spec.has_value() || !choice.has_flush()) return false;
  asked.parallel = std::move(spec.value());
  asked.zero = choice.zero;
  asked.accumulate = choice.accumulate;
  return check_division_served(asked).ok();
}

std::string reason_of(const MeshSearchResult& found, const std::string& profile) {
  const MeshAnswer& best = found.rows.front();
  const auto time = [](std::int64_t ticks) { return time_text(static_cast<double>(ticks) * 1e-9); };
  std::string text =
      format("%s: %s a step by %s (compute %s, bubble %s, tensors %s, messages %s, data %s)",
             brief_text(best.choice).c_str(), time(best.ticks).c_str(), profile.c_str(),
             time(best.phases.compute).c_str(), time(best.phases.bubble).c_str(),
             time(best.phases.tensors).c_str(), time(best.phases.messages).c_str(),
             time(best.phases.data).c_str());
  if (found.rows.size() > 1) {
    text += format("; next is %s, %s", brief_text(found.rows[1].choice).c_str(),
                   time(found.rows[1].ticks).c_str());
  }
  return text + format("; of %lld meshes", static_cast<long long>(found.choices));
}

Result<MeshSearchResult> search(const Flags& flags, const TrainOptions& options,
                                const MeshProblem& problem) {
  GW_ASSIGN(MeshChoices choices, mesh_choices(problem));
  MeshSearchOptions asked{.rows = 2};
  for (MeshChoice& choice : choices.all) {
    if (is_served(flags, options, choice)) asked.among.push_back(std::move(choice));
  }
  if (asked.among.empty()) {
    std::string given = format("--batch %lld", static_cast<long long>(options.batch));
    if (flags.given("accumulate")) {
      given += format(", --accumulate %lld", static_cast<long long>(options.accumulate));
    }
    return Status(Code::kInvalidArgument,
                  format("no mesh of %d ranks is served with %s and the other flags (expected "
                         "another --batch, --zero, --accumulate or --recompute)",
                         problem.cluster->devices(), given.c_str()));
  }
  return search_mesh(problem, asked);
}

}  // namespace

Result<std::string> settle_auto(Flags& flags, TrainOptions& options, const LaunchInfo& launch,
                                int ranks_here) {
  if (!options.parallel_auto) {
    if (!flags.given("profile")) return std::string();
    return Status(Code::kInvalidArgument, "train: --profile is of --parallel auto (got it alone)");
  }
  GW_TRY(check_asked(options, launch, ranks_here));
  const int ranks = launch.source == "alone" ? static_cast<int>(options.inproc) : launch.size;
  GW_ASSIGN(const Profile profile, own_profile(options.profile));
  GW_ASSIGN(const ProfiledLink* const link, link_of(profile, options, launch));
  if (product_times(profile).empty()) {
    return refuse_auto("profile " + options.profile + " has no products (expected at least one)");
  }
  const Cluster cluster = this_machine(profile, *link, options.profile, ranks);
  GW_ASSIGN(const Problem loaded, load_problem(options, environment("GRADWIRE_DATA").value_or("")));
  MeshModel model = model_of(options, loaded.data);
  const ClusterRates rates;
  GW_ASSIGN(MeshProblem problem, problem_of(options, loaded.data));
  problem.cluster = &cluster;
  problem.model = &model;
  problem.rates = &rates;
  const auto found = search(flags, options, problem);
  if (!found.has_value()) return found.error().with_context("train: --parallel auto");
  const MeshChoice& chosen = found.value().rows.front().choice;
  GW_TRY(flags.set("parallel", parallel_of(flags, chosen)));
  if (!flags.given("accumulate")) {
    GW_TRY(flags.set("accumulate", std::to_string(chosen.accumulate)));
  }
  if (!flags.given("recompute")) GW_TRY(flags.set("recompute", chosen.recompute));
  std::string reason = reason_of(found.value(), options.profile);
  if (ranks > profile.conditions.cores) {
    reason += format("; %d ranks share %d cores, which these times do not count", ranks,
                     profile.conditions.cores);
  }
  return reason;
}

}  // namespace gradwire
