// Which rank is this process? Launchers leave variables behind, some of them from a launcher
// further out: torchrun under srun, mpirun inside an allocation. So the innermost comes first, and
// a group of variables counts only when it is whole.
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/hash.h"
#include "base/text.h"
#include "gradwire/config.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMaxRanks = 65536;  // a tag has 16 bits for its source
// Slurm numbers its own steps (batch script, interactive shell, ...) from here; they are no tasks
// of ours.
constexpr std::int64_t kFirstSlurmOwnStep = 0xfffffff0;

Status bad(const std::string& name, const std::string& seen, const std::string& wanted) {
  return {Code::kInvalidArgument, name + " (got '" + seen + "', expected " + wanted + ")"};
}
Status missing(const std::string& name, const std::string& because, const std::string& wanted) {
  return {Code::kInvalidArgument,
          name + " is not set, but " + because + " is (expected " + wanted + ")"};
}

Status bad_hosts(std::string_view list, const char* why) {
  return {Code::kInvalidArgument, "got '" + std::string(list) + "', " + why +
                                      " (expected a list of hosts such as rack[03-07,11],login)"};
}

// Of Slurm's way of writing many hosts: "rack[03-07,11]-ib,login". Several brackets in one name are
// the product of their numbers, the last one fastest: "r[2-3]n[01,05]" is r2n01, r2n05, ...
Result<std::string> first_host(std::string_view list) {
  std::string host;
  std::size_t at = 0;
  while (at < list.size() && list[at] != ',') {
    if (list[at] == ']') return bad_hosts(list, "an unmatched ']'");
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    const std::size_t close = list.find(']', at);
    if (close == std::string_view::npos) return bad_hosts(list, "an unmatched '['");
    const std::string_view inside = list.substr(at + 1, close - at - 1);
    const std::string_view first = inside.substr(0, inside.find_first_of("-,"));
    if (first.empty()) return bad_hosts(list, "a bracket without a number");
    host += first;
    at = close + 1;
  }
  if (host.empty()) return bad_hosts(list, "no host");
  return host;
}

// A whole number from `least` to `most`; `fallback` when the variable is not set.
Result<std::int64_t> number(const EnvLookup& env, const std::string& name, std::int64_t least,
                            std::int64_t most, std::optional<std::int64_t> fallback = {}) {
  const std::optional<std::string> text = env(name);
  const std::string wanted =
      "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  if (!text && fallback) return *fallback;
  if (!text) return Status(Code::kInvalidArgument, name + " is not set (expected " + wanted + ")");
  const std::optional<std::int64_t> value = to_int(*text);
  if (!value || *value < least || *value > most) return bad(name, *text, wanted);
  return *value;
}

// The variables of a launcher. It is there when one of rank and size is set, so that half an
// environment is refused by name; where that proves nothing, when first and second are.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local = nullptr;
  const char* local_size = nullptr;
  const char* job = nullptr;
  // What else it says.
  Status (*more)(const EnvLookup& env, LaunchInfo& info) = nullptr;
  const char* first = nullptr;
  const char* second = nullptr;
};

// Of a launcher that is there.
Result<LaunchInfo> read(const EnvLookup& env, const Launcher& names) {
  LaunchInfo info;
  info.source = names.name;
  if (!env(names.rank)) return missing(names.rank, names.size, "this process's rank, from 0");
  if (!env(names.size)) return missing(names.size, names.rank, "the number of ranks");
  GW_ASSIGN(const std::int64_t size, number(env, names.size, 1, kMaxRanks));
  GW_ASSIGN(const std::int64_t rank, number(env, names.rank, 0, size - 1));
  info.size = static_cast<int>(size);
  info.rank = info.local_rank = static_cast<int>(rank);
  if (names.local != nullptr) {
    GW_ASSIGN(const std::int64_t local, number(env, names.local, 0, size - 1, rank));
    info.local_rank = static_cast<int>(local);
  }
  if (names.local_size != nullptr) {
    GW_ASSIGN(const std::int64_t here, number(env, names.local_size, 1, size, 0));
    info.local_size = static_cast<int>(here);
  }
  if (names.job != nullptr) info.job = env(names.job).value_or("");
  if (names.more != nullptr) GW_TRY(names.more(env, info));
  return info;
}

// MASTER_ADDR and MASTER_PORT as "host:port", where they are set.
Status take_master(const EnvLookup& env, LaunchInfo& info) {
  const std::optional<std::string> host = env("MASTER_ADDR");
  const std::optional<std::string> port_text = env("MASTER_PORT");
  if (!host && !port_text) return {};
  if (!host) return missing("MASTER_ADDR", "MASTER_PORT", "the host of rank 0");
  if (!port_text) return missing("MASTER_PORT", "MASTER_ADDR", "a free port on that host");
  if (host->empty()) return bad("MASTER_ADDR", *host, "the host of rank 0");
  GW_ASSIGN(const std::int64_t port, number(env, "MASTER_PORT", 1, 65535));
  const bool v6 = host->find(':') != std::string::npos && host->front() != '[';
  info.rendezvous = (v6 ? "[" + *host + "]" : *host) + ":" + std::to_string(port);
  return {};
}

