// Aggregator: averages all ranks' gradients, compressed by a spec. It combines Coders and a
// Communicator. Words as docs/concepts.md#glossary defines them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/registry.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Counters of an aggregator on this rank since its creation. Seconds are wall-clock time of the
// aggregator's thread, except exposed_seconds.
struct AggregateStats {
  std::uint64_t gradient_bytes = 0;    // uncompressed gradients
  std::uint64_t dense_ring_bytes = 0;  // bytes that this rank would have sent uncompressed with a
                                       // ring all-reduce (sharded forms: half of one)
  std::uint64_t payload_bytes = 0;     // payloads that this rank encoded
  std::uint64_t wire_bytes = 0;        // messages that the aggregator's communicator sent
  double encode_seconds = 0;           // encoding
  double exchange_seconds = 0;         // waiting for exchanges
  double decode_seconds = 0;           // decoding
  double exposed_seconds = 0;          // time for which finish() blocked its caller
  std::uint64_t held_bytes = 0;        // memory kept between steps, from the first step on: buffers
                                       // for gradients and payloads, and state()
};

// What finish() leaves in the tensors. Rank r's shard of a tensor of n elements is
// piece(n, size, r) of schedule.h.
enum class AggregateForm : std::uint8_t {
  kAllReduce,      // the averaged gradient, on all ranks
  kReduceScatter,  // sharded training: the averaged gradient in the rank's own shard; the other
                   // elements are unspecified
  kAllGather,      // parameters or updates: every rank's shard, on all ranks, as its payload
                   // decodes (on the owner, too)
};

// The aggregator's keys in a spec. They belong to the spec's first stage.
//
//   ef=none|ef14|ef21|ef21_sgdm|loco
//       Error feedback; default none.
//       ef14       Adds the residual (what earlier steps did not send) to the gradient. Source:
//                  Seide, Fu, Droppo, Li, Yu, "1-bit stochastic gradient descent", Interspeech
//                  2014; Karimireddy, Rebjock, Stich, Jaggi, "Error feedback fixes SignSGD", ICML
//                  2019, algorithm 1.
//       ef21       Keeps a running estimate of the gradient, and sends the compressed difference to
//                  it. Source: Richtarik, Sokolov, Fatkhullin, "EF21", NeurIPS 2021, algorithm 2.
//       ef21_sgdm  ef21 of a moving average of gradients, for small batches. Source: Fatkhullin,
//                  Tyurin, Richtarik, "Momentum provably improves error feedback!", NeurIPS 2023,
//                  algorithm 1.
//       loco       ef14 with a residual of one byte per element, as a moving average. Source: Xie,
//                  Lin, Toh, Zhou, "LoCo: low-bit communication adaptor for large-scale model
//                  training", arXiv:2407.04480, 2024.
//   ef_storage=fp32|bf16|int8
//       Format of the stored residual. ef14: default fp32, which stands for the gradient's own
//       type; loco: default int8.
//   ef_eta=0.1           ef21_sgdm: weight of the new gradient in the moving average, above 0, at
//                        most 1
//   ef_beta=0.8          loco: weight of the old residual in the new one, 0 <= ef_beta < 1
//   ef_reset=1024        loco: steps between resets of the residual to zero; 0: never
//   ef_rescale_lr=false  ef14, loco and dgc: true scales the residual by set_learning_rate()
//   ef_scale=auto|none   auto divides by 1 + omega where error feedback of an unbiased method of
//                        variance omega needs it. Source: Beznosikov, Horvath, Richtarik, Safaryan,
//                        "On biased compression for distributed learning", JMLR 2023.
//   combine=auto|sum|gather|sra|oktopk
//       Aggregation mode. auto: sum for linear methods; else sra for elementwise methods whose
//       output keeps the input's magnitude; else gather. A majority vote takes gather, a cast with
//       error feedback takes sra.
//       sum        Payloads are added in an all-reduce.
//       gather     Every rank receives the payloads of all ranks.
//       sra        Scatter-reduce-all-gather: each rank averages one shard, encodes it again with a
//                  second-stage residual (ef21: a second running estimate), and all ranks gather
//                  the shards. Source: Markov, Ramezanikebrya, Alistarh, "CGX", Middleware 2022
//                  (the mode); Tang, Yu, Lian, Zhang, Liu, "DoubleSqueeze", ICML 2019 (the second
//                  residual).
//       oktopk     For sparse methods: each rank sums one region of the tensor and keeps k sums, k
//                  being the largest number of elements that any rank selected. Source: Li,
//                  Hoefler, "Near-optimal sparse allreduce for distributed deep learning", PPoPP
//                  2022.
//   intra_node=SPEC      Two levels: the rule's own spec applies between nodes
//                        (CommunicatorOptions::node_of), SPEC inside a node. SPEC is none (exact),
//                        or an elementwise method of the form name:value (cast:bf16), without error
//                        feedback.
//   inter_node=messages|nccl
//                        Inter-node transport of GPU gradients when NCCL is used inside nodes.
//   min_elems=1024       Tensors of fewer elements are sent uncompressed.
//   dense_1d=true        1-d tensors are sent uncompressed. For methods with a momentum of their
//                        own (dgc) the defaults are min_elems=0 and dense_1d=false, and
//                        warmup_steps is refused.
//   warmup_steps=0       The first steps, as many as this, are sent uncompressed.
//   seed=N               Replaces AggregatorOptions::seed.
//
// Aliases: inner= and between= are earlier names of intra_node= and inter_node=; they work, with a
// warning.

