// Compressor: a compression method with its parameters, and the properties that it claims. The
// property tests of testing/compressor_laws.h check every claim.
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

// How the payloads of a round are combined over ranks.
enum class Exchange : std::uint8_t {
  kAllReduceSum,  // payloads are tensors; every rank receives their sum
  kAllGather,     // payloads are opaque bytes; every rank receives all of them, in rank order
  kAllReduceMax,  // payloads are tensors; every rank receives the elementwise maximum (or a NaN)
};

// One round of a method.
struct RoundKind {
  Exchange exchange = Exchange::kAllGather;  // how payloads are combined
  DType payload = DType::kU8;  // element type of payloads that are summed or maximised
  bool fixed = true;           // true: encode() always writes max_payload_bytes() bytes. False: a
                               // gathered payload's length may differ between ranks; the length of
                               // one that is summed or maximised depends on shape, number of ranks
                               // and step only
  // True if ranks receive one combined payload: the sum or the maximum.
  bool reduces() const { return exchange != Exchange::kAllGather; }
  friend bool operator==(const RoundKind&, const RoundKind&) = default;
};

// A bound of the compression error, of C(x) = decode(encode(x)). E: the expectation over the random
// numbers; |.|: the L2 norm. Source: Beznosikov, Horvath, Richtarik, Safaryan, "On biased
// compression for distributed learning", JMLR 2023 (contractions, variances, and the scale between
// them).
struct ErrorBound {
  // The kind of bound.
  enum class Kind : std::uint8_t {
    kNone,         // nothing is claimed
    kContraction,  // E|x - scale C(x)|^2 <= (1 - value) |x|^2, 0 <= value <= 1; value is 0 for an
                   // orthogonal projection, whose share of |x| depends on x
    kVariance,     // unbiased: E C(x) = x and E|x - C(x)|^2 <= value |x|^2
  } kind = Kind::kNone;  // which bound holds
  double value = 0;      // the constant of the bound, a ratio of squared norms
  // For kContraction: the factor, a ratio, with which C(x) becomes a contraction; error feedback
  // multiplies C(x) by it. Below 1 if an unbiased second stage of large variance encodes the values
  // that the first stage selects.
  double scale = 1;
  // True for methods whose ranks share a scale: |x| then is the norm of the elementwise largest
  // magnitudes over ranks.
  bool over_ranks = false;
};

// The properties that a method claims. The aggregator selects aggregation modes and refuses unsound
// combinations by them.
struct Traits {
  Exchange exchange = Exchange::kAllGather;  // of the rounds that carry the gradient
  int rounds = 1;                            // rounds of a step
  DType payload_dtype =
      DType::kU8;  // for kAllReduceSum: the payload's element type; kF32: the gradient's own type
  bool elementwise = false;   // open_slices() works, and with it the aggregation mode sra
  bool fixed_payload = true;  // RoundKind::fixed holds in every round
  bool sparse = false;        // sends selected values; a second stage may encode them:
                              // "topk:k=9|cast:bf16"
  bool lossless = false;      // decodes to the gradient bit for bit, NaN and infinity included
  bool own_feedback = false;  // keeps a residual of its own (dgc); error feedback is refused
  bool unbiased = false;      // E C(x) = x
  bool needs_error_feedback = true;     // biased: SGD without error feedback may stall or diverge
  bool mean_is_average_of_own = true;   // false for a majority vote: error feedback is refused, and
                                        // in sra the second stage is the result, not divided
  bool stateful = false;                // keeps state between steps (powersgd's warm start)
  bool bitwise_on_all_devices = false;  // CPU and CUDA produce the same payload bytes
};

// A method with fixed parameters. Immutable: all tensors and threads may share it.
class Compressor {
 public:
  virtual ~Compressor() = default;

  // The spec in canonical form, "topk:ratio=0.01": parsing it gives an equal compressor. A change
  // of the payload's layout changes the method's name.
  virtual std::string spec() const = 0;
  // The claimed properties.
  virtual Traits traits() const = 0;
  // The claimed error bound for tensors of that shape.
  virtual ErrorBound bound(const Shape& shape) const = 0;
  // How round `round` (from 0) among `size` ranks is exchanged, for elements of `dtype` (kF32 or
  // kF64). Default: every round as traits() says. If traits().exchange is kAllReduceSum, at least
  // one round must be summed.
  virtual RoundKind round_kind(int round, DType dtype, int size) const;
  // The largest payload of a round, in bytes, for elements of `dtype` (kF32 or kF64) among `size`
  // ranks (payloads that hold sums may grow with the number of ranks). A multiple of
  // size_of(round_kind().payload) if the round reduces.
  virtual std::size_t max_payload_bytes(const Shape& shape, DType dtype, int round,
                                        int size = 1) const = 0;

  // Where a Coder or WireFormat works.
  struct Placement {
    DType dtype = DType::kF32;  // element type of the gradient: kF32 or kF64
    Device device = {};         // where the gradient and the payloads are
    int rank = 0;               // this rank, 0 to size - 1
    int size = 1;               // number of ranks that exchange payloads
    std::uint64_t seed = 0;     // seed of the random numbers, equal on all ranks
    std::uint64_t tensor =
        0;  // 64-bit hash of the parameter's name: part of the key of every random number
  };
  // A Coder for tensors of `shape`. Errors: kUnsupported for a type or device that the method does
  // not serve; kInvalidArgument for a shape that it cannot encode (too many elements).
  virtual Result<std::unique_ptr<Coder>> open(const Shape& shape, const Placement& where) const = 0;
  // A WireFormat for slices of tensors of `shape`, for elementwise methods; their open() is
  // make_slice_coder() of it. Errors: as open(); kUnsupported unless traits().elementwise.
  virtual Result<std::unique_ptr<WireFormat>> open_slices(const Shape& shape,
                                                          const Placement& where) const = 0;
};

// The Coder of an elementwise method, made from its WireFormat. One round of kAllGather: encode()
// packs the whole tensor as the slice {step, where.tensor, where.rank, stage 0, first 0}; finish()
// adds the decoded payloads of all ranks in rank order and multiplies once by 1/size. Keeps no
// state between steps. Never fails; the Coder's calls return kInvalidArgument for tensors other
// than (shape, where.dtype), and kCorruptPayload, naming the rank, for a bad payload.
std::unique_ptr<Coder> make_slice_coder(std::unique_ptr<WireFormat> format, const Shape& shape,
                                        const Compressor::Placement& where);

}  // namespace gradwire
