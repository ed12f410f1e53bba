#include "apps/train/metrics.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/machine.h"
#include "base/text.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

// Nine significant digits: what tells two floats apart. JSON has no NaN or infinity: null.
Json nine_digits(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(format("%.9g", value).c_str(), nullptr);
}
// Seconds to the nanosecond.
Json seconds(double value) { return std::round(value * 1e9) / 1e9; }

Json cells(const StepRow& row) {
  Json line;
  line["bytes_sent"] = row.bytes_sent;
  line["payload_bytes"] = row.payload_bytes;
  line["dense_bytes"] = row.dense_bytes;
  line["step_seconds"] = seconds(row.step_seconds);
  line["compute_seconds"] = seconds(row.compute_seconds);
  line["encode_seconds"] = seconds(row.encode_seconds);
  line["wire_seconds"] = seconds(row.wire_seconds);
  line["decode_seconds"] = seconds(row.decode_seconds);
  line["exposed_seconds"] = seconds(row.exposed_seconds);
  return line;
}

void add(StepRow& sums, const StepRow& row) {
  sums.loss = row.loss;
  sums.bytes_sent += row.bytes_sent;
  sums.payload_bytes += row.payload_bytes;
  sums.dense_bytes += row.dense_bytes;
  sums.step_seconds += row.step_seconds;
  sums.compute_seconds += row.compute_seconds;
  sums.encode_seconds += row.encode_seconds;
  sums.wire_seconds += row.wire_seconds;
  sums.decode_seconds += row.decode_seconds;
  sums.exposed_seconds += row.exposed_seconds;
}

}  // namespace

Result<MetricsFile> MetricsFile::create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    return Status(Code::kInvalidArgument,
                  "cannot write the metrics file '" + path + "' (" + std::strerror(errno) + ")");
  }
  return MetricsFile(file, path);
}

Status MetricsFile::write_line(const std::string& line) {
  const bool written = std::fputs(line.c_str(), file_.get()) >= 0 &&
                       std::fputc('\n', file_.get()) != EOF && std::fflush(file_.get()) == 0;
  if (written) return {};
  return {Code::kInvalidArgument,
          "cannot write to the metrics file '" + path_ + "' (" + std::strerror(errno) + ")"};
}

Status MetricsFile::write_plan(std::int64_t steps, std::int64_t parameters) {
  return write_line(Json{{"planned_steps", steps}, {"parameters", parameters}}.dump());
}

Status MetricsFile::write(const StepRow& row) {
  add(sums_, row);
  ++steps_;
  Json line;
  line["step"] = row.step;
  line["loss"] = nine_digits(row.loss);
  if (row.accuracy) line["accuracy"] = *row.accuracy;
  if (row.test_loss) line["test_loss"] = nine_digits(*row.test_loss);
  line["lr"] = row.lr;
  if (row.gradient_norm) line["gradient_norm"] = nine_digits(*row.gradient_norm);
  if (row.loss_scale) line["loss_scale"] = *row.loss_scale;
  if (row.skipped) line["skipped"] = true;
  line.update(cells(row));
  if (row.nmse) line["nmse"] = nine_digits(*row.nmse);
  if (row.exact_norm) line["exact_norm"] = nine_digits(*row.exact_norm);
  if (row.residual_norm) line["residual_norm"] = nine_digits(*row.residual_norm);
  return write_line(line.dump());
}

Status MetricsFile::write_totals(const RunFacts& facts) {
  const Machine here = machine();
  Json line;
  line["total"] = true;
  line["steps"] = steps_;
  if (steps_ > 0) line["loss"] = nine_digits(sums_.loss);
  line["accuracy"] = facts.accuracy;
  if (facts.test_loss) line["test_loss"] = nine_digits(*facts.test_loss);
  line.update(cells(sums_));
  line["params_hash"] = format("%016llx", static_cast<unsigned long long>(facts.params_hash));
  line["mode"] = facts.mode;
  if (facts.staleness_mean) line["staleness_mean"] = nine_digits(*facts.staleness_mean);
  if (facts.staleness_most) line["staleness_most"] = *facts.staleness_most;
  line["compressor"] = facts.compressor;
  line["algorithm"] = facts.algorithm;
  line["optimizer"] = facts.optimizer;
  line["precision"] = facts.precision;
  line["ranks"] = facts.ranks;
  line["accumulate"] = facts.accumulate;
  line["transport"] = facts.transport;
  line["model"] = facts.model;
  line["data"] = facts.data;
  line["batch"] = facts.batch;
  line["seed"] = facts.seed;
  line["gradwire"] = here.gradwire;
  line["commit"] = here.commit;
  line["cpu"] = here.cpu;
  line["cores"] = here.cores;
  return write_line(line.dump());
}

}  // namespace gradwire