Status want_rendezvous(const EnvLookup& env, LaunchInfo& info) {
  if (info.size == 1 || env("GRADWIRE_RENDEZVOUS")) return {};
  return missing("GRADWIRE_RENDEZVOUS", "GRADWIRE_RANK", "host:port of rank 0, or file://DIR");
}

Status by_torchrun(const EnvLookup& env, LaunchInfo& info) {
  GW_TRY(take_master(env, info));
  // The elastic agent serves a store on MASTER_PORT: nobody may listen there, but all can ask it.
  if (env("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True" && !info.rendezvous.empty())
    info.rendezvous = "torch://" + info.rendezvous;
  // A restarted gang must not meet what the last one has left behind.
  if (const auto id = env("TORCHELASTIC_RUN_ID"))
    info.job = *id + "." + env("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return {};
}

Status by_pmix(const EnvLookup& env, LaunchInfo& info) {
  if (info.job.empty()) return take_master(env, info);
  info.rendezvous = "pmix://";
  return {};
}

// Slurm's step runs on one host alone.
bool one_slurm_node(const EnvLookup& env) {
  const auto nodes = env("SLURM_STEP_NUM_NODES");
  return (nodes ? nodes : env("SLURM_NNODES")).value_or("") == "1";
}

Status by_pmi(const EnvLookup& env, LaunchInfo& info) {
  // srun --mpi=pmi2 tells the local rank under Slurm's name; Hydra inside an allocation leaves
  // Slurm's SLURM_LOCALID equal on all ranks, but sets its own, which comes first.
  if (!env("MPI_LOCALRANKID") && env("SLURM_LOCALID")) {
    GW_ASSIGN(const std::int64_t local, number(env, "SLURM_LOCALID", 0, info.size - 1));
    info.local_rank = static_cast<int>(local);
    if (one_slurm_node(env)) info.local_size = info.size;
  }
  if (!env("PMI_FD")) return take_master(env, info);
  GW_ASSIGN(const std::int64_t fd, number(env, "PMI_FD", 0, INT32_MAX));
  info.rendezvous = "pmi://" + std::to_string(fd);
  return {};
}

// Inside a step of srun with several tasks. SLURM_PROCID and SLURM_NTASKS linger in batch scripts
// and interactive shells, the step's number does not (or is one of Slurm's own).
Result<bool> in_slurm_step(const EnvLookup& env) {
  if (!env("SLURM_STEP_ID") || !env("SLURM_NTASKS")) return false;
  GW_ASSIGN(const std::int64_t step, number(env, "SLURM_STEP_ID", 0, 0xffffffff));
  GW_ASSIGN(const std::int64_t tasks, number(env, "SLURM_NTASKS", 1, INT32_MAX));
  return step < kFirstSlurmOwnStep && tasks > 1;
}

// All ranks must come to one place without having talked: the step's first host, and ports that
// follow from job and step, below those that kernels hand out on their own (from 32768).
Status by_slurm(const EnvLookup& env, LaunchInfo& info) {
  if (env("SLURM_JOB_ID")) info.job = *env("SLURM_JOB_ID") + "." + *env("SLURM_STEP_ID");
  if (one_slurm_node(env)) info.local_size = info.size;
  GW_TRY(take_master(env, info));
  if (!info.rendezvous.empty()) return {};
  std::string host = "127.0.0.1";
  if (info.local_size == 0) {
    const auto list = env("SLURM_STEP_NODELIST");
    if (!list) return missing("SLURM_STEP_NODELIST", "SLURM_STEP_ID", "the step's hosts");
    auto first = first_host(*list);
    if (!first.has_value()) return first.error().with_context("SLURM_STEP_NODELIST");
    host = std::move(first).value();
  }
  const std::uint64_t port = 16384 + hash_name(info.job) % 16000;
  info.rendezvous = "slurm://" + host + ":" + std::to_string(port);
  return {};
}

Result<LaunchInfo> from_arguments(const LaunchArguments& said) {
  constexpr Launcher kNames{"arguments", "the argument rank", "the argument size",
                            "the argument local rank"};
  const auto lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto& value = name == kNames.rank   ? said.rank
                        : name == kNames.size ? said.size
                                              : said.local_rank;
    return value ? std::optional(std::to_string(*value)) : std::nullopt;
  };
  GW_ASSIGN(LaunchInfo info, read(lookup, kNames));
  info.reason = format("rank %d and size %d are given as arguments", info.rank, info.size);
  return info;
}

// In order.
constexpr std::array kLaunchers{
    Launcher{"GRADWIRE_*", "GRADWIRE_RANK", "GRADWIRE_WORLD_SIZE", "GRADWIRE_LOCAL_RANK", nullptr,
             nullptr, want_rendezvous},
    Launcher{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", nullptr,
             by_torchrun, "RANK", "LOCAL_RANK"},
    Launcher{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", by_pmix},
    Launcher{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_JOBID",
             by_pmi},
    Launcher{"PALS", "PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", nullptr, "PALS_APID",
             take_master},
    Launcher{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, nullptr, by_slurm,
             "SLURM_STEP_ID", "SLURM_NTASKS"},
    Launcher{"RANK/WORLD_SIZE", "RANK", "WORLD_SIZE", nullptr, nullptr, nullptr, take_master},
};

Result<bool> is_there(const Launcher& launcher, const EnvLookup& env) {
  if (launcher.more == by_slurm) return in_slurm_step(env);
  if (launcher.first != nullptr) return env(launcher.first) && env(launcher.second);
  return env(launcher.rank) || env(launcher.size);
}

// "RANK=3 and LOCAL_RANK=1", of those that are set.
std::string seen(const Launcher& launcher, const EnvLookup& env) {
  std::string text;
  const bool apart = launcher.first != nullptr;
  for (const char* name :
       {apart ? launcher.first : launcher.rank, apart ? launcher.second : launcher.size}) {
    const auto value = env(name);
    if (value) text += (text.empty() ? "" : " and ") + std::string(name) + "=" + *value;
  }
  return text;
}

// What is set of launchers that come after the one that was taken, and does not count.
std::string left_aside(std::size_t taken, const EnvLookup& env) {
  std::string text;
  for (std::size_t i = taken + 1; i < kLaunchers.size(); ++i) {
    const Launcher& other = kLaunchers[i];
    if (std::string_view(other.rank) == kLaunchers[taken].rank) continue;
    const std::string found = seen(other, env);
    if (found.empty()) continue;
    text += (text.empty() ? "" : ", ") + std::string(other.name) + " (" + found + ")";
  }
  return text.empty() ? "" : "; left aside: " + text;
}

std::string why_alone(const EnvLookup& env) {
  if (env("SLURM_NTASKS") && !env("SLURM_STEP_ID"))
    return "SLURM_NTASKS=" + *env("SLURM_NTASKS") +
           " is set, but no SLURM_STEP_ID: a batch script or an allocation's shell, no task of "
           "srun";
  if (env("SLURM_STEP_ID") && env("SLURM_NTASKS"))
    return "SLURM_STEP_ID=" + *env("SLURM_STEP_ID") + " is a step of " + *env("SLURM_NTASKS") +
           " tasks that counts for none: one task, or a step of Slurm's own";
  return "no launcher's variables are set";
}

Result<LaunchInfo> find_launcher(const EnvLookup& env) {
  for (std::size_t i = 0; i < kLaunchers.size(); ++i) {
    GW_ASSIGN(const bool taken, is_there(kLaunchers[i], env));
    if (!taken) continue;
    GW_ASSIGN(LaunchInfo info, read(env, kLaunchers[i]));
    info.reason = seen(kLaunchers[i], env) + left_aside(i, env);
    return info;
  }
  // Half of torchrun's, and nothing else that could explain it.
  if (env("LOCAL_RANK")) return missing("RANK", "LOCAL_RANK", "this process's rank, from 0");
  if (env("GRADWIRE_LOCAL_RANK"))
    return missing("GRADWIRE_RANK", "GRADWIRE_LOCAL_RANK", "this process's rank, from 0");
  LaunchInfo alone;
  alone.source = "alone";
  alone.reason = why_alone(env);
  return alone;
}

}  // namespace

Result<LaunchInfo> discover_launch(const EnvLookup& env, const LaunchArguments& arguments) {
  const bool said = arguments.rank || arguments.size;
  GW_ASSIGN(LaunchInfo info, said ? from_arguments(arguments) : find_launcher(env));
  // These are for people to set, whatever starts the ranks.
  info.interface = env("GRADWIRE_IFNAME").value_or("");
  if (const auto rendezvous = env("GRADWIRE_RENDEZVOUS")) info.rendezvous = *rendezvous;
  if (const auto job = env("GRADWIRE_JOB")) info.job = *job;
  if (!arguments.rendezvous.empty()) info.rendezvous = arguments.rendezvous;
  if (!arguments.job.empty()) info.job = arguments.job;
  if (info.job.empty()) info.job = "job";
  return info;
}

}  // namespace gradwire
