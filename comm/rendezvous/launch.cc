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

struct Variables {
  const char* source;
  const char* rank;
  const char* size;
  std::array<const char*, 2> local;  // the first that is set
  const char* local_size = nullptr;
};

// Rank, size and local rank of a launcher whose rank variable is set.
Result<LaunchInfo> read_group(const EnvLookup& env, const Variables& names) {
  LaunchInfo info;
  info.source = names.source;
  if (!env(names.rank)) return missing(names.rank, names.size, "this process's rank, from 0");
  if (!env(names.size)) return missing(names.size, names.rank, "the number of ranks");
  GW_ASSIGN(const std::int64_t size, number(env, names.size, 1, kMaxRanks));
  GW_ASSIGN(const std::int64_t rank, number(env, names.rank, 0, size - 1));
  info.size = static_cast<int>(size);
  info.rank = info.local_rank = static_cast<int>(rank);
  for (const char* name : names.local) {
    if (name == nullptr || !env(name)) continue;
    GW_ASSIGN(const std::int64_t local, number(env, name, 0, size - 1));
    info.local_rank = static_cast<int>(local);
    break;
  }
  if (names.local_size != nullptr) {
    GW_ASSIGN(const std::int64_t here, number(env, names.local_size, 1, size, 0));
    info.local_size = static_cast<int>(here);
  }
  return info;
}

// MASTER_ADDR and MASTER_PORT as "host:port"; "" when neither is set.
Result<std::string> master(const EnvLookup& env) {
  const std::optional<std::string> host = env("MASTER_ADDR");
  const std::optional<std::string> port_text = env("MASTER_PORT");
  if (!host && !port_text) return std::string();
  if (!host) return missing("MASTER_ADDR", "MASTER_PORT", "the host of rank 0");
  if (!port_text) return missing("MASTER_PORT", "MASTER_ADDR", "a free port on that host");
  if (host->empty()) return bad("MASTER_ADDR", *host, "the host of rank 0");
  GW_ASSIGN(const std::int64_t port, number(env, "MASTER_PORT", 1, 65535));
  const bool v6 = host->find(':') != std::string::npos && host->front() != '[';
  return (v6 ? "[" + *host + "]" : *host) + ":" + std::to_string(port);
}

Result<LaunchInfo> from_gradwire(const EnvLookup& env) {
  GW_ASSIGN(
      LaunchInfo info,
      read_group(env,
                 {"GRADWIRE_*", "GRADWIRE_RANK", "GRADWIRE_WORLD_SIZE", {"GRADWIRE_LOCAL_RANK"}}));
  if (info.size > 1 && !env("GRADWIRE_RENDEZVOUS"))
    return missing("GRADWIRE_RENDEZVOUS", "GRADWIRE_RANK", "host:port of rank 0, or file://DIR");
  return info;
}

