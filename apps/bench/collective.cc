// `gradwire bench all_reduce` and the other collective operations.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

#include "apps/bench/bench.h"
#include "apps/bench/collective_rows.h"
#include "apps/bench/explain.h"
#include "apps/bench/row_file.h"
#include "apps/environment.h"
#include "apps/flags.h"
#include "apps/job.h"
#include "apps/log_lines.h"
#include "apps/machine.h"
#include "apps/run/run.h"
#include "bench/collective_bench.h"
#include "collectives/device/nccl_backend.h"
#include "gradwire/config.h"

namespace gradwire {
namespace {

struct CollectiveFlags {
  bench::CollectiveBenchOptions bench;
  std::int64_t ranks = 0;     // 0: as launched
  std::int64_t inproc = 0;    // ranks as threads
  std::int64_t messages = 1;  // of send_recv
  double deadline = 15;
  std::string buffers = "private";
  std::string device = "cpu";
  launch::DeviceName place;  // which that is
  std::string transport;
  std::string dtype = "f32";
  std::string op = "sum";
  std::string waiting = "adaptive";
  std::int64_t reduction_threads = 1;
  std::int64_t root = 0;
  bool in_place = false;
  bool out_of_place = false;
  bool check = false;
  bool no_check = false;
  std::string json;
  std::string csv;
  std::string log_level;
  std::string launcher;  // for the heading
  LinkFlags links = unset_links();
};

constexpr std::array kTypes{DType::kF64, DType::kF32, DType::kF16, DType::kBF16,
                            DType::kI64, DType::kI32, DType::kI8,  DType::kU8};
constexpr std::array kOps{ReduceOp::kSum, ReduceOp::kMean,    ReduceOp::kMax,
                          ReduceOp::kMin, ReduceOp::kProduct, ReduceOp::kPreMulSum};

constexpr std::array kWaitings{Waiting::kAdaptive, Waiting::kSpin, Waiting::kYield,
                               Waiting::kSleep};

// All values as flags spell them.
template <typename Values>
std::vector<std::string> names_of(const Values& values) {
  std::vector<std::string> names;
  for (const auto value : values) names.emplace_back(to_string(value));
  return names;
}

// The value of a name that names_of() gave.
template <typename Values>
auto value_named(const Values& values, const std::string& name) {
  return *std::ranges::find_if(values, [&](auto value) { return to_string(value) == name; });
}

void add_flags(Flags& flags, CollectiveFlags& f) {
  flags.group("Ranks");
  flags.integer("ranks", f.ranks, {1, 1024},
                "number of processes to start; of threads with --transport inproc",
                "the launcher's ranks, else 1");
  flags.integer("inproc", f.inproc, {1, 512}, "number of ranks as threads instead of processes",
                "none");
  flags.text("transport", f.transport,
             "transport between processes: ucx, tcp, shm (ranks of one host), auto (the best of "
             "these), nccl (tensors on GPUs) or nccl:N (GPU N, also between threads); inproc: "
             "ranks as threads",
             "GRADWIRE_TRANSPORT, else auto", "NAME");
  flags.text("device", f.device,
             "memory of the tensors: cpu; cuda (the GPU with the number of the rank on its host, "
             "modulo the GPUs it sees); cuda:N (GPU N on every rank)",
             "cpu", "DEVICE");
  flags.choice("buffers", f.buffers, {"private", "shared"},
               "tensors in private or in shared memory of the ranks");
  flags.choice("waiting", f.waiting, names_of(kWaitings), "waiting policy of ranks");
  flags.integer("reduction-threads", f.reduction_threads, {1, 1024},
                "threads that share the reductions of large messages, for each rank");
  flags.number("deadline", f.deadline, {0.1, 86400}, "timeout of one operation, in seconds",
               "15, or the deadline of gradwire run");
  flags.group("Operation");
  flags.bytes("min", f.bench.min_bytes, {1},
              "smallest size, in bytes (K, M, G: powers of 1024); sizes are rounded down to a "
              "multiple of the ranks' elements");
  flags.bytes("max", f.bench.max_bytes, {1}, "largest size, in bytes");
  flags.number("factor", f.bench.factor, {1.01, 1e6}, "factor from one size to the next");
  flags.choice("type", f.dtype, names_of(kTypes), "element type");
  flags.choice("op", f.op, names_of(kOps), "reduction operator");
  flags.integer("root", f.root, {0, 1023}, "root rank of broadcast, scatter, reduce and gather");
  flags.toggle("in-place", f.in_place, "result in the input buffer");
  flags.toggle("out-of-place", f.out_of_place,
               "result in another buffer; without either flag all_reduce and broadcast are in "
               "place, others out of place");
  flags.toggle("persistent", f.bench.persistent, "one plan per size, run many times");
  flags.integer("messages", f.messages, {0, 4096},
                "messages of one tag under way at once each way (send_recv only); 0: 64, or as "
                "many as come to 256 MiB");
  flags.toggle("one-way", f.bench.one_way,
               "messages from every even rank to the next one (send_recv only)");
  flags.text("compressor", f.bench.compressor,
             "compressor of an fp32 gradient matrix, averaged beside the uncompressed all_reduce "
             "(all_reduce of f32 only)",
             "none", "SPEC");
  flags.text("algorithm", f.bench.algorithm,
             "algorithm: auto, ring, canonical, ... (docs/algorithms.md)", "auto", "NAME");
  flags.group("Measurement and output");
  flags.number("seconds", f.bench.seconds_per_size, {0.001, 3600},
               "time per size, about, in seconds; at most 2000 operations");
  flags.toggle("check", f.check,
               "check of the results at every size; happens unless --no-check is given");
  flags.toggle("no-check", f.no_check, "no check of the results");
  flags.json_output(f.json);
  flags.file("csv", f.csv, "results as CSV with a heading, in FILE");
  flags.choice("log-level", f.log_level, {"trace", "debug", "info", "warn", "error", "off"},
               "level of the log on standard error", "GRADWIRE_LOG, else warn");
  add_link_flags(flags, f.links);
}

// What the flags mean together.
Status settle(CollectiveFlags& f, const Flags& flags) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kInvalidArgument, "bench " + f.bench.operation + ": " + why);
  };
  if (f.ranks > 0 && f.inproc > 0) {
    return refuse("--ranks and --inproc exclude each other (got both)");
  }
  if (f.in_place && f.out_of_place) {
    return refuse("--in-place and --out-of-place exclude each other (got both)");
  }
  if (f.check && f.no_check) {
    return refuse("--check and --no-check exclude each other (got both)");
  }
  if (f.transport == "inproc" && f.inproc == 0) f.inproc = std::max<std::int64_t>(f.ranks, 1);
  if (f.inproc > 0) f.ranks = 0;
  f.bench.dtype = value_named(kTypes, f.dtype);
  f.bench.op = value_named(kOps, f.op);
  f.bench.root = static_cast<int>(f.root);
  f.bench.messages = static_cast<int>(f.messages);
  if (f.in_place || f.out_of_place) f.bench.in_place = f.in_place;
  f.bench.check = !f.no_check;
  f.bench.shared_buffers = f.buffers == "shared";
  GW_ASSIGN(f.place, launch::parse_device(f.device));
  if (!flags.given("deadline")) {
    GW_ASSIGN(f.deadline, deadline_from_environment(f.deadline));
  }
  return {};
}

