// Turns every rank's gradients into their average: the only place where a Coder meets a
// Communicator.
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

// Since construction, on this rank.
struct AggregateStats {
  std::uint64_t gradient_bytes = 0;    // the gradients as given
  std::uint64_t dense_ring_bytes = 0;  // what a ring all-reduce of them, or the half of it that the
                                       // form is, would have sent from this rank
  std::uint64_t payload_bytes = 0;     // what encode() or pack() produced
  std::uint64_t wire_bytes = 0;        // message bytes that the aggregator's communicator sent
  double encode_seconds = 0;           // in coders, before the exchange (aggregator thread)
  double exchange_seconds = 0;         // waiting for exchanges (aggregator thread)
  double decode_seconds = 0;           // in coders, after the exchange (aggregator thread)
  double exposed_seconds = 0;          // what finish() made its caller wait
  std::uint64_t held_bytes = 0;  // what exchanges keep between steps: memory that gradients and
                                 // payloads are packed in, and state(); from the first step on
};

// What finish() leaves in the tensors. Rank r's shard of a tensor of n elements is the
// piece(n, size, r) of schedule.h.
enum class AggregateForm : std::uint8_t {
  kAllReduce,      // the mean over ranks, on all of them
  kReduceScatter,  // sharded training: the mean in the rank's own shard; the rest is unspecified
  kAllGather,      // parameters or updates: rank r's shard of rank r's tensor in every rank's, as
                   // its payload decodes on all ranks, r included
};

// The aggregator's keys in a spec's first stage, taken out before the registry sees it:
//   ef=none|ef14|ef21|ef21_sgdm|loco
//                        error feedback (default none): what was not sent is added to the next
//                        gradient (ef14), the result is a running mean of what was sent (ef21,
//                        ef21_sgdm), or a forgetting ef14 with a residual of one byte (loco)
//   ef_storage=fp32|bf16|int8
//                        of ef14 (default fp32, which means the gradient's own type) and of loco
//                        (default int8): how the residual is kept between steps
//   ef_eta=0.1           of ef21_sgdm: the new gradient's share of its moving average
//   ef_beta=0.8          of loco: the old residual's share of the new one
//   ef_reset=1024        of loco: steps after which the residual is dropped; 0: never
//   ef_rescale_lr=false  of ef14, loco and dgc: the residual follows set_learning_rate()
//   ef_scale=auto|none   divide by 1+omega where error feedback over an unbiased method needs it
//   combine=auto|sum|gather|sra|oktopk
//                        auto: sum for linear methods, else sra for elementwise ones that keep how
//                        large their input was, else gather; a majority vote takes gather, a cast
//                        with ef takes sra. sra keeps a second residual (of ef21: a second
//                        running mean) where sums are encoded again. oktopk, for
//                        sparse methods: pairs are added up by owners of regions, who keep as many
//                        sums of a tensor as the rank that chose most of it did
//   inner=SPEC           two levels: the spec is of what travels between nodes (options' node_of),
//                        SPEC of what travels inside one: none (exact), or an elementwise method
//                        that "name:value" can say (cast:bf16), without error feedback
//   between=messages|nccl  what joins nodes inside which a device's gradients go by NCCL
//   min_elems=1024       smaller tensors travel dense
//   dense_1d=true        1-d tensors travel dense. Methods that keep momentum by themselves (dgc)
//                        have min_elems=0 and dense_1d=false, and take no warmup_steps
//   warmup_steps=0       so many first steps travel dense
//   seed=N               overrides AggregatorOptions::seed

// What tensors are to the training, and so what may be done to them on the way.
enum class TrafficClass : std::uint8_t {
  kGradients,            // averaged at every step
  kParameters,           // averaged, or gathered where the update is sharded
  kActivations,          // between the layers' parts on several ranks, forward
  kActivationGradients,  // the same, backward
  kOptimizer,            // momenta and the like, averaged
  kStatistics,           // losses, norms, counts, batch-norm statistics
};
inline constexpr std::size_t kTrafficClasses = 6;
// "gradients", "parameters", "activations", "activation_gradients", "optimizer", "statistics".
std::string_view to_string(TrafficClass traffic);

