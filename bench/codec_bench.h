// What a codec costs on one core, or on several, beside what reading its input costs, and what it
// does to Gaussian data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/workers.h"
#include "gradwire/registry.h"

namespace gradwire::bench {

struct CodecBenchOptions {
  std::int64_t elements = 25'000'000;  // fp32; shaped as a matrix (r, N/r), see matrix_of()
  int rounds = 5;                      // timed ones, after one that is not; the medians count
  int threads = 1;                     // that encode and decode; one reads
  std::uint64_t seed = 1;
};

// Rates in GB/s (10^9 bytes) of fp32 gradient. Each timing follows a read-only pass over the same
// gradient, so that a share of the memory's rate can be told on a noisy machine.
struct CodecRow {
  std::string spec;       // as given
  std::string canonical;  // the method's own text, without the aggregator's keys
  std::int64_t elements = 0;
  int threads = 1;
  double read_gbps = 0;    // the read-only pass
  double encode_gbps = 0;  // begin, and encode (and absorb between two rounds)
  // With error feedback around it: a step's time less that of decoding. None where error feedback
  // is refused.
  std::optional<double> encode_ef_gbps;
  double decode_gbps = 0;       // the last absorb, and finish, of one rank's payload
  double bits_per_element = 0;  // of one rank's payloads, metadata included
  double nmse = 0;              // |decoded - x|^2 / |x|^2 of one step on N(0, 1)
};

// (r, n/r), r the largest divisor of n not above its square root. n >= 1.
Shape matrix_of(std::int64_t n);

// Holds the data, so that many specs share it. 16 bytes an element and the coder's own.
class CodecBench {
 public:
  // kInvalidArgument unless elements, rounds and threads are at least 1.
  static Result<CodecBench> create(const CodecBenchOptions& options);
  // The aggregator's keys in `spec` are accepted and make no difference. Errors are the
  // registry's.
  Result<CodecRow> run(const Registry& registry, std::string_view spec);

 private:
  explicit CodecBench(const CodecBenchOptions& options);
  double read_seconds();

  CodecBenchOptions options_;
  std::unique_ptr<Workers> workers_;
  Shape shape_;
  std::vector<float> gradient_;
  std::vector<float> decoded_;
  float sink_ = 0;  // keeps the read-only pass from being optimised away
};

}  // namespace gradwire::bench
