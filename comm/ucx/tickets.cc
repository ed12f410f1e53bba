#include "comm/ucx/tickets.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>
#include <utility>

#include "base/text.h"
#include "comm/shm/peer_memory.h"

namespace gradwire::ucx {
namespace {

constexpr std::uint64_t kLent = std::uint64_t{1} << 63;
static_assert(std::endian::native == std::endian::little, "descriptors are sent as they lie");
// Of one peer's memory, per call: large enough to hide the system call, small enough for the cache
// and for others' turns. A part of a tensor, 512 KiB or a little more, is one piece.
constexpr std::size_t kReadPiece = 513 << 10;
// How long a device gets for what nobody waits for any more.
constexpr auto kCopiesTimeout = std::chrono::milliseconds(300);
// How long UCX gets to give back what a loss has ended.
constexpr auto kAbandonTimeout = std::chrono::milliseconds(300);

// Begins to receive what has this tag, but for the bits of `any`. Null, or the error, where it is
// over, without the callback.
ucs_status_ptr_t begin_receive(ucp_worker_h worker, ByteSpan to, gradwire::Device device,
                               std::uint64_t tag, std::uint64_t any,
                               ucp_tag_recv_nbx_callback_t done, void* user) {
  ucp_request_param_t params{};
  // 1.13.1 does not say the length of what completes at once: that must come through the callback.
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = done;
  params.user_data = user;
  params.memory_type = memory_type(device);
  return ucp_tag_recv_nbx(worker, to.data(), to.size(), tag, ~any, &params);
}

}  // namespace

Tickets::Tickets(Worker& worker, Peers& peers, std::size_t single_copy_bytes)
    : comm::Tickets<Tickets, Op>(peers.membership()),
      worker_(worker),
      peers_(peers),
      single_copy_bytes_(single_copy_bytes) {}

std::uint64_t Tickets::wire_tag(int source, std::uint64_t tag) const {
  return static_cast<std::uint64_t>(membership_.members().epoch()) << 56 |
         static_cast<std::uint64_t>(source) << 40 | tag;
}

void Tickets::hold(Op& op, Hold what) { op.holds |= what; }

void Tickets::release(Op& op, Hold what) {
  if ((op.holds & what) == 0) return;
  op.holds = static_cast<std::uint8_t>(op.holds & ~what);
  if (op.holds == 0) table_.close(*op.batch);
}

void Tickets::start(Op& op) {
  op.owner = this;
  if (op.peer == rank_) {
    hold(op, kSelf);
    start_self(op);
  } else if (op.kind == Transfer::Kind::kSend) {
    start_send(op);
  } else {
    start_recv(op);
  }
}

void Tickets::carry(Op& from, Op& to) {
  begin_copy({.op = &to, .of = Copy::Of::kSelf, .sender = &from}, from.data, from.device,
             to.data.first(from.data.size()), to.device);
}

void Tickets::start_send(Op& op) {
  const std::uint64_t tag = wire_tag(rank_, op.tag);
  const bool lends = op.data.size() > single_copy_bytes_ && peers_.reads_us(op.peer) &&
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
  send_bytes(op, std::as_bytes(std::span(&op.descriptor, 1)), {}, wire_tag(rank_, op.tag) | kLent);
}

// Nobody has it on loan, or waits for it, any more.
void Tickets::end_loan(Op& op) {
  if (loans_.erase(op.descriptor.id) > 0 && op.descriptor.magic == kAnnouncedMagic) --announced_;
  release(op, kLoan);
}

void Tickets::send_unsent() {
  for (const Unsent& one : std::exchange(unsent_, {})) {
    send_bytes(*one.op, one.data, one.device, one.tag);
    if (unsent_.empty() || unsent_.back().op != one.op) release(*one.op, kWire);
  }
}

// What waits for an endpoint keeps others to the same rank behind it.
void Tickets::send_bytes(Op& op, ConstByteSpan data, gradwire::Device device, std::uint64_t tag) {
  const bool behind =
      std::ranges::any_of(unsent_, [&](const Unsent& one) { return one.op->peer == op.peer; });
  const ucp_ep_h endpoint = behind ? nullptr : peers_.reach(op.peer);
  if (endpoint == nullptr) {
    hold(op, kWire);
    return unsent_.push_back({&op, data, device, tag});
  }
  hold(op, kRequest);
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.cb.send = on_sent;
  params.user_data = &op;
  params.memory_type = memory_type(device);
  const ucs_status_ptr_t request =
      ucp_tag_send_nbx(endpoint, data.data(), data.size(), tag, &params);
  if (UCS_PTR_IS_PTR(request)) {
    op.request = request;
    ++sending_;
  } else {
    sent(op, UCS_PTR_STATUS(request));
  }
}

void Tickets::start_recv(Op& op) {
  hold(op, kRequest);
  // A descriptor must fit, whatever the room is.
  const bool small = op.data.size() < sizeof op.descriptor;
  const ByteSpan descriptor = std::as_writable_bytes(std::span(&op.descriptor, 1));
  const ucs_status_ptr_t request = begin_receive(
      worker_.data(), small ? descriptor : op.data, small ? gradwire::Device{} : op.device,
      wire_tag(op.peer, op.tag), kLent, on_received<&Tickets::arrived>, &op);
  if (!UCS_PTR_IS_PTR(request)) {
    arrived(op, UCS_PTR_STATUS(request), {});
  } else if ((op.holds & kRequest) != 0) {
    op.request = request;
  }  // else the callback has run and given the request back
}

bool Tickets::has_message(int peer, std::uint64_t tag, std::uint64_t any) const {
  ucp_tag_recv_info_t info;
  return worker_.data() != nullptr &&
         ucp_tag_probe_nb(worker_.data(), wire_tag(peer, tag), ~(kLent | any), 0, &info) != nullptr;
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

template <auto End>
void Tickets::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                          void* op) {
  auto& self = *static_cast<Op*>(op);
  self.request = nullptr;
  const ucp_tag_recv_info_t copy = *info;
  ucp_request_free(request);
  (self.owner->*End)(self, status, copy);
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
      comm::refuse_long(op, info.length);
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
    comm::refuse_long(op, info.length);
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

bool Tickets::progress() {
  const bool copied = end_copies();
  if (!unsent_.empty()) send_unsent();
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

// What is announced: asked for, sent then, and how that ends where somebody gives up.

// The peer has a receive for it.
void Tickets::send_announced(Op& op) {
  op.announces = false;
  send_bytes(op, op.data, op.device, wire_tag(rank_, comm::announced_tag(op.descriptor.id)));
  end_loan(op);
}

// What callbacks of UCX left to be said.
void Tickets::answer() {
  for (const auto& [peer, credit] : std::exchange(credits_, {})) {
    peers_.tell(peer, {.kind = Control::Kind::kCredit, .id = credit});
  }
  for (std::size_t i = 0; i < reads_.size();) {
    Op& op = *reads_[i];
    if (op.descriptor.magic != kAnnouncedMagic) {
      ++i;
      continue;
    }
    reads_.erase(reads_.begin() + static_cast<std::ptrdiff_t>(i));
    receive_announced(op);
    release(op, kRead);
  }
}

// A receive has met an announcement: asks for the data where it has room.
void Tickets::receive_announced(Op& op) {
  const std::uint64_t id = op.descriptor.id;
  stats_.bytes_received += sizeof op.descriptor;
  const auto refuse = [&] { peers_.tell(op.peer, {.kind = Control::Kind::kTaken, .id = id}); };
  if (withdrawn_.erase({op.peer, id}) > 0) {  // that was answered
    if (op.batch->status.ok()) op.batch->status = comm::withdrawn_by(op.peer);
    return;
  }
  if (!op.batch->status.ok()) return refuse();
  if (op.descriptor.bytes > op.data.size()) {
    comm::refuse_long(op, op.descriptor.bytes);
    return refuse();
  }
  hold(op, kData);
  awaited_.push_back(&op);
  const ucs_status_ptr_t request =
      begin_receive(worker_.data(), op.data, op.device, wire_tag(op.peer, comm::announced_tag(id)),
                    0, on_received<&Tickets::got_announced>, &op);
  if (!UCS_PTR_IS_PTR(request)) return got_announced(op, UCS_PTR_STATUS(request), {});
  op.request = request;  // nothing can have come before kWant
  peers_.tell(op.peer, {.kind = Control::Kind::kWant, .id = id});
}

void Tickets::got_announced(Op& op, ucs_status_t status, const ucp_tag_recv_info_t& info) {
  std::erase(awaited_, &op);
  if (status == UCS_OK) {
    membership_.heard(op.peer);
    ++stats_.messages_received;
    stats_.bytes_received += info.length;
    op.arrived = info.length;
  } else if (status == UCS_ERR_MESSAGE_TRUNCATED) {
    comm::refuse_long(op, info.length);
  } else if (op.batch->status.ok()) {
    peers_.suspect(op.peer, status);
    hold(op, kReason);
  }
  release(op, kData);
}

// The peer has been asked for it, and sends it or withdraws it: what comes is thrown away.
void Tickets::drop_announced(int peer, std::uint64_t id) {
  drops_.push_back({this, peer, id});
  Drop& drop = drops_.back();
  const std::uint64_t tag = wire_tag(peer, comm::announced_tag(id));
  const ucs_status_ptr_t request = begin_receive(worker_.data(), {}, {}, tag, 0, on_dropped, &drop);
  if (!UCS_PTR_IS_PTR(request)) return drops_.pop_back();
  if (!drops_.empty() && &drops_.back() == &drop) drop.request = request;
}

void Tickets::on_dropped(void* request, ucs_status_t, const ucp_tag_recv_info_t*, void* drop) {
  const Drop& self = *static_cast<Drop*>(drop);
  self.owner->drops_.remove_if([&](const Drop& one) { return &one == &self; });
  ucp_request_free(request);
}

// If it is being read, kTaken follows by itself.
void Tickets::on_withdrawal(int peer, std::uint64_t id) {
  const auto is_it = [&](const Op* op) { return op->peer == peer && op->descriptor.id == id; };
  const auto read = std::ranges::find_if(reads_, is_it);
  if (read != reads_.end() && (*read)->descriptor.magic != kAnnouncedMagic) return;
  const auto awaited = std::ranges::find_if(awaited_, is_it);
  const auto drop = std::ranges::find_if(
      drops_, [&](const Drop& one) { return one.peer == peer && one.id == id; });
  if (awaited != awaited_.end()) {
    (*awaited)->descriptor.id = 0;  // there is nothing to be thrown away
    fail(*(*awaited)->batch, comm::withdrawn_by(peer));
  } else if (drop != drops_.end()) {
    ucp_request_cancel(worker_.data(), drop->request);
  } else {
    withdrawn_.emplace(peer, id);
  }
  peers_.tell(peer, {.kind = Control::Kind::kTaken, .id = id});
}

// What this rank copies itself: what others of its host lend it, and what a device has to.

// Both ends of it are held until end_copy(), which comes at once where no device has a part.
void Tickets::begin_copy(Copy what, ConstByteSpan from, gradwire::Device from_device, ByteSpan to,
                         gradwire::Device to_device) {
  hold(*what.op, kCopy);
  if (what.sender != nullptr) hold(*what.sender, kCopy);
  auto begun = device_.begin(from, from_device, to, to_device);
  if (!begun.has_value()) return end_copy(what, begun.error());
  what.copy = std::move(begun).value();
  if (!what.copy.adrift().ok() && what.op->batch->status.ok()) {
    what.op->batch->status = what.copy.adrift();
  }
  const auto over = what.copy.passed();
  if (!over.has_value() || over.value()) {
    return end_copy(what, over.has_value() ? Status() : over.error());
  }
  copies_.push_back(std::move(what));
}

void Tickets::end_copy(Copy& what, const Status& outcome) {
  device_.take_back(std::move(what.copy));
  Op& op = *what.op;
  if (what.of == Copy::Of::kDescriptor && op.batch->status.ok()) {
    begin_read(op, outcome);
  } else if (what.of == Copy::Of::kDescriptor && outcome.ok()) {
    // Withdrawn before anybody knew what is lent: it is not taken.
    peers_.tell(op.peer, {.kind = Control::Kind::kTaken, .id = op.descriptor.id});
  } else if (!outcome.ok() && op.batch->status.ok()) {
    op.batch->status = outcome;
  }
  // One that was withdrawn meanwhile is read no more.
  if (what.of == Copy::Of::kPiece && (op.holds & kRead) != 0) {
    outcome.ok() ? took_piece(op, what.bytes) : end_read(op);
  }
  if (what.sender != nullptr) release(*what.sender, kCopy);
  release(op, kCopy);
}

// True if any has ended.
bool Tickets::end_copies() {
  bool any = false;
  for (std::size_t left = copies_.size(); left > 0; --left) {
    Copy copy = std::move(copies_.front());
    copies_.pop_front();
    const auto over = copy.copy.passed();
    if (over.has_value() && !over.value()) {
      copies_.push_back(std::move(copy));
      continue;
    }
    end_copy(copy, over.has_value() ? Status() : over.error());
    any = true;
  }
  return any;
}

// The transport's end. What a device has not done by then it may still do.
void Tickets::settle_copies() {
  const Deadline until = std::chrono::steady_clock::now() + kCopiesTimeout;
  while (!copies_.empty() && std::chrono::steady_clock::now() < until) {
    if (!end_copies()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  give_up_copies();
}

void Tickets::give_up_copies() {
  for (Copy& copy : copies_) DeviceCopies::give_up(std::move(copy.copy));
  copies_.clear();
}

// Of what was lent, where it is known by now what that is. Else the receive ends with why, and so
// its operation, of whose end the lender hears.
void Tickets::begin_read(Op& op, const Status& known) {
  if (known.ok()) {
    hold(op, kRead);
    reads_.push_back(&op);
  } else if (op.batch->status.ok()) {
    op.batch->status = known.with_context(format("what rank %d lends, tag 0x%010llx", op.peer,
                                                 static_cast<unsigned long long>(op.tag)));
  }
}

// Of what was lent: to a device by way of memory of this rank.
Status Tickets::read_piece(Op& op, std::size_t bytes) {
  const pid_t pid = membership_.members().at(op.peer).pid;
  const std::uint64_t from = op.descriptor.address + op.arrived;
  const ByteSpan to = op.data.subspan(op.arrived, bytes);
  if (op.device.space != MemorySpace::kCuda) {
    GW_TRY(shm::read_process(pid, from, to));
    took_piece(op, bytes);
    return {};
  }
  bounce_.resize(std::max(bounce_.size(), bytes));
  const ByteSpan piece = std::span(bounce_).first(bytes);
  GW_TRY(shm::read_process(pid, from, piece));
  begin_copy({.op = &op, .of = Copy::Of::kPiece, .bytes = bytes}, piece, {}, to, op.device);
  return {};
}

void Tickets::took_piece(Op& op, std::size_t bytes) {
  op.arrived += bytes;
  stats_.bytes_received += bytes;
  if (op.arrived == op.descriptor.bytes) end_read(op);
}

void Tickets::end_read(Op& op) {
  std::erase(reads_, &op);
  peers_.tell(op.peer, {.kind = Control::Kind::kTaken, .id = op.descriptor.id});
  release(op, kRead);
}

bool Tickets::reading() const { return std::ranges::any_of(reads_, may_read); }

// One piece of the oldest message that was lent to this rank, and for which no device copies now.
void Tickets::read_lent() {
  Op& op = **std::ranges::find_if(reads_, may_read);
  const Descriptor& lent = op.descriptor;
  const bool withdrawn = withdrawn_.erase({op.peer, lent.id}) > 0;  // every rank counts its own
  if (lent.magic != kLentMagic || withdrawn) {
    if (op.batch->status.ok()) {
      op.batch->status =
          withdrawn ? comm::withdrawn_by(op.peer)
                    : Status(Code::kCorruptPayload, format("rank %d sent no descriptor", op.peer));
    }
    return end_read(op);
  }
  if (lent.bytes > op.data.size()) {
    comm::refuse_long(op, lent.bytes);
    return end_read(op);
  }
  const std::size_t piece = std::min<std::size_t>(kReadPiece, lent.bytes - op.arrived);
  const Status outcome = read_piece(op, piece);
  if (outcome.ok()) return;
  peers_.suspect(op.peer, std::string(outcome.message()));
  hold(op, kReason);
  end_read(op);
}

// How tickets end that do not end well.

void Tickets::fail(Batch& batch, const Status& why) {
  const Ticket ticket{batch.number};
  const auto known = [&](const Failing& one) { return one.ticket == ticket; };
  if (std::ranges::none_of(failing_, known)) {
    failing_.push_back({ticket, std::chrono::steady_clock::now() + kAbandonTimeout});
  }
  comm::Tickets<Tickets, Op>::fail(batch, why);
}

void Tickets::withdraw(Op& op) {
  const bool live = op.peer == rank_ || membership_.live(op.peer);
  if ((op.holds & kSelf) != 0) {
    self_.remove(op);
    release(op, kSelf);
  }
  if ((op.holds & kRead) != 0) end_read(op);
  const bool unsent = std::erase_if(unsent_, [&](const Unsent& one) { return one.op == &op; }) > 0;
  release(op, kWire);
  if ((op.holds & kLoan) != 0 && live && !unsent) {
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
  std::erase_if(failing_, [&](const Failing& one) {
    Batch* const batch = table_.find(one.ticket);
    if (batch == nullptr || batch->open == 0) return true;
    if (now < one.until) return false;
    for (const Op& op : batch->ops) {
      const bool live = op.peer == rank_ || membership_.live(op.peer);
      const bool written =
          op.kind == Transfer::Kind::kRecv && (op.holds & (kRequest | kCopy | kRead | kData)) != 0;
      if (op.holds != 0 && (live || written)) return false;
    }
    table_.settle(*batch);
    return true;
  });
}

void Tickets::sever() {
  comm::Tickets<Tickets, Op>::sever();
  peers_.drop_data();
  settle_copies();
  // Nothing is done by UCX from now on, and it calls nobody back.
  table_.end_all([](Batch& batch) {
    for (Op& op : batch.ops) {
      op.request = nullptr;
      op.holds = 0;
    }
  });
  failing_.clear();
  loans_.clear();
  announced_ = 0;
  awaited_.clear();
  drops_.clear();
  credits_.clear();
  reads_.clear();
  unsent_.clear();
  withdrawn_.clear();
  self_ = {};
  sending_ = 0;
}

}  // namespace gradwire::ucx