// A piece of an aggregator's work, told when it has ended.
struct AggregateSpan {
  enum class Kind : std::uint8_t {
    kEncode,    // in coders, before an exchange
    kExchange,  // from its start to when the aggregator's thread knew of its end
    kDecode,    // in coders, after it
  };
  Kind kind = Kind::kEncode;
  TrafficClass traffic = TrafficClass::kGradients;
  std::uint64_t step = 0;  // of the aggregator, from 0
  int bucket = 0;
  int phase = 0;
  int lane = 0;  // of exchanges: two of one lane never overlap
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
};

// Sharded forms pack a shard at a time: specs are "none" or elementwise methods, without `combine`.
// kAllGather takes no votes, ef21_sgdm or ef_rescale_lr; under ef21 it sends what the others'
// copies lack, and its tensors have no learning rate or loss scale to follow.
struct AggregatorOptions {
  std::string compressor =
      "none";  // a spec, or rules by name and size: "*.bias=none; *@..64K=none; *=topk:ratio=0.01"
  std::int64_t bucket_bytes =
      4 << 20;  // gradient bytes per bucket; parameters are packed in reverse order. One of
                // several buckets' size under sra travels in up to 16 strips, with the same bits
  std::uint64_t seed = 0;
  std::string algorithm = "auto";  // of the dense sums: "auto", "ring", "canonical"
  bool allow_unsafe = false;       // accept pairs that fail or may diverge
  TrafficClass traffic = TrafficClass::kGradients;  // create() refuses what it cannot take
  int threads = 1;  // that encode and decode, the aggregator's own included: the same bits by any
                    // number
  AggregateForm form = AggregateForm::kAllReduce;
  // Told on the aggregator's thread, of each gradient as soon as it holds what finish() will leave;
  // and once with -1 and the error when the aggregator fails, or ends within a step. Must be short,
  // and must not call the aggregator. May be empty.
  std::function<void(int index, const Status& outcome)> arrival = {};
  bool lean = false;  // sharded forms: memory that exact tensors are packed in takes none between
                      // exchanges, for page faults during them
  // Called on the aggregator's thread, for traces; must not call the aggregator. Empty: nothing is
  // told.
  std::function<void(const AggregateSpan&)> on_span = {};
  // What the optimizer multiplies its momentum by, which takes the means: 0 for none, unset where
  // the caller does not know. Beside one above 0 create() refuses methods that keep a momentum by
  // themselves (dgc); warnings about momentum are left out beside 0.
  std::optional<double> momentum = {};
};

// Of a class: a spec or rules, and the algorithm of its dense sums.
struct TrafficRule {
  std::string compressor = "none";
  std::string algorithm = "auto";
};

// One text for all that a job sends: what no entry names travels exactly.
//
//   policy := entry {";" entry}
//   entry  := class ["/" algorithm] "=" (spec | "[" rules "]")
//
//   gradients=[*.bias=none;*=topk:ratio=0.01,ef=ef14]; parameters=cast:bf16;
//   statistics/canonical=none
class TrafficPolicy {
 public:
  // kInvalidArgument names the entry: an unknown class or algorithm, one that is given twice, a bad
  // spec, or one that the class cannot take, with the reason and what to write instead (a warning
  // of Aggregator::create() with allow_unsafe, but for statistics): parameters must arrive as large
  // as they are, activations take nothing that is kept from sample to sample (error feedback, warm
  // starts, momenta), an optimizer's momenta no votes and no second momentum, statistics nothing
  // but exact methods.
  static Result<TrafficPolicy> parse(const Registry& registry, std::string_view text,
                                     bool allow_unsafe = false);
  const TrafficRule& of(TrafficClass traffic) const {
    return rules_[static_cast<std::size_t>(traffic)];
  }
  // `base` for an aggregator of that class: its traffic, compressor, algorithm and allow_unsafe.
  AggregatorOptions options(TrafficClass traffic, AggregatorOptions base = {}) const;

 private:
  std::array<TrafficRule, kTrafficClasses> rules_;
  bool allow_unsafe_ = false;
};

