// Runs any Schedule over any Transport without blocking, cut as its Layout says.
//
// A few cuts are in flight at once, one in each slot, so that one segment's reduction overlaps
// another's transfer, and what arrives to be reduced passes through a slot's scratch memory that
// stays in the cache. Slot s runs its cuts on tag channel s. Results depend on none of this: an
// element is combined in the order that its cell's schedule says, however the cell is cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/workers.h"
#include "collectives/engine/layout.h"
#include "collectives/engine/pair_ledger.h"
#include "collectives/engine/runnable.h"
#include "collectives/engine/scratch_pool.h"
#include "collectives/engine/staging.h"
#include "gradwire/schedule.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"
#include "gradwire/transport.h"

namespace gradwire {

// The memory that a schedule's ranges refer to. kIn and kOut may be the same.
struct Operands {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  // As the transport gets them: of a device where it takes that memory, and nothing is reduced.
  Device in_device = {};
  Device out_device = {};
  Device scratch_device = {};
  ReduceOp op = ReduceOp::kSum;
  Stream stream = {};
  int mean_of = 0;                        // what a mean divides by; 0: the schedule's ranks
  std::shared_ptr<Staging> staging = {};  // of an operation on a device, else null
  Queue queue = Queue::kBulk;             // of its messages
  std::shared_ptr<Workers> workers = {};  // that share reductions; null: nobody else
};

// Whom the schedule's ranks are, and which messages are this operation's.
struct Route {
  std::shared_ptr<const std::vector<int>> group;  // job ranks, by group rank
  std::uint32_t communicator = 0;
  std::uint64_t operation = 0;
  std::uint32_t first_channel = 0;
  PostingTurn turn = {};  // of a send or recv with a tag
};

// One operation on its way. Used by one thread at a time; the operands are lent until it is done,
// or cancelled and settled.
class Execution final : public Runnable {
 public:
  Execution(std::shared_ptr<const Layout> layout, const Operands& operands, Route route);

  // Posts what can be posted and looks at what was; true if anything moved. After an error call
  // cancel(). kRankMismatch names the peer and both byte counts.
  Result<bool> advance(Transport& transport, ScratchPool& pool) override;
  bool done() const override { return started_ && open_slots_ == 0; }

  // Asks for the end of every message in flight; settled() then says whether all have ended.
  void cancel(Transport& transport) override;
  bool settled(Transport& transport) override;
  // Hands scratch memory back; after done() or settled().
  void release(ScratchPool& pool) override;

  // Job ranks whose message or receipt is missing now, ascending.
  std::vector<int> waiting_for(const Transport& transport) const override;
  const Route& route() const override { return route_; }
  // Of messages, so far.
  std::uint64_t bytes_sent() const override { return bytes_sent_; }
  Awaited awaited() const override;
  bool single() const override { return single_ && started_; }

 private:
  struct Slot {
    int cut = 0;  // or stretch
    std::size_t round = 0;
    std::optional<Ticket> ticket;
    std::vector<Transfer> batch;       // of the ticket
    std::vector<std::size_t> arrived;  // bytes, by transfer
    std::vector<const Step*> actions;  // of the round that ends
    Buffer scratch;
    bool finished = false;
    // Of operations on a device: whether the cut's operands are here, and its results there.
    bool entered = false;
    bool left = false;
    bool awaits_point = false;
    bool untracked = false;  // nobody can say when the device is through with it
    std::unique_ptr<DevicePoint> point = {};
  };

  Status start(ScratchPool& pool);
  bool all_posted() const;
  TensorView view(const Place& place, const Slot& slot) const;
  TensorView arrival(const Step& step, const Slot& slot) const;
  Result<bool> advance_slot(Slot& slot, std::uint32_t channel, Transport& transport);
  Status post_round(Slot& slot, std::uint32_t channel, Transport& transport);
  Status check_lengths(const Slot& slot) const;
  Status finish_round(Slot& slot);
  Status combine(std::span<const Step* const> action, const Slot& slot);
  Status fold_with_workers(std::span<const ConstTensorView> sources, TensorView to,
                           std::optional<double> factor) const;
  Status copy(const Step& step, Slot& slot);

  Result<bool> follow_device(Slot& slot);
  Status enter(Slot& slot);
  Status leave(Slot& slot);
  Status fill(Slot& slot);
  static Status await_copies(const Status& copied, Slot& slot, const Stream& stream);
  static Status await_point(Slot& slot, const Stream& stream);
  TouchedCells touched(const Slot& slot) const;
  Range callers_elems(const Place& cell, const Slot& slot) const;
  template <typename Copy>
  Status each_staged(const std::vector<Place>& cells, Slot& slot, const Stream& stream,
                     const Copy& copy) const;
  static bool settled_on_device(Slot& slot);

  std::shared_ptr<const Layout> layout_;
  Operands operands_;
  Route route_;
  int cuts_;
  bool single_;
  std::vector<Slot> slots_;
  bool started_ = false;
  bool filled_ = false;  // what the staging has to be filled
  std::size_t open_slots_ = 0;
  // Of the turn: bytes that were combined, and whether it ended because they were many. The next
  // one begins with another slot.
  std::size_t combined_ = 0;
  bool has_more_ = false;
  std::size_t first_slot_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace gradwire
