#include "apps/train/mode_flags.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "apps/train/train_options.h"
#include "base/text.h"

namespace gradwire {
namespace {

using Modes = std::vector<std::string_view>;

// Flags that some modes alone have a use for, and what the others' users may want instead.
struct Belonging {
  const char* flag;
  Modes modes;
  const char* remedy;
};

const std::vector<Belonging>& belongings() {
  static const std::vector<Belonging> all{
      {"servers", {"ps-sync", "ps-async"}, "the other modes have no servers"},
      {"pull-compressor", {"ps-sync", "ps-async"}, "the other modes have --compressor alone"},
      {"staleness", {"ps-async"}, "the other modes have no stale gradients to bound"},
      {"staleness-lr", {"ps-async"}, "the other modes have no stale gradients"},
      {"period", {"ps-async", "eamsgd"}, "fedavg has --local-steps"},
      {"rho", {"easgd", "sync-easgd", "eamsgd"}, "only elastic averaging pulls"},
      {"alpha", {"easgd", "sync-easgd", "eamsgd"}, "only elastic averaging pulls"},
      {"moving-rate", {"easgd", "sync-easgd", "eamsgd"}, "only elastic averaging pulls"},
      {"local-steps", {"fedavg"}, "ps-async and eamsgd have --period"},
      {"participation", {"fedavg"}, "in the other modes all workers take part"},
      {"asynchronous", {"eamsgd"}, "ps-async is asynchronous, the others in step"},
      {"momentum-at", {"sync", "ps-sync"}, "the other modes have one place for it"},
      {"algorithm", {"sync", "sync-easgd", "eamsgd", "fedavg"}, "no all-reduce in this mode"},
      {"compressor",
       {"sync", "ps-sync", "ps-async", "sync-easgd", "eamsgd", "fedavg"},
       "easgd sends whole models (sync-easgd compresses them); hogwild sends nothing"},
      {"check-every", {"sync"}, "the other modes have no replicas between exchanges"},
      {"trace", {"sync"}, "--metrics has the other modes' times"},
      {"trace-steps", {"sync"}, "--metrics has the other modes' times"},
      {"measure-every", {"sync"}, "the other modes have no exact average to compare with"},
      {"bucket-bytes", {"sync", "fedavg"}, "the other modes have no buckets"},
      {"threads", {"sync", "fedavg"}, "the other modes encode on one thread"},
      {"accumulate", {"sync"}, "a larger --batch gives the same gradients"},
      {"accumulate-policy", {"sync"}, "the other modes have no micro-batches"},
      {"optimizer", {"sync", "ps-sync", "ps-async"}, "the other modes use sgd with --momentum"},
      {"device", {"sync"}, "the other modes run on the CPU"},
      {"traffic", {"sync"}, "the other modes have --compressor and --pull-compressor"},
      {"parallel", {"sync"}, "the other modes have ranks of --inproc or of a launcher"},
      {"zero", {"sync"}, "--servers shards the model over servers"},
      {"recompute", {"sync"}, "the other modes keep all activations"},
      {"offload", {"sync"}, "the other modes keep everything in one memory"},
      {"offload-chunk", {"sync"}, "the other modes keep everything in one memory"},
      {"offload-overlap", {"sync"}, "the other modes keep everything in one memory"},
      {"memory", {"sync"}, "the other modes do not measure their memory"},
      {"parameter-compressor", {"sync"}, "ps-sync and ps-async have --pull-compressor"},
      {"optimizer-compressor", {"sync"}, "the other modes have --compressor"},
      {"weight-decay", {"sync", "ps-sync", "ps-async"}, "the other modes have no weight decay"},
      {"clip", {"sync"}, "the other modes have no averaged gradient"},
      {"clip-worker", {"sync"}, "the other modes do not clip"},
      {"precision", {"sync"}, "the other modes compute in fp32"},
      {"no-main-grads", {"sync"}, "the other modes compute in fp32"},
      {"loss-scale", {"sync"}, "the other modes compute in fp32"},
  };
  return all;
}

std::string listed(const Modes& modes) {
  std::string text;
  for (const std::string_view mode : modes) text += (text.empty() ? "" : ", ") + std::string(mode);
  return text;
}

Status refuse(const std::string& what) { return {Code::kInvalidArgument, "train: " + what}; }

// Three ways to say one thing.
Status check_elasticity_flags(const Flags& flags, const ModeFlags& mode) {
  std::string seen;
  int count = 0;
  for (const char* flag : {"rho", "alpha", "moving-rate"}) {
    if (!flags.given(flag)) continue;
    seen += (seen.empty() ? "--" : " and --") + std::string(flag);
    ++count;
  }
  if (count > 1) return refuse(seen + " exclude each other (expected one of them)");
  if (flags.given("alpha") && mode.alpha == 0) return refuse("got --alpha 0, expected alpha > 0");
  if (flags.given("rho") && mode.rho == 0) return refuse("got --rho 0, expected rho > 0");
  if (mode.moving_rate == 0) return refuse("got --moving-rate 0, expected moving-rate > 0");
  return {};
}

bool has_servers(const std::string& mode) { return mode == "ps-sync" || mode == "ps-async"; }

}  // namespace

void add_mode_flags(Flags& flags, ModeFlags& mode) {
  flags.group("Training mode (docs/modes.md)");
  flags.choice(
      "mode", mode.name,
      {"sync", "ps-sync", "ps-async", "hogwild", "easgd", "sync-easgd", "eamsgd", "fedavg"},
      "training mode; a step is one micro-batch of every worker");
  flags.integer("servers", mode.servers, {1, 4096},
                "ps-sync, ps-async: number of servers, ranks 0 to N-1, which hold the model");
  flags.text("pull-compressor", mode.pull_compressor,
             "ps-sync, ps-async: compressor of the model updates that workers pull; --compressor "
             "applies to pushes",
             "none", "SPEC");
  flags.integer("staleness", mode.staleness, {0, 1e9},
                "ps-async: largest lead of a worker over the slowest, in steps", "no bound");
  flags.toggle("staleness-lr", mode.staleness_lr,
               "ps-async: learning rate divided by the staleness");
  flags.integer("period", mode.period, {1, 1e9}, "ps-async, eamsgd: local steps between exchanges");
  flags.number("rho", mode.rho, {0, 1e9},
               "easgd, sync-easgd, eamsgd: elastic force of You et al. (SC 2017), alpha = lr rho: "
               "it follows the learning rate",
               "moving-rate / (workers lr)");
  flags.number("alpha", mode.alpha, {0, 1e9},
               "easgd, sync-easgd, eamsgd: elastic force of Zhang et al. (NeurIPS 2015), constant "
               "while the learning rate changes",
               "none: from --rho or --moving-rate");
  flags.number("moving-rate", mode.moving_rate, {0, 1e3},
               "easgd, sync-easgd, eamsgd: moving rate beta = workers alpha of Zhang et al. at the "
               "learning rate --lr; alpha then follows the learning rate");
  flags.integer("local-steps", mode.local_steps, {1, 1e9}, "fedavg: local steps between averages");
  flags.number("participation", mode.participation, {0, 1},
               "fedavg: fraction of the ranks that take part in a round, chosen from --seed");
  flags.toggle("asynchronous", mode.asynchronous,
               "eamsgd: rank 0 holds the centre and workers exchange with it independently");
}

Status settle_mode(const Flags& flags, TrainOptions& options) {
  const std::string& mode = options.mode.name;
  for (const Belonging& belonging : belongings()) {
    if (!flags.given(belonging.flag) ||
        std::ranges::find(belonging.modes, mode) != belonging.modes.end()) {
      continue;
    }
    return refuse(format("--%s requires --mode %s (got --mode %s; %s)", belonging.flag,
                         listed(belonging.modes).c_str(), mode.c_str(), belonging.remedy));
  }
  GW_TRY(check_elasticity_flags(flags, options.mode));
  if (options.mode.participation == 0) {
    return refuse("--participation must be above 0 and at most 1 (got 0)");
  }
  if (options.mode.asynchronous && flags.given("algorithm")) {
    return refuse("--algorithm chooses an all-reduce, and --asynchronous has none (got both)");
  }
  if (mode != "easgd" && mode != "sync-easgd") return {};
  if (flags.given("momentum") && options.momentum > 0) {
    return refuse(
        format("--mode %s has no momentum (got --momentum %g, expected 0, or --mode eamsgd)",
               mode.c_str(), options.momentum));
  }
  options.momentum = 0;
  return {};
}

Result<int> workers_among(const TrainOptions& options, int ranks) {
  const std::string& mode = options.mode.name;
  const int others = has_servers(mode) ? static_cast<int>(options.mode.servers)
                     : mode == "easgd" || options.mode.asynchronous ? 1
                                                                    : 0;
  if (options.parallel.pp > 1 || options.parallel.tp > 1) {  // whose ranks share their samples
    GW_ASSIGN(const MeshSizes mesh, options.parallel.mesh(ranks));
    return mesh.dp;
  }
  if (ranks > others) return ranks - others;
  return refuse(
      format("--mode %s needs more ranks (got %d rank(s), of which %d compute no gradients; use "
             "--inproc %d, or gradwire run -n %d)",
             mode.c_str(), ranks, others, others + 2, others + 2));
}

}  // namespace gradwire
