#include "comm/ucx/tickets.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace gradwire::ucx {
namespace {

using State = comm::Membership::State;

constexpr std::uint64_t kLent = std::uint64_t{1} << 63;
static_assert(std::endian::native == std::endian::little, "descriptors are sent as they lie");

}  // namespace

Tickets::Tickets(Worker& worker, Peers& peers, TicketsOptions options)
    : worker_(worker),
      peers_(peers),
      membership_(peers.membership()),
      options_(std::move(options)),
      windows_(options_.pids.size(),
               comm::FlowWindow(static_cast<int>(options_.pids.size()), options_.epoch)) {}

std::uint64_t Tickets::wire_tag(int source, std::uint64_t tag) const {
  return static_cast<std::uint64_t>(options_.epoch & 0x7f) << 56 |
         static_cast<std::uint64_t>(source) << 40 | tag;
}

std::optional<Status> Tickets::unreachable(std::span<const Transfer> transfers) {
  for (const Transfer& transfer : transfers) {
    if (transfer.peer == options_.rank) continue;
    const State state = membership_.state(transfer.peer);
    // What a closed peer sent before it closed can still be received.
    const bool gone = state == State::kLost ||
                      (state == State::kClosed && transfer.kind == Transfer::Kind::kSend);
    if (!gone) continue;
    if (state == State::kClosed) membership_.need(transfer.peer);
    return membership_.why(transfer.peer);
  }
  return std::nullopt;
}

Ticket Tickets::post(std::span<const Transfer> transfers) {
  const std::uint64_t ticket = next_ticket_++;
  Batch& batch = *(batches_[ticket] = std::make_unique<Batch>());
  const std::optional<Status> why = severed_ ? cancelled() : unreachable(transfers);
  if (why) {
    batch.status = *why;
    ++settled_;
    return Ticket{ticket};
  }
  batch.ops.resize(transfers.size());
  batch.open = batch.ops.size() + 1;  // one for this call: nothing settles before all have started
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    Op& op = batch.ops[i];
    op.batch = &batch;
    op.owner = this;
    op.kind = transfers[i].kind;
    op.peer = transfers[i].peer;
    op.tag = transfers[i].tag.bits();
    op.data = transfers[i].data;
    op.device = transfers[i].device;
  }
  // Receives first: what meets no receive is copied twice.
  for (Op& op : batch.ops) {
    if (op.kind == Transfer::Kind::kRecv) start(op);
  }
  for (Op& op : batch.ops) {
    if (op.kind == Transfer::Kind::kSend) start(op);
  }
  for (const Op& op : batch.ops) {
    if (op.holds == 0 || op.peer == options_.rank) continue;
    if (membership_.state(op.peer) == State::kLive) continue;
    if (membership_.state(op.peer) == State::kClosed) membership_.need(op.peer);
    fail(batch, membership_.why(op.peer));
  }
  if (--batch.open == 0) ++settled_;
  return Ticket{ticket};
}

void Tickets::hold(Op& op, Hold what) { op.holds |= what; }

void Tickets::release(Op& op, Hold what) {
  if ((op.holds & what) == 0) return;
  op.holds = static_cast<std::uint8_t>(op.holds & ~what);
  if (op.holds == 0 && --op.batch->open == 0 && !op.batch->abandoned) ++settled_;
}

void Tickets::start(Op& op) {
  if (op.peer == options_.rank) {
    start_self(op);
  } else if (op.kind == Transfer::Kind::kSend) {
    start_send(op);
  } else {
    start_recv(op);
  }
}

void Tickets::start_self(Op& op) {
  hold(op, kSelf);
  Op* partner = self_.meet(op);
  if (partner == nullptr) return;
  Op& from = op.kind == Transfer::Kind::kSend ? op : *partner;
  Op& to = op.kind == Transfer::Kind::kSend ? *partner : op;
  if (from.data.size() > to.data.size()) {
    too_long(to, from.data.size());
  } else {
    to.arrived = from.data.size();
    begin_copy({.op = &to, .of = Copy::Of::kSelf, .sender = &from}, from.data, from.device,
               to.data.first(from.data.size()), to.device);
  }
  release(from, kSelf);
  release(to, kSelf);
}