Result<LaunchInfo> from_torchrun(const EnvLookup& env) {
  GW_ASSIGN(
      LaunchInfo info,
      read_group(env, {"torchrun", "RANK", "WORLD_SIZE", {"LOCAL_RANK"}, "LOCAL_WORLD_SIZE"}));
  GW_ASSIGN(info.rendezvous, master(env));
  // The elastic agent serves a store on MASTER_PORT: nobody may listen there, but all can ask it.
  if (env("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True" && !info.rendezvous.empty())
    info.rendezvous = "torch://" + info.rendezvous;
  // A restarted gang must not meet what the last one has left behind.
  if (const auto id = env("TORCHELASTIC_RUN_ID"))
    info.job = *id + "." + env("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return info;
}

Result<LaunchInfo> from_open_mpi(const EnvLookup& env) {
  GW_ASSIGN(LaunchInfo info, read_group(env, {"Open MPI",
                                              "OMPI_COMM_WORLD_RANK",
                                              "OMPI_COMM_WORLD_SIZE",
                                              {"OMPI_COMM_WORLD_LOCAL_RANK"},
                                              "OMPI_COMM_WORLD_LOCAL_SIZE"}));
  info.job = env("PMIX_NAMESPACE").value_or("");
  if (!info.job.empty()) {
    info.rendezvous = "pmix://";
    return info;
  }
  GW_ASSIGN(info.rendezvous, master(env));
  return info;
}

// Slurm's step runs on one host alone.
bool one_slurm_node(const EnvLookup& env) {
  const auto nodes = env("SLURM_STEP_NUM_NODES");
  return (nodes ? nodes : env("SLURM_NNODES")).value_or("") == "1";
}

Result<LaunchInfo> from_pmi(const EnvLookup& env) {
  // srun --mpi=pmi2 tells the local rank under Slurm's name; Hydra inside an allocation leaves
  // Slurm's SLURM_LOCALID equal on all ranks, but sets its own, which comes first.
  GW_ASSIGN(LaunchInfo info, read_group(env, {"PMI",
                                              "PMI_RANK",
                                              "PMI_SIZE",
                                              {"MPI_LOCALRANKID", "SLURM_LOCALID"},
                                              "MPI_LOCALNRANKS"}));
  if (!env("MPI_LOCALRANKID") && env("SLURM_LOCALID") && one_slurm_node(env))
    info.local_size = info.size;
  info.job = env("PMI_JOBID").value_or("");
  if (env("PMI_FD")) {
    GW_ASSIGN(const std::int64_t fd, number(env, "PMI_FD", 0, INT32_MAX));
    info.rendezvous = "pmi://" + std::to_string(fd);
    return info;
  }
  GW_ASSIGN(info.rendezvous, master(env));
  return info;
}

Result<LaunchInfo> from_pals(const EnvLookup& env) {
  GW_ASSIGN(LaunchInfo info,
            read_group(env, {"PALS", "PALS_RANKID", "PALS_SIZE", {"PALS_LOCAL_RANKID"}}));
  GW_ASSIGN(info.rendezvous, master(env));
  info.job = env("PALS_APID").value_or("");
  return info;
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
Result<LaunchInfo> from_slurm(const EnvLookup& env) {
  GW_ASSIGN(LaunchInfo info,
            read_group(env, {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", {"SLURM_LOCALID"}}));
  if (env("SLURM_JOB_ID")) info.job = *env("SLURM_JOB_ID") + "." + *env("SLURM_STEP_ID");
  if (one_slurm_node(env)) info.local_size = info.size;
  GW_ASSIGN(info.rendezvous, master(env));
  if (!info.rendezvous.empty()) return info;
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
  return info;
}

Result<LaunchInfo> from_rank_and_size(const EnvLookup& env) {
  GW_ASSIGN(LaunchInfo info, read_group(env, {"RANK/WORLD_SIZE", "RANK", "WORLD_SIZE", {}}));
  GW_ASSIGN(info.rendezvous, master(env));
  return info;
}

Result<LaunchInfo> from_arguments(const LaunchArguments& said) {
  if (!said.rank || !said.size)
    return Status(Code::kInvalidArgument,
                  std::string("the argument ") + (said.rank ? "size" : "rank") +
                      " is not given, but " + (said.rank ? "rank" : "size") +
                      " is (expected both)");
  LaunchInfo info;
  info.source = "arguments";
  const std::int64_t local = said.local_rank.value_or(*said.rank);
  if (*said.size < 1 || *said.size > kMaxRanks)
    return bad("size", std::to_string(*said.size), "1 to " + std::to_string(kMaxRanks));
  const std::string ranks = "0 to " + std::to_string(*said.size - 1);
  if (*said.rank < 0 || *said.rank >= *said.size)
    return bad("rank", std::to_string(*said.rank), ranks);
  if (local < 0 || local >= *said.size) return bad("local rank", std::to_string(local), ranks);
  info.rank = *said.rank;
  info.size = *said.size;
  info.local_rank = static_cast<int>(local);
  info.reason = format("rank %d and size %d are given as arguments", info.rank, info.size);
  return info;
}

// The launchers in order. One is there when the first of its variables is set (and the second,
// where both are needed), or, so that half an environment is refused by name, the second alone.
struct Launcher {
  const char* name;
  const char* first;
  const char* second;
  bool needs_both;
  Result<LaunchInfo> (*read)(const EnvLookup& env);
};
constexpr std::array kLaunchers{
    Launcher{"GRADWIRE_*", "GRADWIRE_RANK", "GRADWIRE_WORLD_SIZE", false, from_gradwire},
    Launcher{"torchrun", "RANK", "LOCAL_RANK", true, from_torchrun},
    Launcher{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", false, from_open_mpi},
    Launcher{"PMI", "PMI_RANK", "PMI_SIZE", false, from_pmi},
    Launcher{"PALS", "PALS_RANKID", "PALS_SIZE", false, from_pals},
    Launcher{"Slurm", "SLURM_STEP_ID", "SLURM_NTASKS", true, from_slurm},
    Launcher{"RANK/WORLD_SIZE", "RANK", "WORLD_SIZE", false, from_rank_and_size},
};

Result<bool> is_there(const Launcher& launcher, const EnvLookup& env) {
  if (launcher.read == from_slurm) return in_slurm_step(env);
  const bool first = env(launcher.first).has_value(), second = env(launcher.second).has_value();
  return launcher.needs_both ? first && second : first || second;
}

// "RANK=3 and LOCAL_RANK=1", of those that are set.
std::string seen(const Launcher& launcher, const EnvLookup& env) {
  std::string text;
  for (const char* name : {launcher.first, launcher.second}) {
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
    if (std::string_view(other.first) == kLaunchers[taken].first) continue;
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
    GW_ASSIGN(LaunchInfo info, kLaunchers[i].read(env));
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
