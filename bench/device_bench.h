// What the stages of coders take on a CUDA device, beside a copy there. Defined where there is
// CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/moved_bytes.h"
#include "gradwire/buffer.h"
#include "gradwire/registry.h"
#include "gradwire/stream.h"

namespace gradwire::bench {

struct DeviceBenchOptions {
  std::int64_t elements =
      64 << 20;                  // fp32, at least 1: a matrix of 4096 columns where that divides
  int rounds = 20;               // timed ones, at least 1, after two that are not
  double warm_up_seconds = 0.2;  // of copies, before anything is timed
};

// A round of a stage, or of a copy. Seconds are the device's, between two events on the stream;
// the host's are those until it has heard that the second has passed.
struct StageTime {
  double seconds = 0;
  double host_seconds = 0;
  double payload_bytes = 0;  // of all rounds of the exchange
  double moved_bytes = 0;
  double rate() const { return moved_bytes / (seconds > 0 ? seconds : 1e-9); }
};

// The one whose seconds are in the middle, so that its bytes are those that took so long. Not of
// none.
StageTime middle_of(std::vector<StageTime> rounds);

// Whether gradwire refuses a pair, or a device for it: no failure of what is measured. What CUDA
// says is one.
bool is_refusal(const Status& status);

struct CodedTimes {
  std::string refused;  // why gradwire serves no such pair, or not on a device; then nothing else
  StageTime encode;
  StageTime decode;
  StageTime copy;  // the middle of those made just before and just after
};

// Holds a gradient and a tensor for means. 8 bytes an element, and the coder's own.
class DeviceBench {
 public:
  // kInvalidArgument for options out of range; kUnsupported where there is no device.
  static Result<DeviceBench> create(const DeviceBenchOptions& options);

  // Copies until the device is warm, then times `rounds` of them.
  Result<StageTime> copy();

  // Steps of `spec` on one rank, under ef14 or not. Errors are failures: a spec that does not
  // parse, memory that is out, a kernel that went wrong.
  Result<CodedTimes> run(const Registry& registry, const std::string& spec, bool feedback);

 private:
  explicit DeviceBench(const DeviceBenchOptions& options) : options_(options) {}
  Status warm_up();
  Status add_copies(std::vector<StageTime>& times);
  Shape shape() const;
  double gradient_bytes() const { return static_cast<double>(options_.elements) * sizeof(float); }

  DeviceBenchOptions options_;
  Buffer gradient_;
  Buffer mean_;
  std::vector<StageTime> copies_;  // the last ones
};

}  // namespace gradwire::bench
