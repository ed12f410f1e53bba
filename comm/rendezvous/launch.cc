// Which rank is this process? Launchers leave variables behind, some of them from a launcher
// further out: torchrun under srun, mpirun inside an allocation. So the innermost comes first, and
// a group of variables counts only when it is whole.
#include <array>
#include <cstdint>

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
  return {Code::kInvalidArgument, name + " ('" + seen + "' seen; " + wanted + " wanted)"};
}
Status missing(const std::string& name, const std::string& because, const std::string& wanted) {
  return {Code::kInvalidArgument,
          name + " is not set, but " + because + " is (wanted: " + wanted + ")"};
}

// A whole number from `least` to `most`; `fallback` when the variable is not set.
Result<std::int64_t> number(const EnvLookup& env, const std::string& name, std::int64_t least,
                            std::int64_t most, std::optional<std::int64_t> fallback = {}) {
  const std::optional<std::string> text = env(name);
  const std::string wanted =
      "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  if (!text && fallback) return *fallback;
  if (!text) return Status(Code::kInvalidArgument, name + " is not set (wanted: " + wanted + ")");
  const std::optional<std::int64_t> value = to_int(*text);
  if (!value || *value < least || *value > most) return bad(name, *text, wanted);
  return *value;
}

struct Variables {
  const char* source;
  const char* rank;
  const char* size;
  std::array<const char*, 2> local;  // the first that is set
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
  return info;
}

// MASTER_ADDR and MASTER_PORT (+ offset) as "host:port"; "" when neither is set.
Result<std::string> master(const EnvLookup& env, std::int64_t offset) {
  const std::optional<std::string> host = env("MASTER_ADDR");
  const std::optional<std::string> port_text = env("MASTER_PORT");
  if (!host && !port_text) return std::string();
  if (!host) return missing("MASTER_ADDR", "MASTER_PORT", "the host of rank 0");
  if (!port_text) return missing("MASTER_PORT", "MASTER_ADDR", "a free port on that host");
  if (host->empty()) return bad("MASTER_ADDR", *host, "the host of rank 0");
  GW_ASSIGN(std::int64_t port, number(env, "MASTER_PORT", 1, 65535));
  port = port + offset <= 65535 ? port + offset : port - offset;
  const bool v6 = host->find(':') != std::string::npos && host->front() != '[';
  return (v6 ? "[" + *host + "]" : *host) + ":" + std::to_string(port);
}

// The first host of a Slurm list: "n1", "rack[03-07,11]-ib,n2" gives "rack03-ib".
std::string first_slurm_host(const std::string& list) {
  const std::size_t open = list.find('[');
  const std::size_t comma = list.find(',');
  if (open == std::string::npos || comma < open) return list.substr(0, comma);
  const std::size_t close = list.find(']', open);
  if (close == std::string::npos) return "";
  const std::string inside = list.substr(open + 1, close - open - 1);
  const std::size_t after = list.find(',', close);
  const std::size_t tail = after == std::string::npos ? std::string::npos : after - close - 1;
  return list.substr(0, open) + inside.substr(0, inside.find_first_of("-,")) +
         list.substr(close + 1, tail);
}

Result<LaunchInfo> from_gradwire(const EnvLookup& env) {
  GW_ASSIGN(LaunchInfo info, read_group(env, {"GRADWIRE_*",
                                              "GRADWIRE_RANK",
                                              "GRADWIRE_WORLD_SIZE",
                                              {"GRADWIRE_LOCAL_RANK", nullptr}}));
  if (info.size > 1 && !env("GRADWIRE_RENDEZVOUS"))
    return missing("GRADWIRE_RENDEZVOUS", "GRADWIRE_RANK", "host:port of rank 0, or file://DIR");
  return info;
}

