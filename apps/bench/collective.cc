// `gradwire bench all_reduce` and the other collective operations.
#include <array>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

#include "apps/bench/bench.h"
#include "apps/bench/row_file.h"
#include "apps/environment.h"
#include "apps/flags.h"
#include "apps/job.h"
#include "apps/log_lines.h"
#include "apps/machine.h"
#include "apps/run/run.h"
#include "bench/collective_bench.h"
#include "gradwire/config.h"

namespace gradwire {
namespace {

struct CollectiveFlags {
  bench::CollectiveBenchOptions bench;
  std::int64_t ranks = 0;   // 0: as launched
  std::int64_t inproc = 0;  // ranks as threads
  double deadline = 15;
  std::string buffers = "private";
  std::string transport;
  std::string json;
  std::string log_level;
};

void add_flags(Flags& flags, CollectiveFlags& f) {
  flags.integer("ranks", f.ranks, {1, 1024}, "so many processes, started here",
                "as the launcher says");
  flags.integer("inproc", f.inproc, {1, 64}, "so many ranks as threads instead of processes",
                "none");
  flags.bytes("min", f.bench.min_bytes, {1}, "smallest size in bytes (K, M, G: powers of 1024)");
  flags.bytes("max", f.bench.max_bytes, {1}, "largest size in bytes");
  flags.number("factor", f.bench.factor, {1.01, 1e6}, "from one size to the next");
  flags.text("compressor", f.bench.compressor,
             "a spec: an aggregator averages one fp32 matrix with it (all_reduce only)");
  flags.text("algorithm", f.bench.algorithm, "auto, ring, canonical, ...");
  flags.text("transport", f.transport, "between processes: ucx or tcp",
             "GRADWIRE_TRANSPORT, or ucx");
  flags.choice("buffers", f.buffers, {"private", "shared"},
               "tensors in the caller's memory, or in gradwire's own");
  flags.number("seconds", f.bench.seconds_per_size, {0.001, 3600}, "timed per size, about");
  flags.number("deadline", f.deadline, {0.1, 86400}, "seconds that one operation may take",
               "15, or what gradwire run says");
  flags.text("json", f.json, "file for result rows, one JSON line each");
  flags.choice("log-level", f.log_level, {"trace", "debug", "info", "warn", "error", "off"},
               "of the log on standard error; else GRADWIRE_LOG, else warn");
}

nlohmann::ordered_json json_of(const bench::CollectiveRow& row) {
  nlohmann::ordered_json json;
  json["op"] = row.op;
  json["algorithm"] = row.algorithm;
  json["transport"] = row.transport;
  json["compressor"] = row.compressor;
  json["buffers"] = row.buffers;
  json["ranks"] = row.ranks;
  json["bytes"] = row.bytes;
  json["dtype"] = row.dtype;
  json["operations"] = row.operations;
  json["time_us_min"] = row.time_us_min;
  json["time_us_p50"] = row.time_us_p50;
  json["time_us_p99"] = row.time_us_p99;
  json["algbw_gbps"] = row.algbw_gbps;
  json["busbw_gbps"] = row.busbw_gbps;
  json["wire_bytes"] = row.wire_bytes;
  json["wrong"] = row.wrong;
  return json;
}

void print_heading(const Communicator& communicator, const CollectiveFlags& f) {
  std::printf("%s\n%s\n%s, %d rank(s), compressor %s, %s buffers; GB are 10^9 bytes\n",
              machine_line().c_str(), transport_of(communicator).c_str(), f.bench.operation.c_str(),
              communicator.size(), f.bench.compressor.c_str(), f.buffers.c_str());
  std::printf("%12s %10s %10s %10s %10s %10s %12s %7s\n", "bytes", "min us", "p50 us", "p99 us",
              "algbw GB/s", "busbw GB/s", "wire bytes", "wrong");
}

void print_row(const bench::CollectiveRow& row) {
  std::printf("%12lld %10.1f %10.1f %10.1f %10.3f %10.3f %12lld %7lld\n",
              static_cast<long long>(row.bytes), row.time_us_min, row.time_us_p50, row.time_us_p99,
              row.algbw_gbps, row.busbw_gbps, static_cast<long long>(row.wire_bytes),
              static_cast<long long>(row.wrong));
  std::fflush(stdout);
}

// One rank's part. Wrong data is an error, after the table.
Status bench_rank(const CollectiveFlags& f, Communicator& communicator, RowFile* file) {
  std::int64_t wrong = 0;
  if (file != nullptr) print_heading(communicator, f);
  GW_TRY(bench::bench_collective(communicator, Registry::builtin(), f.bench,
                                 [&](const bench::CollectiveRow& row) {
                                   wrong += row.wrong;
                                   print_row(row);
                                   return file->write(json_of(row));
                                 }));
  if (wrong == 0) return {};
  return {Code::kInternal, "bench " + f.bench.operation + ": wrong results (" +
                               std::to_string(wrong) + " elements; 0 wanted)"};
}

Result<int> bench_threads(CollectiveFlags f) {
  GW_ASSIGN(RowFile file, RowFile::create(f.json));
  f.bench.transport = "inproc";
  const int ranks = static_cast<int>(std::max<std::int64_t>(f.inproc, 1));
  GW_ASSIGN(const auto communicators,
            make_inproc_communicators(ranks, {.deadline_seconds = f.deadline}));
  std::vector<Status> outcomes(communicators.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < communicators.size(); ++r) {
      threads.emplace_back(
          [&, r] { outcomes[r] = bench_rank(f, *communicators[r], r == 0 ? &file : nullptr); });
    }
  }
  for (const Status& status : outcomes) GW_TRY(status);
  return 0;
}

Result<int> bench_process(CollectiveFlags f, const LaunchInfo& launch, const Log& log) {
  GW_ASSIGN(RowFile file, RowFile::create(launch.rank == 0 ? f.json : ""));
  f.bench.transport = f.transport.empty() ? transport_from_environment() : f.transport;
  GW_ASSIGN(const JoinedJob job,
            join_job(launch, f.bench.transport, {.deadline_seconds = f.deadline}, log));
  const Status status = bench_rank(f, *job.communicator, launch.rank == 0 ? &file : nullptr);
  if (!status.ok()) return fail_promptly(status);
  return 0;
}

// This program again, with the same words, as the ranks of a job.
Result<int> launch_ranks(const CollectiveFlags& f, const std::vector<std::string>& words) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return Status(Code::kInternal, "cannot find this program: " + error.message());
  std::vector<std::string> run{"-n", std::to_string(f.ranks), "--plain", "--", program, "bench"};
  run.insert(run.end(), words.begin(), words.end());
  return run_command(run);
}

}  // namespace

