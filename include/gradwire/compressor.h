// A compression method with its parameters: immutable, and a set of claims that one law suite
// tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gradwire/coder.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "gradwire/wire_format.h"

namespace gradwire {

// How a round's payloads combine across ranks.
enum class Exchange : std::uint8_t {
  kAllReduceSum,  // linear: payloads are payload_dtype tensors and may be added in the network
  kAllGather,     // opaque bytes: every rank receives all payloads, in rank order
};

// A checkable promise about C(x) = decode(encode(x)).
struct ErrorBound {
  enum class Kind : std::uint8_t {
    kNone,
    kContraction,  // E|x - C(x)|^2 <= (1 - value) |x|^2, 0 <= value <= 1; 0 for an orthogonal
                   // projection, which keeps a share that depends on x
    kVariance,     // E C(x) = x and E|x - C(x)|^2 <= value |x|^2
  } kind = Kind::kNone;
  double value = 0;
};

struct Traits {
  Exchange exchange = Exchange::kAllGather;
  int rounds = 1;
  DType payload_dtype =
      DType::kU8;             // meaningful for kAllReduceSum; kF32 stands for the gradient's own
  bool elementwise = false;   // open_slices() works, and so sra
  bool fixed_payload = true;  // encode() always writes max_payload_bytes()
  bool unbiased = false;
  bool needs_error_feedback = true;     // biased: plain SGD may stall or diverge without it
  bool mean_is_average_of_own = true;   // false for majority vote: error feedback is then refused,
                                        // and under sra the second stage is the mean, undivided
  bool stateful = false;                // keeps something between steps (PowerSGD's warm start)
  bool bitwise_on_all_devices = false;  // CPU and CUDA emit the same payload bytes
};

// Shared by all tensors and threads.
class Compressor {
 public:
  virtual ~Compressor() = default;

  // Canonical text, e.g. "topk:ratio=0.01": parsing it gives an equal compressor. If the payload
  // layout changes, the name changes.
  virtual std::string spec() const = 0;
  virtual Traits traits() const = 0;
  virtual ErrorBound bound(const Shape& shape) const = 0;
  // In bytes, for elements of `dtype` (kF32 or kF64).
  virtual std::size_t max_payload_bytes(const Shape& shape, DType dtype, int round) const = 0;

  struct Placement {
    DType dtype = DType::kF32;
    Device device = {};
    int rank = 0;
    int size = 1;
    std::uint64_t seed = 0;  // equal on all ranks: PowerSGD derives shared randomness from it
    std::uint64_t tensor =
        0;  // stable 64-bit hash of the parameter's name: part of every random key
  };
  virtual Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const = 0;
  // Elementwise methods only; kUnsupported for sparse and factored ones.
  virtual Result<std::unique_ptr<WireFormat>> open_slices(const Shape& shape,
                                                          const Placement& where) const = 0;
};

}  // namespace gradwire
