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
  kAllReduceSum,  // linear: payloads are tensors and may be added in the network
  kAllGather,     // opaque bytes: every rank receives all payloads, in rank order
  kAllReduceMax,  // payloads are tensors; every rank receives the elementwise maximum (a NaN wins)
};

// One round of a method.
struct RoundKind {
  Exchange exchange = Exchange::kAllGather;
  DType payload = DType::kU8;  // element type of payloads that are summed or maximised
  bool fixed = true;           // encode() always writes max_payload_bytes(). If not: a gathered
                      // payload's length is its sender's own; one that is summed or maximised is a
                      // function of shape, size and step, equal on all ranks
  // Payloads combine in the network, and one comes back.
  bool reduces() const { return exchange != Exchange::kAllGather; }
  friend bool operator==(const RoundKind&, const RoundKind&) = default;
};

// A checkable promise about C(x) = decode(encode(x)).
struct ErrorBound {
  enum class Kind : std::uint8_t {
    kNone,
    kContraction,  // E|x - scale C(x)|^2 <= (1 - value) |x|^2, 0 <= value <= 1; 0 for an
                   // orthogonal projection, which keeps a share that depends on x
    kVariance,     // E C(x) = x and E|x - C(x)|^2 <= value |x|^2
  } kind = Kind::kNone;
  double value = 0;
  // Of a contraction: what error feedback multiplies into C(x) to have one. Below 1 where an
  // unbiased second stage of large variance codes the values that a first one chose.
  double scale = 1;
  // Where ranks share a scale, |x| is the norm of the largest magnitudes over ranks, element by
  // element.
  bool over_ranks = false;
};

struct Traits {
  Exchange exchange = Exchange::kAllGather;  // of the rounds that carry the gradient
  int rounds = 1;
  DType payload_dtype =
      DType::kU8;             // meaningful for kAllReduceSum; kF32 stands for the gradient's own
  bool elementwise = false;   // open_slices() works, and so sra
  bool fixed_payload = true;  // every round's is: RoundKind::fixed
  bool sparse = false;  // sends chosen values, which a second stage may code: "topk:k=9|cast:bf16"
  bool lossless = false;      // own is the gradient, bit for bit, NaN and infinity included
  bool own_feedback = false;  // keeps what it did not send for later steps by itself: refused under
                              // error feedback
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
  // Round `round` among `size` ranks, for elements of `dtype` (kF32 or kF64). Unless overridden all
  // rounds are as traits() says. At least one round of a method whose traits().exchange is
  // kAllReduceSum is summed.
  virtual RoundKind round_kind(int round, DType dtype, int size) const;
  // In bytes, for elements of `dtype` (kF32 or kF64), among `size` ranks: payloads that hold sums
  // may grow with their number. A multiple of the size of round_kind().payload where it reduces.
  virtual std::size_t max_payload_bytes(const Shape& shape, DType dtype, int round,
                                        int size = 1) const = 0;

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
  // Elementwise methods only, whose open() is make_slice_coder() of this; kUnsupported for sparse
  // and factored ones.
  virtual Result<std::unique_ptr<WireFormat>> open_slices(const Shape& shape,
                                                          const Placement& where) const = 0;
};

// The Coder that every elementwise method gets for nothing: its WireFormat over the whole tensor.
// One round of kAllGather: encode packs the tensor as the slice {step, where.tensor, where.rank,
// stage 0, first 0}; finish adds what all ranks' payloads unpack to, in rank order, and multiplies
// once by 1/size. own is what this rank's payload unpacks to. No state between steps.
// Errors: kInvalidArgument for tensors other than (shape, where.dtype), kCorruptPayload naming the
// rank whose payload is bad (its length in absorb, its contents in finish).
std::unique_ptr<Coder> make_slice_coder(std::unique_ptr<WireFormat> format, const Shape& shape,
                                        const Compressor::Placement& where);

}  // namespace gradwire
