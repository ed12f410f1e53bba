// The metrics of a training run as JSON lines: one per step, the last one the totals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "adapters/trainer/traffic_bytes.h"
#include "apps/train/memory_table.h"
#include "base/files.h"
#include "gradwire/status.h"

namespace gradwire {

// Of one step on one rank; bytes are of that rank. Seconds of encode, wire and decode overlap with
// compute; exposed is what of the exchange they did not, and the wait for other stages.
struct StepRow {
  std::int64_t step = 0;            // from 0
  double loss = 0;                  // mean over the global batch, before the update
  std::optional<double> accuracy;   // of the test set, 0 to 1, where it was evaluated
  std::optional<double> test_loss;  // there too
  std::int64_t tokens = 0;          // of a text, that the step trained on, by all ranks; 0: no text
  double lr = 0;
  std::optional<double> gradient_norm = {};  // where gradients are clipped
  std::optional<double> loss_scale = {};     // where there is one
  bool skipped = false;                      // a gradient overflowed, so no update was made
  std::uint64_t bytes_sent = 0;              // at the transport, losses and headers included
  TrafficBytes traffic = {};                 // bytes_sent by class; all 0 where it is not known
  std::uint64_t payload_bytes = 0;           // what encoding produced
  std::uint64_t dense_bytes = 0;             // what a ring all-reduce in fp32 would have sent
  double step_seconds = 0;
  double compute_seconds = 0;
  double encode_seconds = 0;
  double wire_seconds = 0;
  double decode_seconds = 0;
  double exposed_seconds = 0;
  std::optional<double> stage_wait_seconds =
      {};  // the part of it for other stages; where there are
  // Where they were measured (GradientErrors of adapters/trainer/measured_gradients.h).
  std::optional<double> nmse = {};
  std::optional<double> exact_norm = {};
  std::optional<double> residual_norm = {};
};

// Facts of the run that stand in the last line beside the sums of all rows.
struct RunFacts {
  std::string mode = "sync";
  std::string model;
  std::string data;
  std::string compressor;  // in canonical spelling
  std::string algorithm;
  std::string transport;
  std::string optimizer;  // as --optimizer says
  std::string precision;
  int ranks = 1;
  // Of a model that ranks divide: how, as --parallel says it, with the replicas; else empty.
  std::string parallel = {};
  // Of a model in stages.
  struct Pipeline {
    std::string schedule;  // its name
    double bubble = 0;     // stage_bubble()
  };
  std::optional<Pipeline> pipeline = {};
  std::int64_t accumulate = 1;
  std::int64_t batch = 0;
  std::int64_t parameters = 0;  // elements of the model
  double lr = 0;                // as --lr says
  double momentum = 0;          // of sgd and nesterov
  std::uint64_t seed = 0;
  std::int64_t test_samples = 0;  // predictions that the accuracy is the share of
  bool diverged = false;          // ended by a value that is not finite: no accuracy, no parameters
  double accuracy = 0;            // final
  std::optional<double> test_loss = {};
  // The checkpoint of the lowest test loss, where it is kept.
  struct Best {
    std::int64_t step = 0;  // after so many
    double test_loss = 0;
    std::string path = {};
  };
  std::optional<Best> best = {};
  bool is_text = false;  // so that the test loss is a perplexity's logarithm
  // Of rank 0's log of pushes, where there is one: pushes applied since each one's pull.
  std::optional<double> staleness_mean = {};
  std::optional<std::int64_t> staleness_most = {};
  std::uint64_t params_hash = 0;
  std::optional<MemoryTable> memory = {};  // where it was asked for
  // Then, of all ranks that together hold the model, those of a stage one behind another.
  std::vector<MemoryTable> part_memory = {};
};

// Not thread-safe. Every line is flushed: a run that is killed keeps its steps.
class MetricsFile {
 public:
  // Replaces what was there. kInvalidArgument names the path.
  static Result<MetricsFile> create(const std::string& path);

  // Instead of all else, for a run that trains nothing: what it would have trained.
  Status write_plan(std::int64_t steps, std::int64_t parameters, std::int64_t bytes);
  // Keeps what was there, for a run that goes on. kInvalidArgument names the path.
  static Result<MetricsFile> append(const std::string& path);
  // Before the first line of a run that goes on after `steps` steps: of what was there the lines of
  // those steps stay, and count in the totals; the rest goes.
  Status keep(std::int64_t steps);

  Status write(const StepRow& row);
  // Once, at the end.
  Status write_totals(const RunFacts& facts);

 private:
  MetricsFile(File file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  static Result<MetricsFile> open(const std::string& path, WriteFrom from);
  Status write_line(const std::string& line);

  File file_;
  std::string path_;
  std::int64_t steps_ = 0;
  StepRow sums_;  // loss and accuracy: the last ones
};

}  // namespace gradwire
