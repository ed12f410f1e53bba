#include "apps/bench/collective_rows.h"

#include <unistd.h>

#include <cstdio>

#include "apps/machine.h"
#include "base/text.h"
#include "bench/collective_subjects.h"

namespace gradwire {
namespace {

void add_compressed(nlohmann::ordered_json& json, const bench::CompressedFigures& figures) {
  json["ratio"] = figures.ratio;
  json["effective_gbps"] = json["algbw_gbps"];
  json["wire_gbps"] = figures.wire_gbps;
  json["encode_us"] = figures.encode_us;
  json["exchange_us"] = figures.exchange_us;
  json["decode_us"] = figures.decode_us;
  json["error_norm"] = figures.error_norm;
  json["dense_time_us_p50"] = figures.dense_time_us_p50;
  json["dense_algbw_gbps"] = figures.dense_algbw_gbps;
  json["dense_wire_bytes"] = figures.dense_wire_bytes;
  json["dense_cpu_seconds_per_gb"] = figures.dense_cpu_seconds_per_gb;
  json["speedup"] = figures.speedup;
}

// "reduce of f32, sum, root 0, out of place"
std::string subject_of(const bench::CollectiveBenchOptions& options) {
  std::string text = options.operation + " of " + std::string(to_string(options.dtype));
  const auto operation = bench::bench_operation_named(options.operation);
  if (!operation.has_value()) return text;
  if (operation.value().reduces) text += ", " + std::string(to_string(options.op));
  if (operation.value().has_root) text += ", root " + std::to_string(options.root);
  if (options.messages > 1) text += ", " + std::to_string(options.messages) + " messages at once";
  if (options.messages == 0) text += ", up to 64 messages at once";
  if (options.one_way) text += ", one way";
  const bool in_place = options.in_place.value_or(operation.value().usually_in_place);
  return text + (in_place ? ", in place" : ", out of place");
}

// "4 rank(s) on 2 core(s): more than cores, they take turns"
std::string ranks_and_cores(int ranks) {
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const int usable = machine().cores;
  std::string text = std::to_string(ranks) + " rank(s) on " + std::to_string(cores) + " core(s)";
  if (ranks == 1) text += ": nothing is sent, --ranks N starts N";
  if (ranks > cores) text += ": ranks take turns";
  if (usable < cores) text += ", rank 0 bound to " + std::to_string(usable);
  return text;
}

}  // namespace

nlohmann::ordered_json json_of(const bench::CollectiveRow& row) {
  nlohmann::ordered_json json;
  json["op"] = row.op;
  json["algorithm"] = row.algorithm;
  json["transport"] = row.transport;
  json["compressor"] = row.compressor;
  json["buffers"] = row.buffers;
  json["ranks"] = row.ranks;
  json["bytes"] = row.bytes;
  json["messages"] = row.messages;
  json["dtype"] = row.dtype;
  json["redop"] = row.redop;
  json["root"] = row.root;
  json["in_place"] = row.in_place;
  json["warm_ups"] = bench::kWarmUps;
  json["operations"] = row.operations;
  json["time_us_min"] = row.time_us.min;
  json["time_us_mean"] = row.time_us.mean;
  json["time_us_p50"] = row.time_us.p50;
  json["time_us_p99"] = row.time_us.p99;
  json["time_us_max"] = row.time_us.max;
  json["algbw_gbps"] = row.algbw_gbps;
  json["busbw_gbps"] = row.busbw_gbps;
  json["wire_bytes"] = row.wire_bytes;
  json["cpu_seconds_per_gb"] = row.cpu_seconds_per_gb;
  json["checked"] = row.checked;
  json["wrong"] = row.wrong;
  json["nodes"] = row.nodes;
  if (row.compressed) {
    add_compressed(json, *row.compressed);
    json["dense_algorithm"] = row.dense_algorithm;
  }
  return json;
}

void print_heading(const bench::CollectiveBenchOptions& options, const BenchHead& head) {
  std::printf("%s\n%s\n", machine_line().c_str(), head.transport.c_str());
  std::printf("%s; %s, launched by %s\n", subject_of(options).c_str(),
              ranks_and_cores(head.ranks).c_str(), head.launcher.c_str());
  std::printf(
      "algorithm %s, compressor %s, %s buffers%s%s; %d warm-ups, then about %s s per size, "
      "deadline %s s; GB are 10^9 bytes\n",
      options.algorithm.c_str(), options.compressor.c_str(), bench::buffers_of(options).c_str(),
      options.persistent ? ", persistent" : "", options.check ? "" : ", unchecked", bench::kWarmUps,
      shortest(options.seconds_per_size).c_str(), shortest(head.deadline).c_str());
  std::printf("%12s %-18s %10s %10s %10s %10s %10s %10s %12s %9s %6s", "bytes", "algorithm",
              "min us", "p50 us", "p99 us", "max us", "algbw GB/s", "busbw GB/s", "wire bytes",
              "CPU s/GB", "wrong");
  if (options.compressor != "none") {
    std::printf(" | %10s %8s %7s %9s %9s %9s %9s %9s", "dense us", "speedup", "ratio", "wire GB/s",
                "encode us", "wire us", "decode us", "error");
  }
  std::printf("\n");
}

void print_row(const bench::CollectiveRow& row) {
  std::printf("%12lld %-18s %10.1f %10.1f %10.1f %10.1f %10.4g %10.4g %12lld %9.3f %6lld",
              static_cast<long long>(row.bytes), row.algorithm.c_str(), row.time_us.min,
              row.time_us.p50, row.time_us.p99, row.time_us.max, row.algbw_gbps, row.busbw_gbps,
              static_cast<long long>(row.wire_bytes), row.cpu_seconds_per_gb,
              static_cast<long long>(row.wrong));
  if (row.compressed) {
    const bench::CompressedFigures& c = *row.compressed;
    std::printf(" | %10.1f %8.2f %7.1f %9.4g %9.1f %9.1f %9.1f %9.2e", c.dense_time_us_p50,
                c.speedup, c.ratio, c.wire_gbps, c.encode_us, c.exchange_us, c.decode_us,
                c.error_norm);
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace gradwire