Result<LaunchInfo> from_torchrun(const EnvLookup& env) {
  GW_ASSIGN(LaunchInfo info,
            read_group(env, {"torchrun", "RANK", "WORLD_SIZE", {"LOCAL_RANK", nullptr}}));
  // The elastic agent serves its own store on MASTER_PORT; the next port is ours by agreement.
  const bool taken = env("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  GW_ASSIGN(info.rendezvous, master(env, taken ? 1 : 0));
  // A restarted gang must not meet what the last one has left behind.
  if (const auto id = env("TORCHELASTIC_RUN_ID"))
    info.job = *id + "." + env("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return info;
}

Result<LaunchInfo> from_open_mpi(const EnvLookup& env) {
  GW_ASSIGN(LaunchInfo info, read_group(env, {"Open MPI",
                                              "OMPI_COMM_WORLD_RANK",
                                              "OMPI_COMM_WORLD_SIZE",
                                              {"OMPI_COMM_WORLD_LOCAL_RANK", nullptr}}));
  GW_ASSIGN(info.rendezvous, master(env, 0));
  info.job = env("PMIX_NAMESPACE").value_or("");
  return info;
}

std::string slurm_job(const EnvLookup& env) {
  if (!env("SLURM_JOB_ID")) return "";
  return *env("SLURM_JOB_ID") + "." + env("SLURM_STEP_ID").value_or("0");
}

Result<LaunchInfo> from_pmi(const EnvLookup& env) {
  // srun --mpi=pmi2 tells the local rank under Slurm's name; Hydra inside an allocation leaves
  // Slurm's SLURM_LOCALID equal on all ranks, but sets its own, which comes first.
  GW_ASSIGN(LaunchInfo info,
            read_group(env, {"PMI", "PMI_RANK", "PMI_SIZE", {"MPI_LOCALRANKID", "SLURM_LOCALID"}}));
  GW_ASSIGN(info.rendezvous, master(env, 0));
  info.job = env("PMI_JOBID").value_or("");
  return info;
}

Result<LaunchInfo> from_pals(const EnvLookup& env) {
  GW_ASSIGN(LaunchInfo info,
            read_group(env, {"PALS", "PALS_RANKID", "PALS_SIZE", {"PALS_LOCAL_RANKID", nullptr}}));
  GW_ASSIGN(info.rendezvous, master(env, 0));
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

Result<LaunchInfo> from_slurm(const EnvLookup& env) {
  GW_ASSIGN(LaunchInfo info,
            read_group(env, {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", {"SLURM_LOCALID", nullptr}}));
  info.job = slurm_job(env);
  GW_ASSIGN(info.rendezvous, master(env, 0));
  if (!info.rendezvous.empty()) return info;
  const std::string host = first_slurm_host(env("SLURM_STEP_NODELIST").value_or(""));
  if (host.empty()) return info;
  // All ranks must come to one port without having talked: it follows from job and step, below the
  // ports that kernels hand out on their own (from 32768).
  const std::uint64_t port = 16384 + hash_name(info.job) % 16384;
  info.rendezvous = host + ":" + std::to_string(port);
  return info;
}

Result<LaunchInfo> from_rank_and_size(const EnvLookup& env) {
  GW_ASSIGN(LaunchInfo info,
            read_group(env, {"RANK/WORLD_SIZE", "RANK", "WORLD_SIZE", {"LOCAL_RANK", nullptr}}));
  GW_ASSIGN(info.rendezvous, master(env, 0));
  return info;
}

Result<LaunchInfo> find_launcher(const EnvLookup& env) {
  const auto either = [&](const char* a, const char* b) { return env(a) || env(b); };
  if (either("GRADWIRE_RANK", "GRADWIRE_WORLD_SIZE")) return from_gradwire(env);
  if (env("RANK") && env("LOCAL_RANK")) return from_torchrun(env);
  if (either("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) return from_open_mpi(env);
  if (either("PMI_RANK", "PMI_SIZE")) return from_pmi(env);
  if (either("PALS_RANKID", "PALS_SIZE")) return from_pals(env);
  GW_ASSIGN(const bool slurm, in_slurm_step(env));
  if (slurm) return from_slurm(env);
  if (either("RANK", "WORLD_SIZE")) return from_rank_and_size(env);
  LaunchInfo alone;
  alone.source = "alone";
  return alone;
}

}  // namespace

Result<LaunchInfo> discover_launch(const EnvLookup& env) {
  GW_ASSIGN(LaunchInfo info, find_launcher(env));
  // Whoever starts the ranks, these two are for people to set.
  if (const auto rendezvous = env("GRADWIRE_RENDEZVOUS")) info.rendezvous = *rendezvous;
  if (const auto job = env("GRADWIRE_JOB")) info.job = *job;
  if (info.job.empty()) info.job = "job";
  return info;
}

}  // namespace gradwire
