// What this rank copies itself: what others of its host lend it, and what a device has to.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/text.h"
#include "comm/shm/peer_memory.h"
#include "comm/ucx/tickets.h"

namespace gradwire::ucx {
namespace {

// Of one peer's memory, per call: large enough to hide the system call, small enough for the cache
// and for others' turns. A part of a tensor, 512 KiB or a little more, is one piece.
constexpr std::size_t kReadPiece = 513 << 10;
// How long a device gets for what nobody waits for any more.
constexpr auto kCopiesTimeout = std::chrono::milliseconds(300);

}  // namespace

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
  const pid_t pid = options_.pids[static_cast<std::size_t>(op.peer)];
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
          withdrawn ? withdrawn_by(op.peer)
                    : Status(Code::kCorruptPayload, format("rank %d sent no descriptor", op.peer));
    }
    return end_read(op);
  }
  if (lent.bytes > op.data.size()) {
    too_long(op, lent.bytes);
    return end_read(op);
  }
  const std::size_t piece = std::min<std::size_t>(kReadPiece, lent.bytes - op.arrived);
  const Status outcome = read_piece(op, piece);
  if (outcome.ok()) return;
  peers_.suspect(op.peer, std::string(outcome.message()));
  hold(op, kReason);
  end_read(op);
}

}  // namespace gradwire::ucx
