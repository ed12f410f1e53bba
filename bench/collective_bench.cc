// Every size: the result is checked once, a few operations warm up, then as many are timed as fit
// into the time given, back to back (or, where there is a root, with untimed barriers between).
// Each rank notes the time of each operation; what counts is the slowest rank's.
#include "bench/collective_bench.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "bench/collective_subjects.h"

namespace gradwire::bench {
namespace {

using Clock = std::chrono::steady_clock;

Status check_options(const CollectiveBenchOptions& options, const BenchOperation& operation,
                     int ranks) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kInvalidArgument, "bench " + options.operation + ": " + why);
  };
  if (options.min_bytes < 1 || options.max_bytes < options.min_bytes) {
    return refuse(format("sizes must be 1 <= --min <= --max bytes (got %lld to %lld)",
                         static_cast<long long>(options.min_bytes),
                         static_cast<long long>(options.max_bytes)));
  }
  if (!(options.factor > 1)) {
    return refuse("--factor must be above 1 (got " + shortest(options.factor) + ")");
  }
  if (options.min_operations < 1 || options.max_operations < options.min_operations) {
    return refuse("operations per size must be 1 <= least <= most");
  }
  if (operation.has_root && (options.root < 0 || options.root >= ranks)) {
    return refuse(format("--root must be from 0 to %d (got %d)", ranks - 1, options.root));
  }
  if (!operation.kind && ranks < 2) return refuse("got 1 rank, expected 2 or more");
  if (!operation.kind && options.in_place.value_or(false)) {
    return refuse("--in-place is not possible: the sent message stays in its buffer");
  }
  if (operation.kind && (options.messages != 1 || options.one_way)) {
    return refuse("--messages and --one-way are of send_recv");
  }
  if (options.messages < 0) {
    return refuse(format("--messages must be 0 or more (got %d)", options.messages));
  }
  if (options.one_way && ranks % 2 != 0) {
    return refuse(format("--one-way: got %d ranks, expected an even number", ranks));
  }
  if (options.shared_buffers && options.device.space != MemorySpace::kHost) {
    return refuse("--buffers shared requires --device cpu");
  }
  if (options.compressor == "none") return {};
  if (operation.kind != OpKind::kAllReduce || options.dtype != DType::kF32) {
    return refuse("--compressor requires all_reduce of f32 (got " + options.operation + " of " +
                  std::string(to_string(options.dtype)) + ")");
  }
  return {};
}

Status reduce(Communicator& communicator, std::span<double> values, ReduceOp op) {
  GW_ASSIGN(Work work, communicator.all_reduce(view_of(values), op));
  return work.wait();
}