// Collective: all ranks add the same parameters in the same order and call ready() in any order.
// add(), ready() and finish() come from one thread; the work happens on a thread of the
// aggregator's own.
class Aggregator {
 public:
  // Collective. Works on a communicator of its own, split from the one given, which must outlive
  // it. kInvalidArgument names an illegal or unsafe pair, the reason and what to write instead.
  static Result<std::unique_ptr<Aggregator>> create(Communicator& communicator,
                                                    const Registry& registry,
                                                    AggregatorOptions options);
  virtual ~Aggregator() = default;
  // Registers a parameter's gradient, lent for the aggregator's life. kF32 or kF64; all in host
  // memory, or all on one CUDA device, where specs are none or methods with kernels (for kF32),
  // under any combine, on one level or two (else kUnsupported, at the latest by the first ready()).
  // What is waited for there, and for how long, is in docs/gpu.md.
  // Before the first ready() only.
  virtual Status add(std::string name, TensorView grad) = 0;
  // Gradient `index` (order of add) is final for this step, on a device when `stream` has run what
  // it has been given; hands over and returns at once.
  virtual Status ready(int index, const Stream& stream = {}) = 0;
  // Gradient `index` lies there from now on: same shape and type, lent as add() says. Before its
  // ready() in a step; after the last step's finish().
  virtual Status move(int index, TensorView grad) = 0;
  // Waits until every added gradient holds the mean over ranks, or what the form says. Ends the
  // step. All must have been ready.
  virtual Status finish(const Stream& stream = {}) = 0;
  // Whether gradient `index`, which was ready in this step, holds already what finish() will leave:
  // a program that needs no more of it may give its memory back. With `wait`, waits for that,
  // unless it takes gradients that are not ready yet (others of its bucket, or of the one after):
  // false then. finish() ends the step all the same. kInvalidArgument for a gradient that is not
  // ready.
  virtual Result<bool> arrived(int index, bool wait) = 0;
  // What lies outside and the state must follow. All three: between steps only, alike on all ranks,
  // ending registration; kInvalidArgument otherwise or for a value that is not finite or below 0.
  //
  // The rate of the coming step's update. Where ef_rescale_lr=true, residuals are multiplied by the
  // last rate over this one, so that what was left over keeps the size it would have had in the
  // parameters. 0, and the first call, change nothing. kInvalidArgument, and nothing has changed,
  // when a residual would not be finite.
  virtual Status set_learning_rate(double rate) = 0;
  // What the coming step's gradients are multiplied by (mixed precision), above 0. State in their
  // units is multiplied by this scale over the last one: residuals, ef21's, methods' own. The first
  // call changes nothing. Errors as set_learning_rate().
  virtual Status set_loss_scale(double scale) = 0;
  // Collective, before the first ready() of a step: true on all ranks if any of them says
  // `overflow`. The step is left out then: no ready(), no finish(), no update; residuals and all
  // other state are as they were. A failed exchange fails the aggregator's communicator.
  virtual Result<bool> skip_step(bool overflow) = 0;
  virtual AggregateStats stats() const = 0;
  // Warnings of create() and of the steps so far: fragile or scaled pairs, and once, when a step
  // sent more than uncompressed gradients would have, with the predicted and the measured bytes.
  // For logs and reports.
  virtual std::vector<std::string> warnings() const = 0;
  // "<parameter>.error", "<parameter>.error2", "<parameter>.shard_error", each with a ".scale"
  // where it is stored as int8, "<parameter>.ef21.<name>",
  // "<parameter>.coder.<name>", "aggregator.step" (the number of finished steps, which keys the
  // random draws) and "aggregator.scales" (the last learning rate and loss scale, 0 where there was
  // none). Between steps only (else empty); ends registration. Host memory, of a device's state a
  // copy, valid until the next step's finish() and the next call: ask again.
  virtual std::vector<NamedTensor> state() = 0;
  // From the state() of every old rank, in rank order, any number of them. As many as now: bit for
  // bit. Else residuals keep their average over ranks (each new rank gets the sum divided by the
  // old number). Between steps only; ends registration. kInvalidArgument names the entry that is
  // missing, superfluous or of another shape, and nothing has changed.
  virtual Status load_state(std::span<const std::vector<NamedTensor>> by_old_rank) = 0;
};

}  // namespace gradwire