// One rank's part; `rows` on rank 0 alone. Wrong data is an error, after the table.
Status bench_rank(const CollectiveFlags& f, Communicator& communicator, RowFile* rows) {
  std::int64_t wrong = 0;
  use_given_links(communicator, f.links);
  const bool table = rows != nullptr && f.json != kStandardOutput;
  if (table && f.links.explain) {
    std::printf("%s\n", explanation(communicator, f.bench).c_str());
  }
  if (table) {
    print_heading(f.bench, {.transport = transport_of(communicator),
                            .launcher = f.launcher,
                            .deadline = f.deadline,
                            .ranks = communicator.size()});
  }
  GW_TRY(bench::bench_collective(communicator, Registry::builtin(), f.bench,
                                 [&](const bench::CollectiveRow& row) {
                                   wrong += row.wrong;
                                   if (table) print_row(row);
                                   return rows->write(json_of(row));
                                 }));
  if (wrong == 0) return {};
  return {Code::kInternal, "bench " + f.bench.operation + ": wrong results (got " +
                               std::to_string(wrong) + " wrong elements, expected 0)"};
}

CommunicatorOptions communicator_options(const CollectiveFlags& f) {
  return {.deadline_seconds = f.deadline,
          .waiting = value_named(kWaitings, f.waiting),
          .reduction_threads = static_cast<int>(f.reduction_threads)};
}

// Each rank's part on a thread of its own; the first rank's error of several.
Status on_threads(int ranks, const std::function<Status(std::size_t rank)>& part) {
  std::vector<Status> outcomes(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < outcomes.size(); ++r) {
      threads.emplace_back([&, r] { outcomes[r] = part(r); });
    }
  }
  for (const Status& status : outcomes) GW_TRY(status);
  return {};
}

