#include "apps/doctor/facts.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <map>

#include "apps/doctor/pair_probe.h"
#include "apps/environment.h"
#include "apps/job.h"
#include "apps/machine.h"
#include "base/text.h"
#include "comm/nccl/have_nccl.h"
#include "comm/tcp/interfaces.h"
#include "comm/ucx/inspection.h"

namespace gradwire {
namespace {

using Json = DoctorReport;

constexpr std::uint64_t kSmallSharedMemory = std::uint64_t{256} << 20;

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

Json file_number(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? Json(value) : Json(nullptr);
}

Json build_facts() {
  const Machine here = machine();
  Json backends = {"inproc", "tcp"};
  if (here.ucx != "none") backends.push_back("ucx");
  if (kHaveNccl) backends.push_back("nccl");
  return {{"version", here.gradwire},
          {"commit", here.commit},
          {"compiler", here.compiler},
          {"backends", backends}};
}

Json host_facts() {
  const Machine here = machine();
  Json shared = nullptr;
  struct statvfs space {};
  if (::statvfs("/dev/shm", &space) == 0) {
    shared = {{"bytes", std::uint64_t{space.f_blocks} * space.f_frsize},
              {"free_bytes", std::uint64_t{space.f_bavail} * space.f_frsize}};
  }
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  return {{"host", host_name()},
          {"cpu", here.cpu},
          {"kernel", here.kernel},
          {"cores", here.cores},
          {"memory_bytes", static_cast<std::int64_t>(pages) * ::sysconf(_SC_PAGESIZE)},
          {"shared_memory", shared},
          {"ptrace_scope", file_number("/proc/sys/kernel/yama/ptrace_scope")}};
}

Json launcher_facts(const LaunchInfo& launch) {
  const bool secret = environment("GRADWIRE_SECRET") || environment("GRADWIRE_SECRET_FILE");
  Json variables = Json::object();
  for (const auto& [name, value] : environment_with({"OMPI_COMM_WORLD_",
                                                     "PMI_",
                                                     "PMIX_NAMESPACE",
                                                     "PMIX_RANK",
                                                     "MPI_LOCAL",
                                                     "PALS_",
                                                     "SLURM_PROCID",
                                                     "SLURM_NTASKS",
                                                     "SLURM_STEP_ID",
                                                     "SLURM_LOCALID",
                                                     "SLURM_JOB_ID",
                                                     "SLURM_NNODES",
                                                     "SLURM_STEP_NUM_NODES",
                                                     "SLURM_STEP_NODELIST",
                                                     "RANK=",
                                                     "LOCAL_RANK=",
                                                     "WORLD_SIZE=",
                                                     "LOCAL_WORLD_SIZE=",
                                                     "MASTER_ADDR=",
                                                     "MASTER_PORT=",
                                                     "TORCHELASTIC_",
                                                     "GRADWIRE_RANK",
                                                     "GRADWIRE_LOCAL_RANK",
                                                     "GRADWIRE_WORLD_SIZE",
                                                     "GRADWIRE_RENDEZVOUS",
                                                     "GRADWIRE_JOB"}))
    variables[name] = value;
  return {{"source", launch.source},
          {"reason", launch.reason},
          {"rank", launch.rank},
          {"ranks", launch.size},
          {"local_rank", launch.local_rank},
          {"job", launch.job},
          {"rendezvous", launch.rendezvous},
          {"secret", secret},
          {"variables", variables}};
}

Json environment_facts() {
  Json found = Json::object();
  for (const auto& [name, value] : environment_with({"GRADWIRE_", "UCX_"})) {
    const bool secret = name == "GRADWIRE_SECRET";
    found[name] = secret ? "(set)" : value;
  }
  return found;
}

Json ucx_facts(const std::string& interfaces) {
  const auto found = ucx::inspect(interfaces);
  if (!found.has_value()) return {{"error", std::string(found.error().message())}};
  const ucx::Inspection& ucx = found.value();
  Json transports = Json::array(), devices = Json::array(), settings = Json::array();
  for (const auto& one : ucx.transports)
    transports.push_back({{"name", one.name}, {"device", one.device}, {"kind", one.kind}});
  for (const auto& one : ucx.devices) {
    devices.push_back({{"name", one.name},
                       {"taken", one.reason.empty()},
                       {"reason", one.reason.empty() ? Json(nullptr) : Json(one.reason)}});
  }
  for (const auto& one : ucx.settings) {
    settings.push_back({{"variable", one.variable},
                        {"value", one.value},
                        {"source", one.source},
                        {"why", one.why}});
  }
  return {{"header_version", ucx.header_version},
          {"running_version", ucx.running_version},
          {"memory_types", ucx.memory_types},
          {"cuda_memory", {{"direct", ucx.cuda_direct}, {"why", ucx.cuda_why}}},
          {"transports", transports},
          {"devices", devices},
          {"settings", settings}};
}

Json interface_facts() {
  Json all = Json::array();
  for (const tcp::Interface& one : tcp::list_interfaces()) {
    all.push_back({{"name", one.name},
                   {"address", one.address},
                   {"up", one.up},
                   {"loopback", one.loopback},
                   {"bridge", one.bridge}});
  }
  return all;
}

Json tcp_choice(const std::string& wanted) {
  const auto chosen = tcp::choose_interface(tcp::list_interfaces(), wanted);
  if (!chosen.has_value()) return {{"error", std::string(chosen.error().message())}};
  if (chosen.value().address.empty()) return nullptr;
  return {{"name", chosen.value().name}, {"address", chosen.value().address}};
}

Json pair_facts(const std::string& transport, const std::string& interfaces) {
  const auto pair = probe_pair(transport, interfaces);
  if (!pair.has_value()) return {{"error", std::string(pair.error().message())}};
  return {{"transport", transport},
          {"single_copy", pair.value().find("one copy") != std::string::npos},
          {"describe", pair.value()}};
}

void judge_versions(Json& report) {
  const Json& ucx = report["ucx"];
  if (ucx.contains("error")) return note(report, "note", ucx["error"]);
  const std::string header = ucx["header_version"], running = ucx["running_version"];
  if (!running.starts_with(header + "."))
    note(report, "warning",
         "UCX " + running + " is loaded, but this program was compiled with headers of " + header);
  for (const Json& setting : ucx["settings"]) {
    if (setting["source"] == "without effect")
      note(report, "warning",
           "UCX did not take " + std::string(setting["variable"]) + "=" +
               std::string(setting["value"]) + ": " + std::string(setting["why"]));
  }
}

void judge_pair(Json& report) {
  const Json& pair = report["same_host"];
  if (pair.contains("error"))
    return note(report, "warning",
                "two processes of this host cannot connect: " + std::string(pair["error"]));
  if (pair["transport"] != "ucx") return;
  const std::string text = pair["describe"];
  if (text.find("; tcp/") != std::string::npos)
    note(report, "warning",
         report["environment"].contains("UCX_TLS")
             ? "UCX_TLS keeps the ranks of one host from using shared memory"
             : "the ranks of one host use TCP, not shared memory");
  if (!pair["single_copy"])
    note(report, "note",
         "processes of this host cannot read each other's memory (ptrace scope, container or "
         "user): large messages between them are copied twice");
}

void judge_host(Json& report) {
  const Json& shared = report["machine"]["shared_memory"];
  if (shared.is_null()) {
    note(report, "warning", "/dev/shm is missing: shared memory between ranks needs it");
  } else if (shared["free_bytes"] < kSmallSharedMemory) {
    note(report, "warning",
         format("/dev/shm has %llu MiB free (expected 256 or more; containers: --shm-size)",
                static_cast<unsigned long long>(shared["free_bytes"].get<std::uint64_t>() >> 20)));
  }
  if (report["tcp_interface"].is_object() && report["tcp_interface"].contains("error"))
    note(report, "warning", report["tcp_interface"]["error"]);
  // A launcher's exchange brings a secret of its own.
  const std::string rendezvous = report["launcher"]["rendezvous"];
  const bool exchanged = rendezvous.starts_with("pmi") || rendezvous.starts_with("torch://");
  if (report["launcher"]["ranks"] > 1 && !exchanged && !report["launcher"]["secret"])
    note(report, "warning",
         "GRADWIRE_SECRET is not set: any process that reaches the rendezvous can join");
}

}  // namespace

void note(Json& report, const std::string& level, const std::string& text) {
  report["notes"].push_back({{"level", level}, {"text", text}});
}

Json machine_facts(const LaunchInfo& launch, const std::string& transport) {
  const std::string interfaces = environment("GRADWIRE_IFNAME").value_or("");
  Json report;
  // First: it forks, which a process that has used UCX should not.
  Json pair = pair_facts(transport, interfaces);
  report["build"] = build_facts();
  report["machine"] = host_facts();
  report["launcher"] = launcher_facts(launch);
  report["transport"] = transport;
  const bool one_host = launch.size > 1 && launch.local_size == launch.size;
  report["ucx"] = ucx_facts(
      launch::ucx_interfaces(one_host || launch.rendezvous.starts_with("127."), environment));
  report["interfaces"] = interface_facts();
  report["tcp_interface"] = tcp_choice(interfaces);
  report["same_host"] = std::move(pair);
  report["job"] = nullptr;
  report["environment"] = environment_facts();
  report["notes"] = Json::array();
  judge_versions(report);
  judge_pair(report);
  judge_host(report);
  return report;
}

Json rank_facts(const LaunchInfo& launch, const std::string& describe) {
  return {{"rank", launch.rank},
          {"host", host_name()},
          {"cores", machine().cores},
          {"describe", describe}};
}

void add_job_facts(Json& report, const std::vector<Json>& ranks) {
  std::map<std::string, std::pair<int, int>> hosts;  // ranks and cores
  for (const Json& rank : ranks) {
    auto& [count, cores] = hosts[rank["host"]];
    ++count;
    cores = rank["cores"];
  }
  Json by_host = Json::array();
  bool any = false;
  for (const auto& [host, here] : hosts) {
    const bool crowded = here.second > 0 && here.first > here.second;
    any = any || crowded;
    by_host.push_back({{"host", host}, {"ranks", here.first}, {"cores", here.second}});
    if (crowded)
      note(report, "warning",
           format("%d ranks on %d cores of %s: ranks take turns, steps are slower", here.first,
                  here.second, host.c_str()));
  }
  report["job"] = {{"ranks", ranks}, {"hosts", by_host}, {"oversubscribed", any}};
}

}  // namespace gradwire