Result<int> bench_collectives(const std::vector<std::string>& words) {
  CollectiveFlags f;
  f.bench.operation = words[0];
  Flags flags("bench " + words[0],
              "Times a collective operation over a range of sizes and checks its results. A table "
              "goes to standard output, rows with the machine inside to --json.");
  add_flags(flags, f);
  GW_ASSIGN(const auto outcome, flags.parse({words.begin() + 1, words.end()}));
  if (outcome == Flags::Outcome::kHelp) return 0;
  f.bench.shared_buffers = f.buffers == "shared";
  if (!flags.given("deadline")) {
    GW_ASSIGN(f.deadline, deadline_from_environment(f.deadline));
  }
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  if (f.ranks > 0 && f.inproc > 0) {
    return Status(Code::kInvalidArgument,
                  "bench: --ranks and --inproc exclude one another (both seen; one wanted)");
  }
  if (launch.size == 1 && f.ranks > 1) return launch_ranks(f, words);
  if (launch.size == 1) return bench_threads(std::move(f));
  if (f.inproc > 0 || (f.ranks > 0 && f.ranks != launch.size)) {
    return Status(Code::kInvalidArgument, "bench: another number of ranks than the launcher's (" +
                                              std::to_string(std::max(f.ranks, f.inproc)) +
                                              " seen; " + std::to_string(launch.size) + " from " +
                                              launch.source + " wanted)");
  }
  GW_ASSIGN(const Log log, make_log(f.log_level, launch.rank));
  return bench_process(std::move(f), launch, log);
}

}  // namespace gradwire
