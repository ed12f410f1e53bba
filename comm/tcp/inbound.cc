#include "comm/tcp/inbound.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "comm/members.h"

namespace gradwire::tcp {
namespace {

constexpr std::uint64_t kTagBits = (std::uint64_t{1} << 40) - 1;
constexpr int kEpochShift = 56;
constexpr std::uint64_t kLongestMessage = std::uint64_t{1} << 48;
// Messages up to this are kept at once when no receive waits for them; longer ones wait a moment,
// since their receive is often posted as soon as this rank has dealt with what came before.
constexpr std::size_t kShort = 4096;
constexpr auto kGrace = std::chrono::microseconds(200);
// A message without a receive gets its memory as it arrives, never because of its header alone.
constexpr std::size_t kGrowth = std::size_t{256} << 10;

}  // namespace

void Inbound::open(std::shared_ptr<rendezvous::Fd> fd) {
  fd_ = std::move(fd);
  readable_ = true;
}

void Inbound::post(Op& op, std::vector<Op*>& done) {
  paused_ = false;  // somebody waits now
  const auto found = std::ranges::find(kept_, op.tag, &Message::tag);
  if (found == kept_.end()) return waiting_.push(op);
  if (found->id != 0) {
    const Message announced = std::move(*found);
    kept_.erase(found);
    return want(op, announced.id, announced.bytes, done);
  }
  const bool complete = found->data.size() == found->bytes;
  const bool fits = found->bytes <= op.data.size();
  kept_bytes_ -= found->bytes;
  if (!found->met) met_ += comm::FlowWindow::charge(found->bytes);
  if (!fits) {
    comm::refuse_long(op, found->bytes);
  } else if (!found->data.empty()) {
    std::memcpy(op.data.data(), found->data.data(), found->data.size());
    op.arrived = found->data.size();
  }
  if (!complete) {  // it is the one that is being read
    target_ = fits ? Target::kOp : Target::kNowhere;
    op_ = fits ? &op : nullptr;
  }
  kept_.erase(found);
  if (complete || !fits) done.push_back(&op);
}

void Inbound::withdraw(Op& op) {
  if (op_ != &op) return waiting_.remove(op);
  op_ = nullptr;
  if (target_ == Target::kNowhere) return;
  // Announced data is sent to this receive alone.
  if (comm::is_announced_tag(op.tag)) {
    target_ = Target::kNowhere;
    return;
  }
  // What has been read of its message waits for the next receive.
  const auto begin = op.data.begin();
  message_ =
      kept_.insert(kept_.end(), {.tag = op.tag,
                                 .bytes = op.arrived + left_,
                                 .data = {begin, begin + static_cast<std::ptrdiff_t>(op.arrived)},
                                 .met = true});
  kept_bytes_ += message_->bytes;
  target_ = Target::kMessage;
}

bool Inbound::has_message(std::uint64_t tag, std::uint64_t any) const {
  const auto is = [&](std::uint64_t one) { return ((one ^ tag) & ~any) == 0; };
  return (header_ && is(header_->tag ^ prefix_)) ||
         std::ranges::any_of(kept_, [&](const Message& message) { return is(message.tag); });
}

// A receive has met an announcement: from now on it waits for the data alone.
void Inbound::want(Op& op, std::uint64_t id, std::size_t bytes, std::vector<Op*>& done) {
  const bool fits = bytes <= op.data.size();
  answers_.push_back({id, fits});
  if (fits) {
    op.tag = comm::announced_tag(id);
    op.id = id;
    waiting_.push(op);
  } else {
    comm::refuse_long(op, bytes);
    done.push_back(&op);
  }
}

// Whether a message that no receive waits for is taken in now.
bool Inbound::may_keep(std::size_t bytes, Deadline now) {
  if (draining_) return true;
  const bool room = kept_bytes_ + bytes <= kRoom;
  if (!room && waiting_.empty()) {
    paused_ = true;
    return false;
  }
  if (bytes <= kShort) return true;
  if (!deferred_since_) deferred_since_ = now;
  return now - *deferred_since_ >= kGrace;
}

void Inbound::rebuild(std::uint64_t prefix) {
  prefix_ = prefix;
  kept_.clear();
  kept_bytes_ = 0;
  answers_.clear();
  met_ = 0;
  if (target_ == Target::kMessage) target_ = Target::kNowhere;
  paused_ = false;
  readable_ = true;
}

// Whether the tag is of this peer, in some generation.
bool Inbound::belongs(std::uint64_t tag) const {
  constexpr std::uint64_t kSource = ((std::uint64_t{1} << kEpochShift) - 1) & ~kTagBits;
  return (tag & kSource) == (prefix_ & kSource);
}

// What an announcement says; nothing of its message follows.
void Inbound::begin_announced(std::uint64_t tag, std::vector<Op*>& done) {
  const auto bytes = static_cast<std::size_t>(header_->bytes & ~kAnnounces);
  if (Op* op = waiting_.take(tag)) {
    want(*op, announced_, bytes, done);
  } else {
    kept_.push_back({.tag = tag, .bytes = bytes, .data = {}, .id = announced_});
  }
}

// Finds a place for the message whose header has come; false: it has to wait.
bool Inbound::begin(std::vector<Op*>& done, Deadline now) {
  const std::uint64_t tag = header_->tag & kTagBits;
  const bool announces = (header_->bytes & kAnnounces) != 0;
  const auto bytes = announces ? 0 : static_cast<std::size_t>(header_->bytes);
  const std::uint64_t epoch = header_->tag >> kEpochShift, own = prefix_ >> kEpochShift;
  if (comm::Members::is_later(epoch, own)) {  // the peer has been rebuilt already
    paused_ = true;
    return false;
  }
  // A receive of announced data may have been withdrawn since it asked.
  const bool unwanted = epoch != own || (comm::is_announced_tag(tag) && !waiting_.has(tag));
  if (announces || unwanted) {
    if (!unwanted) begin_announced(tag, done);
    target_ = Target::kNowhere;
    left_ = bytes;
    header_.reset();
    return true;
  }
  if (Op* op = waiting_.take(tag)) {
    op->arrived = 0;
    if (!comm::is_announced_tag(tag)) met_ += comm::FlowWindow::charge(bytes);
    if (bytes <= op->data.size()) {
      target_ = Target::kOp;
    } else {
      comm::refuse_long(*op, bytes);
      target_ = Target::kNowhere;
    }
    op_ = op;
  } else if (may_keep(bytes, now)) {
    message_ = kept_.insert(kept_.end(), {.tag = tag, .bytes = bytes, .data = {}});
    kept_bytes_ += bytes;
    target_ = Target::kMessage;
  } else {
    return false;
  }
  left_ = bytes;
  header_.reset();
  deferred_since_.reset();
  return true;
}

// Room for what comes next of the message that is being read; where it has to be made, for `most`.
ByteSpan Inbound::target_memory(std::size_t most) {
  if (target_ == Target::kOp) return op_->data.subspan(op_->arrived, left_);
  if (target_ != Target::kMessage) return {};
  std::vector<std::byte>& data = message_->data;
  const std::size_t have = data.size();
  data.resize(have + std::min(left_, most));
  return ByteSpan(data).subspan(have);
}

// So much of target_memory() has been written.
void Inbound::filled(std::size_t bytes) {
  left_ -= bytes;
  if (target_ == Target::kOp) op_->arrived += bytes;
  if (target_ == Target::kMessage) message_->data.resize(message_->bytes - left_);
}

void Inbound::finish(std::vector<Op*>& done) {
  // A refused op (kNowhere) is done too; after post() refused it, it is there already.
  if (op_ != nullptr) done.push_back(op_);
  op_ = nullptr;
  target_ = Target::kNone;
}

// Moves what is staged to where it belongs.
void Inbound::take(std::vector<Op*>& done) {
  const std::size_t bytes = std::min(left_, stage_end_ - stage_begin_);
  const std::byte* from = stage_.data() + stage_begin_;
  if (target_ == Target::kNowhere) {
    left_ -= bytes;
  } else if (bytes > 0) {
    std::memcpy(target_memory(bytes).data(), from, bytes);
    filled(bytes);
  }
  stage_begin_ += bytes;
  if (left_ == 0) finish(done);
}

// False when it has not come whole, or is none.
bool Inbound::parse_header() {
  const std::size_t staged = stage_end_ - stage_begin_;
  Header header;
  if (staged < sizeof header) return false;
  std::memcpy(&header, stage_.data() + stage_begin_, sizeof header);
  const bool announces = (header.bytes & kAnnounces) != 0;
  const std::size_t whole = sizeof header + (announces ? sizeof announced_ : 0);
  corrupt_ = !belongs(header.tag) || (header.bytes & ~kAnnounces) > kLongestMessage;
  if (!corrupt_ && staged < whole) return false;
  header_ = header;
  if (corrupt_) return false;
  if (announces) {
    std::memcpy(&announced_, stage_.data() + stage_begin_ + sizeof header, sizeof announced_);
  }
  stage_begin_ += whole;
  return true;
}

// Goes through what is staged; true when more has to be read from the connection.
bool Inbound::parse(std::vector<Op*>& done, Deadline now) {
  while (true) {
    if (target_ == Target::kNone && !header_) {
      if (!parse_header()) return !corrupt_;
    }
    if (target_ == Target::kNone && !begin(done, now)) return false;
    take(done);
    if (target_ != Target::kNone) return true;
  }
}

// One read: the rest of the message goes to its place, what follows to the stage.
Inbound::Outcome Inbound::fill(std::size_t most) {
  if (stage_begin_ > 0) {
    std::memmove(stage_.data(), stage_.data() + stage_begin_, stage_end_ - stage_begin_);
    stage_end_ -= stage_begin_;
    stage_begin_ = 0;
  }
  ByteSpan direct = target_memory(kGrowth);
  const std::size_t room = direct.size();
  direct = direct.first(std::min(room, most));
  // Behind a part of a message there is only more of it.
  const std::size_t behind =
      direct.size() < left_ && target_ != Target::kNowhere ? 0 : stage_.size() - stage_end_;
  const iovec pieces[] = {{direct.data(), direct.size()}, {stage_.data() + stage_end_, behind}};
  const ssize_t got = direct.empty() ? ::readv(fd_->get(), pieces + 1, 1)
                                     : ::readv(fd_->get(), pieces, behind == 0 ? 1 : 2);
  const int error = errno;
  const std::size_t bytes = got > 0 ? static_cast<std::size_t>(got) : 0;
  if (target_ == Target::kOp || target_ == Target::kMessage) filled(std::min(bytes, direct.size()));
  stage_end_ += bytes - std::min(bytes, direct.size());
  if (got < 0 && error != EAGAIN && error != EWOULDBLOCK && error != EINTR) {
    return {Outcome::Kind::kBroken, 0, std::strerror(error)};
  }
  // A short read has emptied the socket; the next arrival is an edge. An end is none.
  if (bytes < direct.size() + behind && error != EINTR && !ended_) readable_ = false;
  if (got < 0 && ended_ && error != EINTR) readable_ = false;
  if (got != 0) return {Outcome::Kind::kOpen, bytes, {}};
  const bool whole = target_ == Target::kNone && !header_ && stage_end_ == 0;
  if (whole) return {Outcome::Kind::kOver, 0, {}};
  return {Outcome::Kind::kBroken, 0, "connection closed within a message"};
}

Inbound::Outcome Inbound::read(std::size_t most, std::vector<Op*>& done, Deadline now) {
  Outcome outcome;
  const std::size_t before = done.size();
  while (parse(done, now)) {
    if (done.size() > before || outcome.bytes >= most || !readable_) return outcome;
    const Outcome one = fill(most);
    outcome.bytes += one.bytes;
    if (one.kind == Outcome::Kind::kOpen) continue;
    outcome.kind = one.kind;
    outcome.reason = one.reason;
    return outcome;
  }
  if (corrupt_) {
    outcome.kind = Outcome::Kind::kCorrupt;
    outcome.reason = format("it sent no frame (tag 0x%016llx, %llu bytes)",
                            static_cast<unsigned long long>(header_->tag),
                            static_cast<unsigned long long>(header_->bytes));
  }
  return outcome;
}

}  // namespace gradwire::tcp
