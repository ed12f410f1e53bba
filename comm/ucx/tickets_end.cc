// How tickets end that do not end well.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "comm/ucx/tickets.h"

namespace gradwire::ucx {
namespace {

using State = comm::Membership::State;

// How long UCX gets to give back what a loss has ended.
constexpr auto kAbandonTimeout = std::chrono::milliseconds(300);

}  // namespace

void Tickets::on_losses() {
  for (auto& [ticket, batch] : batches_) {
    if (batch->open == 0) continue;
    for (const Op& op : batch->ops) {
      if (op.holds == 0 || op.peer == options_.rank) continue;
      const State state = membership_.state(op.peer);
      if (state == State::kLive) continue;
      if (state == State::kClosed) membership_.need(op.peer);
      fail(*batch, membership_.why(op.peer));
      break;
    }
  }
}

// A batch settles as a whole: all that can be ended is.
void Tickets::fail(Batch& batch, const Status& why) {
  if (batch.status.ok()) batch.status = why;
  if (!batch.abandon_at) {
    batch.abandon_at = std::chrono::steady_clock::now() + kAbandonTimeout;
    failing_.push_back(&batch);
  }
  for (Op& op : batch.ops) {
    if (op.holds != 0) withdraw(op);
  }
}

void Tickets::withdraw(Op& op) {
  const bool live = op.peer == options_.rank || membership_.state(op.peer) == State::kLive;
  if ((op.holds & kSelf) != 0) {
    self_.remove(op);
    release(op, kSelf);
  }
  if ((op.holds & kRead) != 0) {
    std::erase(reads_, &op);
    peers_.tell(op.peer, {.kind = Control::Kind::kTaken, .id = op.descriptor.id});
    release(op, kRead);
  }
  if ((op.holds & kLoan) != 0 && live) {
    peers_.tell(op.peer, {.kind = Control::Kind::kWithdraw, .id = op.descriptor.id});
  } else if ((op.holds & kLoan) != 0) {
    end_loan(op);
  }
  release(op, kReason);
  const bool asked = (op.holds & kData) != 0 && op.descriptor.id != 0;
  // The callback may come from within this call.
  if (op.request != nullptr && op.kind == Transfer::Kind::kRecv) {
    ucp_request_cancel(worker_.data(), op.request);
  }
  if (asked && (op.holds & kData) == 0 && live) drop_announced(op.peer, op.descriptor.id);
}

// What UCX only reads, or a lost peer was lent, is nobody's business any more. A receive that UCX
// has begun to fill is: the rest may come when the peer goes on, so it stays open until sever().
void Tickets::abandon(Deadline now) {
  std::erase_if(failing_, [&](Batch* batch) {
    if (batch->open == 0) return true;
    if (now < *batch->abandon_at) return false;
    for (const Op& op : batch->ops) {
      const bool live = op.peer == options_.rank || membership_.live(op.peer);
      const bool written =
          op.kind == Transfer::Kind::kRecv && (op.holds & (kRequest | kCopy | kRead | kData)) != 0;
      if (op.holds != 0 && (live || written)) return false;
    }
    batch->abandoned = true;
    ++settled_;
    return true;
  });
}

void Tickets::sever() {
  severed_ = true;
  cancel_all();
  peers_.drop_data();
  settle_copies();
  // Nothing is done by UCX from now on, and it calls nobody back.
  for (auto& [ticket, batch] : batches_) {
    if (batch->open == 0) continue;
    for (Op& op : batch->ops) {
      op.request = nullptr;
      op.holds = 0;
    }
    batch->open = 0;
    if (!batch->abandoned) ++settled_;
  }
  graveyard_.clear();
  failing_.clear();
  loans_.clear();
  announced_ = 0;
  awaited_.clear();
  drops_.clear();
  credits_.clear();
  reads_.clear();
  withdrawn_.clear();
  self_ = {};
  sending_ = 0;
}

void Tickets::restart(std::uint8_t epoch) {
  options_.epoch = epoch;
  for (comm::FlowWindow& window : windows_) window.restart(epoch);
  severed_ = false;
}

Status Tickets::withdrawn_by(int peer) {
  return {Code::kCancelled, format("rank %d withdrew its message", peer)};
}

Status Tickets::cancelled() const {
  return {Code::kCancelled, format("rank %d cancelled the transfer", options_.rank)};
}

void Tickets::cancel(Ticket ticket) {
  const auto found = batches_.find(static_cast<std::uint64_t>(ticket));
  if (found == batches_.end() || found->second->open == 0) return;
  fail(*found->second, cancelled());
}

void Tickets::cancel_all() {
  for (auto& [ticket, batch] : batches_) {
    if (batch->open > 0) {
      fail(*batch, Status(Code::kCancelled, format("rank %d closed", options_.rank)));
    }
  }
}

bool Tickets::any_open() const {
  return std::any_of(batches_.begin(), batches_.end(), [](const auto& entry) {
    return entry.second->open > 0 && !entry.second->abandoned;
  });
}

}  // namespace gradwire::ucx