void Tickets::start_send(Op& op) {
  const std::uint64_t tag = wire_tag(options_.rank, op.tag);
  const bool lends = op.data.size() > options_.single_copy_bytes && peers_.reads_us(op.peer) &&
                     op.device.space != MemorySpace::kCuda;
  if (lends) return offer(op, kLentMagic, reinterpret_cast<std::uintptr_t>(op.data.data()));
  if (window(op.peer).admit(op.data.size())) return send_bytes(op, op.data, op.device, tag);
  ++announced_;
  op.announces = true;
  offer(op, kAnnouncedMagic, 0);
}

// Of a message that stays here for now: its descriptor goes in its place.
void Tickets::offer(Op& op, std::uint64_t magic, std::uint64_t address) {
  op.descriptor = {magic, next_loan_++, address, op.data.size()};
  loans_.emplace(op.descriptor.id, &op);
  hold(op, kLoan);
  send_bytes(op, std::as_bytes(std::span(&op.descriptor, 1)), {},
             wire_tag(options_.rank, op.tag) | kLent);
}

// Nobody has it on loan, or waits for it, any more.
void Tickets::end_loan(Op& op) {
  if (loans_.erase(op.descriptor.id) > 0 && op.descriptor.magic == kAnnouncedMagic) --announced_;
  release(op, kLoan);
}

void Tickets::send_bytes(Op& op, ConstByteSpan data, gradwire::Device device, std::uint64_t tag) {
  hold(op, kRequest);
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.cb.send = on_sent;
  params.user_data = &op;
  params.memory_type = memory_type(device);
  const ucs_status_ptr_t request =
      ucp_tag_send_nbx(peers_.data_endpoint(op.peer), data.data(), data.size(), tag, &params);
  if (UCS_PTR_IS_PTR(request)) {
    op.request = request;
    ++sending_;
  } else {
    sent(op, UCS_PTR_STATUS(request));
  }
}

void Tickets::start_recv(Op& op) {
  hold(op, kRequest);
  ucp_request_param_t params{};
  // 1.13.1 does not say the length of what completes at once: that must come through the callback.
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = on_received;
  params.user_data = &op;
  // A descriptor must fit, whatever the room is.
  const bool small = op.data.size() < sizeof op.descriptor;
  params.memory_type = memory_type(small ? gradwire::Device{} : op.device);
  const ucs_status_ptr_t request = ucp_tag_recv_nbx(
      worker_.data(), small ? static_cast<void*>(&op.descriptor) : op.data.data(),
      small ? sizeof op.descriptor : op.data.size(), wire_tag(op.peer, op.tag), ~kLent, &params);
  if (!UCS_PTR_IS_PTR(request)) {
    arrived(op, UCS_PTR_STATUS(request), {});
  } else if ((op.holds & kRequest) != 0) {
    op.request = request;
  }  // else the callback has run and given the request back
}

void Tickets::on_sent(void* request, ucs_status_t status, void* op) {
  auto& self = *static_cast<Op*>(op);
  self.request = nullptr;
  ucp_request_free(request);
  --self.owner->sending_;
  self.owner->sent(self, status);
}

void Tickets::sent(Op& op, ucs_status_t status) {
  if (status == UCS_OK) {
    ++stats_.messages_sent;
    stats_.bytes_sent += op.announces ? sizeof op.descriptor : op.data.size();
  } else {
    peers_.suspect(op.peer, status);
    if (op.batch->status.ok()) hold(op, kReason);
  }
  const bool wanted = std::exchange(op.wanted, false) && op.batch->status.ok();
  release(op, kRequest);
  if (wanted) send_announced(op);
}

void Tickets::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                          void* op) {
  auto& self = *static_cast<Op*>(op);
  self.request = nullptr;
  const ucp_tag_recv_info_t copy = *info;
  ucp_request_free(request);
  self.owner->arrived(self, status, copy);
}

