#include "apps/doctor/doctor.h"

#include <cstdio>

#include "apps/doctor/facts.h"
#include "apps/doctor/report.h"
#include "apps/environment.h"
#include "apps/flags.h"
#include "apps/job.h"
#include "apps/log_lines.h"
#include "base/text.h"

namespace gradwire {
namespace {

ConstByteSpan bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// All ranks tell rank 0, through the store, what they see; the others get an empty list.
Result<std::vector<DoctorReport>> gather(const LaunchInfo& launch, const JoinedJob& job) {
  const Deadline deadline = deadline_in(job.rendezvous.timeout_seconds);
  const std::string mine = rank_facts(launch, transport_of(*job.communicator)).dump();
  GW_TRY(job.rendezvous.store->set(format("doctor/%d", launch.rank), bytes_of(mine), deadline));
  std::vector<DoctorReport> ranks;
  for (int rank = 0; launch.rank == 0 && rank < launch.size; ++rank) {
    GW_ASSIGN(const std::vector<std::byte> bytes,
              job.rendezvous.store->get(format("doctor/%d", rank), deadline));
    DoctorReport one = DoctorReport::parse(
        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), nullptr, false);
    if (!one.is_object() || !one.contains("host") || !one.contains("cores"))
      return Status(Code::kCorruptPayload,
                    format("doctor: rank %d returned unexpected data", rank));
    ranks.push_back(std::move(one));
  }
  return ranks;
}

// The job's part; the job is left in good order.
Status examine_job(const LaunchInfo& launch, const std::string& transport, DoctorReport& report) {
  GW_ASSIGN(const double deadline,
            deadline_from_environment(CommunicatorOptions{}.deadline_seconds));
  CommunicatorOptions options;
  options.deadline_seconds = deadline;
  GW_ASSIGN(const JoinedJob job, join_job(launch, transport, options, Log()));
  GW_ASSIGN(const std::vector<DoctorReport> ranks, gather(launch, job));
  if (launch.rank == 0) {
    add_job_facts(report, ranks);
    report["launcher"]["root"] = launch::root_of(job.rendezvous);
  }
  GW_ASSIGN(Work together, job.communicator->barrier());
  return together.wait();
}

}  // namespace

Result<int> doctor_command(const std::vector<std::string>& args) {
  bool json = false;
  Flags flags(
      "doctor",
      "Diagnoses this build, machine and job: transports, devices, the choices made and their "
      "reasons. As a job (gradwire run -n 4 -- gradwire doctor) rank 0 prints, and the exit status "
      "is 1 where the ranks cannot connect.");
  flags.toggle("json", json, "one JSON object instead of text");
  flags.example("gradwire doctor");
  GW_ASSIGN(const Flags::Outcome outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  const std::string transport = transport_from_environment();
  // The first rank looks at its machine; the others only take part.
  DoctorReport report =
      launch.rank == 0 ? machine_facts(launch, messages_of(transport)) : DoctorReport();
  const Status job = launch.size > 1 ? examine_job(launch, transport, report) : Status();
  if (launch.rank == 0) {
    if (!job.ok())
      note(report, "warning",
           "the ranks of the job did not connect: " + std::string(job.message()));
    std::printf("%s\n", json ? report.dump().c_str() : report_text(report).c_str());
  }
  if (!job.ok()) return fail_promptly(job);
  return 0;
}

}  // namespace gradwire
