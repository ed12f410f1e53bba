// One peer's messages to this rank: read from its connection straight into the receives that wait
// for them.
//
// A message whose receive is not posted yet waits where it is, in the socket, for a moment. Then it
// is taken into memory of its own, so that what comes behind it can pass, if some other receive
// waits for this peer (then whatever blocks it must go), or if all that is kept so stays under
// kRoom. Otherwise it stays in the socket, and TCP slows its sender down. In either case the
// sender's window bounds what is kept (comm/flow_window.h): of announced messages that is the
// announcement alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/flow_window.h"
#include "comm/rendezvous/socket.h"
#include "comm/tcp/op.h"
#include "gradwire/tensor.h"

namespace gradwire::tcp {

class Inbound {
 public:
  // All that a peer sends without a receive, so that one is never kept waiting for another.
  static constexpr std::size_t kRoom = comm::FlowWindow::kMostOfOne;

  void open(std::shared_ptr<rendezvous::Fd> fd);
  bool is_open() const { return fd_ != nullptr; }

  // The receive's memory is this object's until the op is in some `done`, or withdrawn. An op that
  // cannot take its message has that error in its batch's status and is done too.
  void post(Op& op, std::vector<Op*>& done);
  void withdraw(Op& op);
  // Whether a message that no receive has met has been taken in, or announced, or is what comes
  // next, whose tag is `tag` but for the bits of `any`.
  bool has_message(std::uint64_t tag, std::uint64_t any) const;
  // The receive that has asked for the announced message, of which nothing has come; null if none.
  Op* asking(std::uint64_t id) const {
    return id == 0 ? nullptr : waiting_.find([id](const Op& op) { return op.id == id; });
  }

  // The connection may have something to read, or (`ended`) has ended behind that.
  void notice(bool ended) {
    readable_ = true;
    ended_ = ended_ || ended;
  }
  // A receive waits for what comes next, or has begun with it.
  bool wanted() const { return is_open() && !paused_ && (op_ != nullptr || !waiting_.empty()); }
  // read() is to ask the connection, whether it was noticed or not.
  void ask() { readable_ = true; }
  // read() may get somewhere now.
  bool runnable() const { return is_open() && (readable_ || header_) && !paused_; }
  // The peer sends nothing new: all that is left can be taken in.
  void drain() {
    draining_ = true;
    paused_ = false;
  }

  struct Outcome {
    enum class Kind : std::uint8_t { kOpen, kOver, kBroken, kCorrupt } kind = Kind::kOpen;
    std::size_t bytes = 0;    // read from the connection, headers included
    std::string reason = {};  // of kBroken and kCorrupt
  };
  // What the peer is to hear about messages that it announced, since the last call.
  struct Answer {
    std::uint64_t id = 0;
    bool wanted = false;  // false: its receive is too small for it, and it is done
  };
  std::vector<Answer> take_answers() { return std::exchange(answers_, {}); }
  // What the messages count (FlowWindow::charge) that have met their receives since the last call.
  std::uint64_t take_met() { return std::exchange(met_, 0); }
  // `prefix`: the epoch and source rank in the tags of what comes. Messages of earlier generations
  // go nowhere from now on, those of later ones wait in the socket until this is called again. No
  // receive may be posted.
  void rebuild(std::uint64_t prefix);
  // Reads about `most` bytes, or until something is done. Messages that are complete go to `done`.
  Outcome read(std::size_t most, std::vector<Op*>& done, Deadline now);
  void close() { fd_.reset(); }

 private:
  // A message that no receive has been posted for; complete when data.size() is bytes.
  struct Message {
    std::uint64_t tag = 0;
    std::size_t bytes = 0;
    std::vector<std::byte> data;
    std::uint64_t id = 0;  // of an announced one, of which no data has come
    bool met = false;      // a receive that was withdrawn; it is counted
  };
  enum class Target : std::uint8_t { kNone, kOp, kMessage, kNowhere };

  bool parse_header();
  bool parse(std::vector<Op*>& done, Deadline now);
  bool begin(std::vector<Op*>& done, Deadline now);
  void begin_announced(std::uint64_t tag, std::vector<Op*>& done);
  void want(Op& op, std::uint64_t id, std::size_t bytes, std::vector<Op*>& done);
  bool belongs(std::uint64_t tag) const;
  bool may_keep(std::size_t bytes, Deadline now);
  void take(std::vector<Op*>& done);
  void finish(std::vector<Op*>& done);
  ByteSpan target_memory(std::size_t most);
  void filled(std::size_t bytes);
  Outcome fill(std::size_t most);

  std::shared_ptr<rendezvous::Fd> fd_;
  std::uint64_t prefix_ = 0;
  bool readable_ = false;
  bool ended_ = false;
  bool paused_ = false;
  bool draining_ = false;
  std::optional<Deadline> deferred_since_;

  std::array<std::byte, 16 << 10> stage_{};  // read, not looked at
  std::size_t stage_begin_ = 0, stage_end_ = 0;
  std::optional<Header> header_;  // of the message at the front, not begun
  std::uint64_t announced_ = 0;   // of an announcement: its id
  Target target_ = Target::kNone;
  std::size_t left_ = 0;  // of the message that has been begun
  Op* op_ = nullptr;
  std::list<Message>::iterator message_;
  bool corrupt_ = false;

  comm::WaitingOps<Op> waiting_;
  std::list<Message> kept_;
  std::size_t kept_bytes_ = 0;
  std::vector<Answer> answers_;
  std::uint64_t met_ = 0;
};

}  // namespace gradwire::tcp