void Tickets::arrived(Op& op, ucs_status_t status, const ucp_tag_recv_info_t& info) {
  const bool small = op.data.size() < sizeof op.descriptor;
  if (status == UCS_OK) {
    membership_.heard(op.peer);
    ++stats_.messages_received;
    if ((info.sender_tag & kLent) != 0 && info.length == sizeof op.descriptor) {
      const auto here = std::as_writable_bytes(std::span(&op.descriptor, 1));
      if (small) {
        begin_read(op, {});
      } else {
        begin_copy({.op = &op, .of = Copy::Of::kDescriptor}, op.data.first(here.size()), op.device,
                   here, {});
      }
    } else if (info.length > op.data.size()) {
      took(op.peer, info.length);
      too_long(op, info.length);
    } else {
      took(op.peer, info.length);
      const auto here = std::as_bytes(std::span(&op.descriptor, 1));
      if (small) begin_copy({.op = &op}, here.first(info.length), {}, op.data, op.device);
      op.arrived = info.length;
      stats_.bytes_received += info.length;
    }
  } else if (status == UCS_ERR_MESSAGE_TRUNCATED) {
    ++stats_.messages_received;
    took(op.peer, info.length);
    too_long(op, info.length);
  } else if (op.batch->status.ok()) {
    peers_.suspect(op.peer, status);
    hold(op, kReason);
  }
  release(op, kRequest);
}

void Tickets::took(int peer, std::size_t bytes) {
  window(peer).took(comm::FlowWindow::charge(bytes));
  if (const auto credit = window(peer).credit()) credits_.emplace_back(peer, *credit);
}

void Tickets::too_long(Op& op, std::size_t bytes) {
  if (!op.batch->status.ok()) return;
  op.batch->status =
      Status(Code::kRankMismatch,
             format("message of %zu bytes from rank %d, tag 0x%010llx: the receive takes %zu",
                    bytes, op.peer, static_cast<unsigned long long>(op.tag), op.data.size()));
}

bool Tickets::progress() {
  const bool copied = end_copies();
  if (!credits_.empty() || !reads_.empty()) answer();
  const bool busy = reading();
  if (busy) read_lent();
  if (!failing_.empty()) abandon(std::chrono::steady_clock::now());
  return busy || copied;
}

void Tickets::on_message(const Control& message) {
  if (message.kind == Control::Kind::kCredit) return window(message.from).confirm(message.id);
  if (message.kind != Control::Kind::kWithdraw) {
    const auto loan = loans_.find(message.id);
    if (loan == loans_.end() || loan->second->peer != message.from) return;
    Op& op = *loan->second;
    if (message.kind == Control::Kind::kTaken) return end_loan(op);
    // One that was withdrawn is answered by kTaken. UCX may not have let go of the announcement.
    if (op.descriptor.magic != kAnnouncedMagic || !op.batch->status.ok()) return;
    op.wanted = (op.holds & kRequest) != 0;
    if (!op.wanted) send_announced(op);
    return;
  }
  on_withdrawal(message.from, message.id);
}

std::optional<Status> Tickets::poll(Ticket ticket) {
  const auto found = batches_.find(static_cast<std::uint64_t>(ticket));
  if (found == batches_.end()) {
    return Status(Code::kInvalidArgument, format("no ticket %llu: unknown or already reported",
                                                 static_cast<unsigned long long>(ticket)));
  }
  Batch& batch = *found->second;
  if (batch.open > 0 && !batch.abandoned) return std::nullopt;
  Status outcome = batch.status;
  std::erase(failing_, &batch);
  if (batch.abandoned && batch.open > 0) graveyard_.push_back(std::move(found->second));
  batches_.erase(found);
  return outcome;
}

std::size_t Tickets::received(Ticket ticket, std::size_t index) const {
  const auto found = batches_.find(static_cast<std::uint64_t>(ticket));
  if (found == batches_.end() || index >= found->second->ops.size()) return 0;
  return found->second->ops[index].arrived;
}

}  // namespace gradwire::ucx
