// Every size: the result is checked once, a few operations warm up, then as many are timed as fit
// into the time given, back to back. Each rank notes the time of each operation; what counts is the
// slowest rank's.
#include "bench/collective_bench.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "bench/collective_subjects.h"
#include "collectives/selection.h"

namespace gradwire::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUps = 3;

constexpr std::array kCollectives{Collective::kAllReduce, Collective::kReduceScatter,
                                  Collective::kAllGather, Collective::kAllToAll,
                                  Collective::kBroadcast};

Result<Collective> collective_named(const std::string& name) {
  std::string known;
  for (const Collective collective : kCollectives) {
    if (to_string(collective) == name) return collective;
    known += (known.empty() ? "" : ", ") + std::string(to_string(collective));
  }
  return Status(Code::kInvalidArgument,
                "bench: no operation '" + name + "' (one of " + known + " wanted)");
}

Status check_options(const CollectiveBenchOptions& options, Collective collective) {
  const auto refuse = [](const std::string& why) {
    return Status(Code::kInvalidArgument, "bench: " + why);
  };
  if (options.min_bytes < 1 || options.max_bytes < options.min_bytes) {
    return refuse(format("sizes from %lld to %lld bytes (1 <= min <= max wanted)",
                         static_cast<long long>(options.min_bytes),
                         static_cast<long long>(options.max_bytes)));
  }
  if (!(options.factor > 1))
    return refuse("factor " + shortest(options.factor) + " (above 1 wanted)");
  if (options.compressor != "none" && collective != Collective::kAllReduce) {
    return refuse("a compressor under " + options.operation + " (all_reduce wanted)");
  }
  if (options.min_operations < 1 || options.max_operations < options.min_operations) {
    return refuse("operations at each size (1 <= min <= max wanted)");
  }
  return {};
}

bool has_rows(Collective collective) {
  return collective != Collective::kAllReduce && collective != Collective::kBroadcast;
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

// The slowest rank's time of each operation in microseconds, ascending.
Result<std::vector<double>> time(Communicator& communicator, Subject& subject, int operations) {
  std::vector<double> micros(static_cast<std::size_t>(operations));
  GW_ASSIGN(Work barrier, communicator.barrier());
  GW_TRY(barrier.wait());
  Clock::time_point start = Clock::now();
  for (double& each : micros) {
    GW_TRY(subject.run());
    const Clock::time_point now = Clock::now();
    each = std::chrono::duration<double, std::micro>(now - start).count();
    start = now;
  }
  GW_TRY(reduce(communicator, micros, ReduceOp::kMax));
  std::ranges::sort(micros);
  return micros;
}

// Nearest rank: the smallest time that `share` of all do not exceed.
double percentile(const std::vector<double>& ascending, double share) {
  const double place = std::ceil(share * static_cast<double>(ascending.size()));
  const auto index = static_cast<std::size_t>(std::max(place, 1.0)) - 1;
  return ascending[std::min(index, ascending.size() - 1)];
}

Result<CollectiveRow> measure(Communicator& communicator, Subject& subject,
                              const CollectiveBenchOptions& options, std::int64_t elems) {
  std::array<double, 1> wrong{};
  GW_ASSIGN(const std::int64_t own_wrong, subject.check());
  wrong[0] = static_cast<double>(own_wrong);
  GW_TRY(reduce(communicator, wrong, ReduceOp::kSum));
  GW_ASSIGN(const int operations, warm_up(communicator, subject, options));
  const std::uint64_t before = subject.bytes_sent();
  GW_TRY(subject.run());
  std::array<double, 1> wire{static_cast<double>(subject.bytes_sent() - before)};
  GW_TRY(reduce(communicator, wire, ReduceOp::kMax));
  GW_ASSIGN(const std::vector<double> micros, time(communicator, subject, operations));
  CollectiveRow row{.op = options.operation,
                    .algorithm = subject.algorithm(),
                    .transport = options.transport,
                    .compressor = options.compressor,
                    .buffers = options.shared_buffers ? "shared" : "private",
                    .ranks = communicator.size(),
                    .bytes = elems * static_cast<std::int64_t>(sizeof(float)),
                    .dtype = "f32",
                    .operations = operations};
  row.time_us_min = micros.front();
  row.time_us_p50 = percentile(micros, 0.5);
  row.time_us_p99 = percentile(micros, 0.99);
  row.wire_bytes = static_cast<std::int64_t>(wire[0]);
  row.wrong = static_cast<std::int64_t>(wrong[0]);
  row.algbw_gbps = static_cast<double>(row.bytes) / row.time_us_p50 * 1e-3;
  row.busbw_gbps = wire[0] / row.time_us_p50 * 1e-3;
  return row;
}

}  // namespace

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
  GW_ASSIGN(const Collective collective, collective_named(options.operation));
  GW_TRY(check_options(options, collective));
  std::optional<Binding> binding;
  if (options.bind) binding.emplace(communicator.rank(), communicator.size());
  const std::int64_t unit = static_cast<std::int64_t>(sizeof(float)) * communicator.size();
  for (double size = static_cast<double>(options.min_bytes);
       size <= static_cast<double>(options.max_bytes); size *= options.factor) {
    const std::int64_t rows = static_cast<std::int64_t>(size) / unit;
    const std::int64_t least = has_rows(collective) ? communicator.size() : 1;
    const std::int64_t elems = std::max(rows * communicator.size(), least);
    GW_ASSIGN(const auto subject,
              options.compressor == "none"
                  ? make_dense_subject(communicator, collective, options, elems)
                  : make_compressed_subject(communicator, registry, options, elems));
    GW_ASSIGN(const CollectiveRow row, measure(communicator, *subject, options, elems));
    if (communicator.rank() == 0) GW_TRY(on_row(row));
  }
  return {};
}

}  // namespace gradwire::bench
