// What `gradwire doctor` looks at, as JSON; report.h makes text of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "gradwire/config.h"

namespace gradwire {

using DoctorReport = nlohmann::ordered_json;

// All keys are there in every report, null where they do not apply:
//   build      version, commit, compiler, backends
//   machine    host, cpu, kernel, cores, memory_bytes, shared_memory (bytes, free_bytes),
//              ptrace_scope
//   launcher   source, rank, ranks, local_rank, job, rendezvous, secret, variables
//   ucx        header_version, running_version, memory_types, cuda_memory (direct, why),
//              transports, devices, settings; or error
//   interfaces name, address, up, loopback, bridge each;   tcp_interface: what `tcp` publishes
//   same_host  transport, single_copy, describe; or error: two processes of this host
//   job        (job_facts) ranks: rank, host, cores, describe each; ranks_on_host, oversubscribed
//   environment  GRADWIRE_* and UCX_* variables; secrets as "(set)"
//   notes      level ("warning" or "note") and text each
DoctorReport machine_facts(const LaunchInfo& launch, const std::string& transport);

// Adds a note to the report.
void note(DoctorReport& report, const std::string& level, const std::string& text);

// What one rank tells the others of itself, and what rank 0 makes of all of them.
DoctorReport rank_facts(const LaunchInfo& launch, const std::string& describe);
void add_job_facts(DoctorReport& report, const std::vector<DoctorReport>& ranks);

}  // namespace gradwire
