// One bucket's part of a step. Phases are in order: encode(p), issue(p), wait for the Work,
// absorb(p); after the last one every gradient of the bucket holds the mean over ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aggregate/plan/plan.h"
#include "base/workers.h"
#include "device/copy_lane.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

class BucketExchange {
 public:
  virtual ~BucketExchange() = default;
  virtual int phases() const = 0;
  // Returns the bytes that coders or wire formats wrote (of a dense bucket: the gradients' own).
  virtual Result<std::size_t> encode(int phase, std::uint64_t step) = 0;
  // Starts the exchange; nullopt when there is nothing to send. All ranks issue alike.
  virtual Result<std::optional<Work>> issue(int phase) = 0;
  virtual Status absorb(int phase, std::uint64_t step) = 0;
  // Memory that values and payloads are packed in, without state().
  virtual std::size_t held_bytes() const { return 0; }
  // "<parameter>.error" and the like. Views are valid until the next step ends, as Coder's are.
  virtual std::vector<NamedTensor> state() { return {}; }
};

struct NodeGroups;
class WideBuffers;

// Lent to all exchanges of an aggregator, which it outlives.
struct ExchangeContext {
  Communicator& communicator;
  std::string algorithm;       // of the dense sums
  Workers* workers = nullptr;  // that encode and decode; null: the aggregator's thread alone
  AggregateForm form = AggregateForm::kAllReduce;
  const NodeGroups* nodes = nullptr;  // where a parameter travels on two levels
  bool lean = false;                  // AggregatorOptions::lean
  std::int64_t strip_bytes = 0;  // of gradient, about, in one strip of a parameter; 0: no strips
  std::shared_ptr<const CopyLane> lane = nullptr;  // where gradients are on a device
  double lane_seconds = 0;                         // how long what is enqueued there may take
  std::shared_ptr<WideBuffers> wide = nullptr;     // for gradients of 16 bits that need it

  // Where coders' work is enqueued.
  Stream stream() const { return lane == nullptr ? Stream{} : lane->to_device(); }
  // Of operations on payloads, which lie where the gradients do.
  OpOptions payload_options() const {
    return {.algorithm = "auto", .deadline = std::nullopt, .stream = stream()};
  }
  // Waits until it has run. kTimedOut names the device.
  Status await_lane() const { return lane == nullptr ? Status() : lane->finish(lane_seconds); }
};

// `parameters` are lent; the exchange keeps pointers to them. kInvalidArgument or kUnsupported as
// the compressor's open() says, naming the parameter.
using Members = std::vector<const Parameter*>;
Result<std::unique_ptr<BucketExchange>> make_dense_exchange(const ExchangeContext& context,
                                                            Members members);
// kSum: rounds go the way of their kinds, which are the same for all members. kGather: all rounds
// are gathered.
Result<std::unique_ptr<BucketExchange>> make_coded_exchange(const ExchangeContext& context,
                                                            Path path, Members members);
// One, or a strip of the bucket each, in this order: then only the first has state() and
// held_bytes(), of all.
using Exchanges = std::vector<std::unique_ptr<BucketExchange>>;
Result<Exchanges> make_sra_exchange(const ExchangeContext& context, Members members);
// context.form is a sharded one.
Result<std::unique_ptr<BucketExchange>> make_dense_shards(const ExchangeContext& context,
                                                          Members members);
Result<std::unique_ptr<BucketExchange>> make_packed_shards(const ExchangeContext& context,
                                                           const Members& members);
// Of members whose `inner` is not null.
Result<std::unique_ptr<BucketExchange>> make_two_level_exchange(const ExchangeContext& context,
                                                                Path path, const Members& members);
// Of members of 16 bits: the exchange that they would have in fp32, over copies of theirs that are
// there while the bucket is in work.
Result<std::unique_ptr<BucketExchange>> make_widened_exchange(const ExchangeContext& context,
                                                              Path path, const Members& members);
// Of sparse members: Path::kOkTopk.
Result<std::unique_ptr<BucketExchange>> make_oktopk_exchange(const ExchangeContext& context,
                                                             const Members& members);
inline constexpr int kOkTopkPhases = 9;
// phases() of an exchange over all of `members`, on one level.
int phases_of(Path path, const Members& members);
// By form, levels and path. Several where it goes in strips.
Result<Exchanges> make_exchanges(const ExchangeContext& context, Path path, Members members);
// The same where context.strip_bytes is 0.
Result<std::unique_ptr<BucketExchange>> make_exchange(const ExchangeContext& context, Path path,
                                                      Members members);

}  // namespace gradwire