// Binds the calling thread to the rank-th processor that it may use, until destroyed. Does nothing
// when there are fewer processors than ranks.
class Binding {
 public:
  Binding(int rank, int ranks) {
    if (sched_getaffinity(0, sizeof before_, &before_) != 0 || CPU_COUNT(&before_) < ranks) return;
    int processor = -1;
    for (int left = rank; left >= 0; --left) {
      do ++processor;
      while (!CPU_ISSET(processor, &before_));
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    bound_ = sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~Binding() {
    if (bound_) (void)sched_setaffinity(0, sizeof before_, &before_);
  }
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

 private:
  cpu_set_t before_{};
  bool bound_ = false;
};

// User and system time of this process so far, in seconds.
double cpu_seconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// How often to run, agreed by all ranks: from the slowest one's time of a warm-up.
Result<int> warm_up(Communicator& communicator, Subject& subject,
                    const CollectiveBenchOptions& options) {
  double last = 0;
  for (int i = 0; i < kWarmUps; ++i) {
    const Clock::time_point start = Clock::now();
    GW_TRY(subject.run());
    last = std::chrono::duration<double>(Clock::now() - start).count();
  }
  GW_TRY(reduce(communicator, std::span(&last, 1), ReduceOp::kMax));
  const double fit = options.seconds_per_size / std::max(last, 1e-9);
  return static_cast<int>(
      std::clamp(fit, 1.0 * options.min_operations, 1.0 * options.max_operations));
}

struct Timing {
  std::vector<double> micros;  // of each operation, that of the slowest rank, ascending
  double cpu_seconds = 0;      // of all ranks and operations
  CodecSeconds codec;          // of this rank and all operations
};

Status wait_for_all(Communicator& communicator) {
  GW_ASSIGN(Work barrier, communicator.barrier());
  return barrier.wait();
}

// What has a root begins together each time: ranks that only send would run ahead of the others.
Result<Timing> time(Communicator& communicator, Subject& subject, const BenchOperation& operation,
                    int operations, bool one_process) {
  Timing timing;
  timing.micros.resize(static_cast<std::size_t>(operations));
  GW_TRY(wait_for_all(communicator));
  const double cpu_before = cpu_seconds();
  const CodecSeconds before = subject.codec_seconds();
  Clock::time_point start = Clock::now();
  for (double& each : timing.micros) {
    if (operation.has_root) {
      GW_TRY(wait_for_all(communicator));
      start = Clock::now();
    }
    GW_TRY(subject.run());
    const Clock::time_point now = Clock::now();
    each = std::chrono::duration<double, std::micro>(now - start).count();
    start = now;
  }
  const CodecSeconds after = subject.codec_seconds();
  timing.codec = {after.encode - before.encode, after.exchange - before.exchange,
                  after.decode - before.decode};
  timing.cpu_seconds = cpu_seconds() - cpu_before;
  const ReduceOp together = one_process ? ReduceOp::kMax : ReduceOp::kSum;
  GW_TRY(reduce(communicator, std::span(&timing.cpu_seconds, 1), together));
  GW_TRY(reduce(communicator, timing.micros, ReduceOp::kMax));
  std::ranges::sort(timing.micros);
  return timing;
}

// Nearest rank: the smallest time that `share` of all do not exceed.
double percentile(const std::vector<double>& ascending, double share) {
  const double place = std::ceil(share * static_cast<double>(ascending.size()));
  const auto index = static_cast<std::size_t>(std::max(place, 1.0)) - 1;
  return ascending[std::min(index, ascending.size() - 1)];
}

OperationTimes summary_of(const std::vector<double>& ascending) {
  const double sum = std::accumulate(ascending.begin(), ascending.end(), 0.0);
  return {.min = ascending.front(),
          .mean = sum / static_cast<double>(ascending.size()),
          .p50 = percentile(ascending, 0.5),
          .p99 = percentile(ascending, 0.99),
          .max = ascending.back()};
}

// What the best algorithm makes every rank send, per byte of S.
double least_share(const BenchOperation& operation, int ranks) {
  const double share = (ranks - 1.0) / ranks;
  if (operation.kind == OpKind::kAllReduce) return 2 * share;
  if (operation.kind == OpKind::kBarrier) return 0;
  return operation.has_rows ? share : 1;
}

CollectiveRow labelled_row(const Communicator& communicator, const BenchOperation& operation,
                           const CollectiveBenchOptions& options) {
  return {.op = options.operation,
          .algorithm = {},
          .transport = options.transport,
          .compressor = options.compressor,
          .buffers = buffers_of(options),
          .redop = operation.reduces ? std::string(to_string(options.op)) : "none",
          .root = operation.has_root ? options.root : -1,
          .in_place = options.in_place.value_or(operation.usually_in_place),
          .ranks = communicator.size(),
          .nodes = communicator.node_count(),
          .dtype = std::string(to_string(options.dtype)),
          .time_us = {},
          .checked = options.check};
}

Result<CollectiveRow> measure(Communicator& communicator, Subject& subject,
                              const BenchOperation& operation,
                              const CollectiveBenchOptions& options, std::int64_t elems) {
  CollectiveRow row = labelled_row(communicator, operation, options);
  row.algorithm = subject.algorithm();
  row.bytes = elems * static_cast<std::int64_t>(size_of(options.dtype));
  row.messages = messages_of(options, row.bytes);
  if (options.check) {
    GW_ASSIGN(const std::int64_t own_wrong, subject.check());
    std::array<double, 1> wrong{static_cast<double>(own_wrong)};
    GW_TRY(reduce(communicator, wrong, ReduceOp::kSum));
    row.wrong = static_cast<std::int64_t>(wrong[0]);
  }
  GW_ASSIGN(row.operations, warm_up(communicator, subject, options));
  const std::uint64_t before = subject.bytes_sent();
  GW_TRY(subject.run());
  std::array<double, 1> wire{static_cast<double>(subject.bytes_sent() - before)};
  GW_TRY(reduce(communicator, wire, ReduceOp::kMax));
  row.wire_bytes = static_cast<std::int64_t>(wire[0]);
  GW_ASSIGN(const Timing timing,
            time(communicator, subject, operation, row.operations, options.one_process));
  row.time_us = summary_of(timing.micros);
  const double moved = static_cast<double>(row.bytes) * row.messages;
  row.algbw_gbps = moved / row.time_us.p50 * 1e-3;
  row.busbw_gbps = row.algbw_gbps * least_share(operation, row.ranks);
  const double gigabytes = 1e-9 * moved * row.operations * row.ranks;
  row.cpu_seconds_per_gb = gigabytes > 0 ? timing.cpu_seconds / gigabytes : 0;
  if (options.compressor != "none") {
    const double per_operation = 1e6 / row.operations;
    row.compressed = CompressedFigures{.encode_us = timing.codec.encode * per_operation,
                                       .exchange_us = timing.codec.exchange * per_operation,
                                       .decode_us = timing.codec.decode * per_operation,
                                       .error_norm = subject.error_norm()};
  }
  return row;
}

// The compressor's row with the dense run of the same size beside it.
Result<CollectiveRow> measure_compressed(Communicator& communicator, const Registry& registry,
                                         const BenchOperation& operation,
                                         const CollectiveBenchOptions& options,
                                         std::int64_t elems) {
  CollectiveBenchOptions plain = options;
  plain.compressor = "none";
  GW_ASSIGN(const auto dense_subject, make_dense_subject(communicator, operation, plain, elems));
  GW_ASSIGN(const CollectiveRow dense,
            measure(communicator, *dense_subject, operation, plain, elems));
  GW_ASSIGN(const auto subject, make_compressed_subject(communicator, registry, options, elems));
  GW_ASSIGN(CollectiveRow row, measure(communicator, *subject, operation, options, elems));
  row.wrong += dense.wrong;
  CompressedFigures& figures = *row.compressed;
  figures.wire_gbps = static_cast<double>(row.wire_bytes) / row.time_us.p50 * 1e-3;
  row.busbw_gbps = figures.wire_gbps;
  if (row.wire_bytes > 0) {
    figures.ratio = static_cast<double>(dense.wire_bytes) / static_cast<double>(row.wire_bytes);
  }
  row.dense_algorithm = dense.algorithm;
  figures.dense_time_us_p50 = dense.time_us.p50;
  figures.dense_algbw_gbps = dense.algbw_gbps;
  figures.dense_wire_bytes = dense.wire_bytes;
  figures.dense_cpu_seconds_per_gb = dense.cpu_seconds_per_gb;
  figures.speedup = dense.time_us.p50 / row.time_us.p50;
  return row;
}

// One size: S = elems elements.
Result<CollectiveRow> bench_size(Communicator& communicator, const Registry& registry,
                                 const BenchOperation& operation,
                                 const CollectiveBenchOptions& options, std::int64_t elems) {
  if (options.compressor != "none") {
    return measure_compressed(communicator, registry, operation, options, elems);
  }
  GW_ASSIGN(const auto subject, make_dense_subject(communicator, operation, options, elems));
  return measure(communicator, *subject, operation, options, elems);
}

}  // namespace

int messages_of(const CollectiveBenchOptions& options, std::int64_t bytes) {
  if (options.messages > 0) return options.messages;
  constexpr std::int64_t kMost = 64;
  constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;
  return static_cast<int>(std::clamp<std::int64_t>(kMostBytes / bytes, 1, kMost));
}

std::string buffers_of(const CollectiveBenchOptions& options) {
  if (options.device.space == MemorySpace::kCuda) {
    return "cuda:" + std::to_string(options.device.ordinal);
  }
  return options.shared_buffers ? "shared" : "private";
}

Result<std::string> bare_spec(const std::string& spec) {
  GW_ASSIGN(SpecChain chain, parse_spec(spec));
  auto& params = chain.front().params;
  const auto add = [&](const char* key, const char* value) {
    const auto same = [&](const auto& param) { return param.first == key; };
    if (std::ranges::none_of(params, same)) params.emplace_back(key, value);
  };
  add("min_elems", "0");
  add("dense_1d", "false");
  return to_string(chain);
}

Status bench_collective(Communicator& communicator, const Registry& registry,
                        const CollectiveBenchOptions& options,
                        const std::function<Status(const CollectiveRow&)>& on_row) {
  GW_ASSIGN(const BenchOperation operation, bench_operation_named(options.operation));
  GW_TRY(check_options(options, operation, communicator.size()));
  std::optional<Binding> binding;
  if (options.bind) binding.emplace(communicator.rank(), communicator.size());
  const std::int64_t unit = static_cast<std::int64_t>(size_of(options.dtype)) * communicator.size();
  for (double size = static_cast<double>(options.min_bytes);
       size <= static_cast<double>(options.max_bytes); size *= options.factor) {
    const bool nothing = operation.kind == OpKind::kBarrier;
    const std::int64_t rows = static_cast<std::int64_t>(size) / unit;
    const std::int64_t least = operation.has_rows ? communicator.size() : 1;
    const std::int64_t elems = nothing ? 0 : std::max(rows * communicator.size(), least);
    GW_ASSIGN(const CollectiveRow row,
              bench_size(communicator, registry, operation, options, elems));
    if (communicator.rank() == 0) GW_TRY(on_row(row));
    if (nothing) break;
  }
  return {};
}

}  // namespace gradwire::bench