// What tensors are in the training. It decides which methods are allowed for them.
enum class TrafficClass : std::uint8_t {
  kGradients,            // averaged in every step
  kParameters,           // averaged; gathered in sharded training
  kActivations,          // sent forward between parts of a model on different ranks
  kActivationGradients,  // sent backward between them
  kOptimizer,            // momenta and other optimizer state, averaged
  kStatistics,           // losses, norms, counts, batch-norm statistics
};
// The number of traffic classes.
inline constexpr std::size_t kTrafficClasses = 6;
// "gradients", "parameters", "activations", "activation_gradients", "optimizer" or "statistics".
// Valid for the program's life.
std::string_view to_string(TrafficClass traffic);

// One interval of an aggregator's work, for traces.
struct AggregateSpan {
  // The kind of work.
  enum class Kind : std::uint8_t {
    kEncode,    // encoding, before an exchange
    kExchange,  // from the start of an exchange until the aggregator's thread noticed its end
    kDecode,    // decoding, after an exchange
  };
  Kind kind = Kind::kEncode;                        // which work
  TrafficClass traffic = TrafficClass::kGradients;  // AggregatorOptions::traffic
  std::uint64_t step = 0;                           // the aggregator's step number, from 0
  int bucket = 0;                                   // number of the bucket, from 0
  int phase = 0;                                    // number of the exchange in the bucket's step
  int lane = 0;                                     // number of the trace's row: exchanges of one
                                                    // row do not overlap in time
  std::chrono::steady_clock::time_point begin;      // start of the interval
  std::chrono::steady_clock::time_point end;        // end of the interval
};

// Options of an aggregator; equal on all ranks except threads and the callbacks.
//
// The sharded forms encode one shard at a time: their specs are "none" or elementwise methods,
// without `combine`. kAllGather takes no majority vote, ef21_sgdm or ef_rescale_lr, and has no
// learning rate or loss scale; its ef21 sends the difference to the copy that the other ranks have.
struct AggregatorOptions {
  std::string compressor =
      "none";  // a spec, or rules by name and size: "*.bias=none; *@..64K=none; *=topk:ratio=0.01"
  std::int64_t bucket_bytes =
      4 << 20;  // bytes of gradient per bucket. Gradients are packed in reverse order of add().
                // With sra, a bucket of several times this size is sent in up to 16 chunks; results
                // have the same bits
  std::uint64_t seed = 0;          // seed of stochastic rounding and other random numbers
  std::string algorithm = "auto";  // of exact sums: "auto", "ring", "canonical", ...
  bool allow_unsafe = false;       // true: combinations that fail or may diverge cause a warning
  TrafficClass traffic = TrafficClass::kGradients;  // what the tensors are
  int threads = 1;  // number of threads that encode and decode, the aggregator's own included;
                    // results have the same bits for any number
  AggregateForm form = AggregateForm::kAllReduce;  // what finish() leaves in the tensors
  // Called on the aggregator's thread for each gradient (index of add()) as soon as it holds what
  // finish() leaves; and once with index -1 and the error if the aggregator fails or is destroyed
  // within a step. Must be short and must not call the aggregator. May be empty.
  std::function<void(int index, const Status& outcome)> arrival = {};
  bool lean = false;  // sharded forms: true frees the buffers of exact tensors between exchanges,
                      // at the cost of page faults
  // Called on the aggregator's thread after each interval of work, for traces. Must be short and
  // must not call the aggregator. May be empty.
  std::function<void(const AggregateSpan&)> on_span = {};
  // The momentum factor of the optimizer that uses the averaged gradients, a ratio; 0: none; unset:
  // not known. If above 0, create() refuses methods with a momentum of their own (dgc). If 0,
  // warnings about momentum are omitted.
  std::optional<double> momentum = {};
};