Result<int> bench_threads(CollectiveFlags f) {
  GW_ASSIGN(RowFile rows, RowFile::create(f.json, f.csv));
  const int ranks = static_cast<int>(std::max<std::int64_t>(f.inproc, 1));
  GW_ASSIGN(const auto places, place_threads(f.place, f.transport, ranks));
  f.bench.transport = is_nccl(f.transport) ? "nccl" : "inproc";
  f.bench.one_process = true;
  f.launcher = "this process, as threads";
  GW_ASSIGN(auto communicators, make_inproc_groups(ranks, communicator_options(f)));
  LinksFrom links = f.links.explain ? LinksFrom::kCache : LinksFrom::kDefaults;
  if (f.links.measure) links = LinksFrom::kMeasurement;
  GW_TRY(on_threads(ranks, [&](std::size_t r) -> Status {
    GW_ASSIGN(const Log log, make_log(f.log_level, static_cast<int>(r)));
    log_place(log, places[r]);
    const auto taken = launch::take_place(places[r]);
    GW_TRY(join_threads(*communicators[r], places[r]));
    GW_TRY(take_links(*communicators[r], links, links_file(environment)));
    CollectiveFlags mine = f;
    mine.bench.device = places[r].device;
    return bench_rank(mine, *communicators[r], r == 0 ? &rows : nullptr);
  }));
  return 0;
}

std::string wanted_transport(const CollectiveFlags& f) {
  return f.transport.empty() ? transport_from_environment() : f.transport;
}

// "ucx", "tcp", "shm", "shm+ucx", ...
std::string label_of(const Communicator& communicator) {
  const std::string taken = transport_of(communicator);
  if (communicator.shared_memory() == SharedMemory::kAllRanks) return "shm";
  return (communicator.shared_memory() == SharedMemory::kInsideHosts ? "shm+" : "") +
         taken.substr(0, taken.find_first_of(" :"));
}

Result<int> bench_process(CollectiveFlags f, const LaunchInfo& launch, const Log& log) {
  const bool first = launch.rank == 0;
  GW_ASSIGN(RowFile rows, RowFile::create(first ? f.json : "", first ? f.csv : ""));
  f.launcher = launch.source;
  LinksFrom links = LinksFrom::kMeasurement;
  if (!f.links.measure) {
    GW_ASSIGN(links, links_from_environment(environment, LinksFrom::kCache));
  }
  GW_ASSIGN(const launch::RankPlace place,
            place_process(launch, f.place, wanted_transport(f), log));
  log_place(log, place);
  const auto taken = launch::take_place(place);
  f.bench.device = place.device;
  GW_ASSIGN(const JoinedJob job,
            join_job(launch, place.transport, communicator_options(f), log, links));
  f.bench.transport = is_nccl(place.transport) ? "nccl" : label_of(*job.communicator);
  const Status status = bench_rank(f, *job.communicator, first ? &rows : nullptr);
  if (!status.ok()) return fail_promptly(status);
  return 0;
}

// One operation of one size between ranks as threads, before any process starts.
Status try_out(const CollectiveFlags& f) {
  bench::CollectiveBenchOptions once = f.bench;
  if (once.min_bytes >= 1 && once.min_bytes <= once.max_bytes) once.min_bytes = once.max_bytes = 1;
  once.min_operations = once.max_operations = 1;
  once.seconds_per_size = 0;
  once.bind = false;
  const int ranks = static_cast<int>(f.ranks);
  GW_ASSIGN(const auto communicators, make_inproc_communicators(ranks, communicator_options(f)));
  return on_threads(ranks, [&](std::size_t r) {  // on the host: this process needs no device
    return bench::bench_collective(*communicators[r], Registry::builtin(), once,
                                   [](const bench::CollectiveRow&) { return Status(); });
  });
}

// This program again, with the same words, as the ranks of a job. What they would refuse, each for
// itself, is refused here.
Result<int> launch_ranks(const CollectiveFlags& f, const std::vector<std::string>& words) {
  GW_TRY(check_settings(wanted_transport(f)));
  GW_TRY(try_out(f));
  GW_TRY(RowFile::create(f.json, f.csv).error());
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
              "Measures a collective operation over a range of sizes and checks its results. "
              "Results in JSON and CSV name the machine. Exits with 1 if a result was wrong.");
  add_flags(flags, f);
  flags.example("gradwire bench " + words[0] + " --inproc 2 --min 1K --max 64K --seconds 0.01");
  GW_ASSIGN(const auto outcome, flags.parse({words.begin() + 1, words.end()}));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_TRY(settle(f, flags));
  GW_ASSIGN(const LaunchInfo launch, discover_launch(environment));
  if (launch.size == 1 && f.ranks > 1) return launch_ranks(f, words);
  if (launch.size == 1) return bench_threads(std::move(f));
  if (f.inproc > 0) {
    return Status(Code::kInvalidArgument, "bench: --inproc needs a single process (got " +
                                              std::to_string(launch.size) + " processes from " +
                                              launch.source + ")");
  }
  if (f.ranks > 0 && f.ranks != launch.size) {
    return Status(Code::kInvalidArgument, "bench: --ranks differs from the launcher's ranks (got " +
                                              std::to_string(f.ranks) + ", expected " +
                                              std::to_string(launch.size) + " from " +
                                              launch.source + ")");
  }
  GW_ASSIGN(const Log log, make_log(f.log_level, launch.rank));
  return bench_process(std::move(f), launch, log);
}

}  // namespace gradwire
