// `gradwire bench exchange`.
#include <sched.h>

#include <cstdio>
#include <filesystem>

#include "apps/bench/bench.h"
#include "apps/bench/row_file.h"
#include "apps/environment.h"
#include "apps/flags.h"
#include "apps/job.h"
#include "apps/log_lines.h"
#include "apps/machine.h"
#include "apps/run/run.h"
#include "base/text.h"
#include "bench/exchange_bench.h"
#include "gradwire/config.h"
#include "gradwire/registry.h"

namespace gradwire {
namespace {

struct ExchangeFlags {
  bench::ExchangeBenchOptions bench;
  std::string transport;
  std::int64_t rounds = 40;
  double pause = 3;  // milliseconds
  std::string json;
};

void add_exchange_flags(Flags& flags, ExchangeFlags& f) {
  flags.text("transport", f.transport, "transport between the ranks: ucx, tcp, shm, auto",
             "GRADWIRE_TRANSPORT, else auto", "NAME");
  flags.custom(
      "compressors", "SPECS", "none",
      [&f](const std::string& text) {
        GW_ASSIGN(f.bench.compressors, parse_spec_list(text));
        return Status();
      },
      "compressors, separated by semicolons");
  flags.integers("elements", f.bench.elements, {1, 1 << 28}, "sizes of a tensor, in elements");
  flags.integer("rounds", f.rounds, {1, 100000}, "timed repetitions, of which the median counts");
  flags.number("pause", f.pause, {0, 1000}, "computation between two rounds, in milliseconds");
  flags.json_output(f.json);
}

// This process, before it has other threads, to one of the processors that it may use, if there is
// one for each rank of the host.
void bind_to_processor(int local_rank, int ranks) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < ranks) return;
  int processor = -1;
  for (int left = local_rank; left >= 0; --left) {
    do ++processor;
    while (!CPU_ISSET(processor, &all));
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  (void)sched_setaffinity(0, sizeof one, &one);
}

void print_exchange_heading(const ExchangeFlags& f, const std::string& transport) {
  std::printf("%s\n", machine_line().c_str());
  std::printf(
      "two ranks over %s, a processor for each where there are two; steps of an aggregator behind "
      "%s ms of computation, and a message to a rank that sleeps (half of a round trip)\n",
      transport.c_str(), shortest(f.pause).c_str());
  std::printf("%-10s %-24s %12s %8s %12s\n", "what", "compressor", "elements", "count", "p50 us");
}

void print_exchange_row(const bench::ExchangeRow& row) {
  std::printf("%-10s %-24s %12lld %8d %12.2f\n", to_string(row.what).c_str(),
              row.compressor.c_str(), static_cast<long long>(row.elements), row.count,
              row.seconds * 1e6);
  std::fflush(stdout);
}

Result<int> exchange_rank(const ExchangeFlags& f, const LaunchInfo& launch) {
  bind_to_processor(launch.local_rank, launch.size);
  const bool first = launch.rank == 0;
  GW_ASSIGN(RowFile rows, RowFile::create(first ? f.json : ""));
  GW_ASSIGN(const Log log, make_log("", launch.rank));
  const std::string wanted = f.transport.empty() ? transport_from_environment() : f.transport;
  GW_ASSIGN(const JoinedJob job, join_job(launch, wanted, {}, log));
  const bool table = first && f.json != kStandardOutput;
  if (table) print_exchange_heading(f, wanted);
  const Status ended = bench::bench_exchanges(*job.communicator, Registry::builtin(), f.bench,
                                              [&](const bench::ExchangeRow& row) {
                                                if (table) print_exchange_row(row);
                                                nlohmann::ordered_json json;
                                                json["what"] = to_string(row.what);
                                                json["transport"] = wanted;
                                                json["compressor"] = row.compressor;
                                                json["elements"] = row.elements;
                                                json["count"] = row.count;
                                                json["time_us_p50"] = row.seconds * 1e6;
                                                return rows.write(std::move(json));
                                              });
  if (!ended.ok()) return fail_promptly(ended);
  return 0;
}

}  // namespace

Result<int> bench_exchange(const std::vector<std::string>& args) {
  ExchangeFlags f;
  Flags flags("bench exchange",
              "Measures, between two ranks that compute in between, an aggregator's step: of one "
              "tensor, of several, of several buckets; and a message that is waited for. Starts "
              "the two where no launcher has.");
  add_exchange_flags(flags, f);
  flags.example("gradwire bench exchange --transport tcp --elements 64,4096 --rounds 5");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  f.bench.rounds = static_cast<int>(f.rounds);
  f.bench.pause_seconds = f.pause * 1e-3;
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  if (launch.size > 1) return exchange_rank(f, launch);
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return Status(Code::kInternal, "cannot find this program: " + error.message());
  std::vector<std::string> run{"-n", "2", "--plain", "--", program, "bench", "exchange"};
  run.insert(run.end(), args.begin(), args.end());
  return run_command(run);
}

}  // namespace gradwire