// The rule of one traffic class.
struct TrafficRule {
  std::string compressor = "none";  // a spec or rules
  std::string algorithm = "auto";   // of exact sums
};

// The compressors of all traffic classes, from one text. Classes without an entry are sent exactly.
//
//   policy := entry {";" entry}
//   entry  := class ["/" algorithm] "=" (spec | "[" rules "]")
//
//   gradients=[*.bias=none;*=topk:ratio=0.01,ef=ef14]; parameters=cast:bf16;
//   statistics/canonical=none
class TrafficPolicy {
 public:
  // Parses a policy. Errors: kInvalidArgument, naming the entry, for an unknown or repeated class,
  // an unknown algorithm, a bad spec, or a spec that the class does not allow, with the reason and
  // what to write instead. With allow_unsafe the last is a warning of Aggregator::create(), except
  // for statistics. What classes allow: parameters: methods whose output keeps the input's
  // magnitude; activations: no state between samples (error feedback, warm starts, momentum);
  // optimizer: no majority vote and no second momentum; statistics: exact methods.
  static Result<TrafficPolicy> parse(const Registry& registry, std::string_view text,
                                     bool allow_unsafe = false);
  // The rule of a class, valid as long as the policy.
  const TrafficRule& of(TrafficClass traffic) const {
    return rules_[static_cast<std::size_t>(traffic)];
  }
  // Options for an aggregator of that class: `base` with the policy's traffic, compressor,
  // algorithm and allow_unsafe.
  AggregatorOptions options(TrafficClass traffic, AggregatorOptions base = {}) const;

 private:
  std::array<TrafficRule, kTrafficClasses> rules_;
  bool allow_unsafe_ = false;
};

// Averages gradients over the ranks of a communicator.
//
// A step: ready() once for each gradient, in any order; then finish(). Buckets are exchanged by a
// thread of the aggregator's while the caller computes the next gradients. All ranks add the same
// gradients in the same order. Thread: one at a time.
//
// Errors of every call after create(): kInvalidArgument for a call that the state does not allow
// (it says which), and nothing is changed; kUnsupported in a child of fork(). Errors of exchanges
// are those of Communicator, and of encoding and decoding those of Coder: after them the aggregator
// and its communicator are unusable, and every call returns the error.
class Aggregator {
 public:
  // Creates an aggregator that works on a communicator of its own, split from the given one, which
  // must outlive it. Collective. Errors: kInvalidArgument for a bad spec, or for a combination of
  // method, error feedback, momentum and traffic class that fails or may diverge (unless
  // allow_unsafe), with the reason and what to write instead; those of Communicator::split().
  static Result<std::unique_ptr<Aggregator>> create(Communicator& communicator,
                                                    const Registry& registry,
                                                    AggregatorOptions options);
  virtual ~Aggregator() = default;
  // Adds a gradient, before the first ready(). Its memory is lent for the aggregator's life. Type:
  // kF32, kF64, kF16 or kBF16. Uncompressed, gradients of 16 bits travel as they
  // are, owners of parts add them up in fp32, and the mean is rounded once, to nearest even; other
  // methods work on copies in fp32, of a few buckets at a time, and keep their state in fp32.
  // Place: all gradients in host memory, or all on one GPU (docs/gpu.md has the methods and the
  // waits). Errors: kInvalidArgument for a name that was added before, another type
  // or another place, or a spec that does not fit the shape; kUnsupported, at the latest by the
  // first ready(), for a method or an element type without GPU kernels.
  virtual Status add(std::string name, TensorView grad) = 0;
  // Declares gradient `index` (number in order of add()) final for this step: at once, or on a GPU
  // after the work that `stream` holds. Returns at once; the memory must not be changed until
  // finish(), or until arrived() says so. Errors: kInvalidArgument for an index out of range, one
  // that was ready before, or a stream of another device.
  virtual Status ready(int index, const Stream& stream = {}) = 0;
  // Replaces the memory of gradient `index` by `grad`, of the same shape, type and place, lent as
  // in add(). Before its ready() in a step. Errors: kInvalidArgument otherwise.
  virtual Status move(int index, TensorView grad) = 0;
  // Ends the step: blocks until every gradient holds what the form says. All must be ready. On a
  // GPU `stream` is not needed: results are complete. Errors: kInvalidArgument if a gradient is not
  // ready; errors of exchanges and coders.
  virtual Status finish(const Stream& stream = {}) = 0;
  // True if gradient `index`, ready in this step, holds already what finish() leaves; its memory
  // may then be used. With `wait`, blocks until it does; but returns false if that needs gradients
  // that are not ready (of its bucket, or of the next one). finish() must still be called. Errors:
  // kInvalidArgument for a gradient that is not ready in this step; errors of exchanges and coders.
  virtual Result<bool> arrived(int index, bool wait) = 0;
  // The next four: between steps, with equal values on all ranks; gradients cannot be added after
  // them.
  //
  // Sets the learning rate of the next step's update, 0 or above. With ef_rescale_lr=true it
  // multiplies residuals by the last rate over this one, so that they keep their weight in the
  // parameters. The first call, and a rate of 0, change nothing. Errors: kInvalidArgument, and
  // nothing is changed, for a rate that is negative or not finite, within a step, with the form
  // kAllGather, or if a residual would not be finite.
  virtual Status set_learning_rate(double rate) = 0;
  // Sets the factor of the next step's gradients (loss scale of mixed precision), above 0.
  // Multiplies all state in units of gradients by this factor over the last one: residuals, ef21's
  // estimates, and what methods keep. The first call changes nothing. Errors: as
  // set_learning_rate(), and kInvalidArgument for a scale that is not above 0.
  virtual Status set_loss_scale(double scale) = 0;
  // Says that gradients of 16 bits hold their values times `scale`, above 0, from the next step on;
  // 1 at first. Methods get the values, and state never has the scale; their means are multiplied
  // by it again where they are rounded, and finite ones that 16 bits cannot hold become the largest
  // that they can. Uncompressed tensors travel as they are, with the scale. Wider gradients are not
  // changed. Errors: kInvalidArgument, and nothing is changed, for a scale that is not above 0 or
  // not finite, and within a step.
  virtual Status set_narrow_scale(double scale) = 0;
  // Returns true on all ranks if any rank passes overflow = true. The step is skipped then: no
  // ready(), no finish(), no update; the state is not changed. Collective. Errors: kInvalidArgument
  // within a step; errors of exchanges.
  virtual Result<bool> skip_step(bool overflow) = 0;
  // Bytes and seconds so far.
  virtual AggregateStats stats() const = 0;
  // The warnings of create() and of the steps so far, for logs and reports: unsound or scaled
  // combinations, old names of keys, and, once, a step that sent more bytes than uncompressed
  // gradients, with the predicted and the measured number.
  virtual std::vector<std::string> warnings() const = 0;
  // The state that a checkpoint must save, as named tensors; empty within a step. Gradients cannot
  // be added after it. Entries are in host memory (of a GPU's state: copies), valid until the next
  // finish() or the next state(). Names, kept from earlier versions so that old checkpoints load:
  //   "<parameter>.error", ".error2", ".shard_error"
  //                              residual, second-stage residual, shard residual; each with
  //                              ".scale" if it is stored as int8
  //   "<parameter>.outer.*"      the same of the exchange between nodes (intra_node=)
  //   "<parameter>.ef21.*", "<parameter>.coder.*"
  //                              estimates of ef21; state of the method's coder
  //   "aggregator.step"          number of finished steps; part of the key of random numbers
  //   "aggregator.scales"        the last learning rate and loss scale; 0 if none was set
  virtual std::vector<NamedTensor> state() = 0;
  // Restores the state() of all old ranks, given in rank order; between steps. Gradients cannot be
  // added after it. With the same number of ranks the state is restored bit for bit. With another
  // number, residuals keep their average over ranks: each new rank gets their sum divided by the
  // old number of ranks. Errors: kInvalidArgument, naming the entry that is missing, superfluous or
  // of another shape, and nothing is changed.
  virtual Status load_state(std::span<const std::vector<NamedTensor>> by_old_rank) = 0;
};

}  // namespace gradwire
