// The batches of this rank over UCX.
//
// A message is one UCX tag message, with the tag bits of transport.h. To a process that can read
// this one's memory, a long message is instead lent: a descriptor of 32 bytes goes its way, with
// the top bit of the tag set (receives ignore that bit, so the order of equal tags holds), the
// receiver copies the message itself and says kTaken. Memory of a device is never lent, but may
// receive what is.
//
// A message that is not lent and for which the window has no room (comm/flow_window.h) is announced
// by such a descriptor. The receiver posts a receive for the tag announced_tag(id) and says kWant,
// and the data comes there; or kTaken, where its receive is too short.
//
//   descriptor := magic:u64 id:u64 address:u64 bytes:u64       address: 0 of an announced message
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <deque>
#include <list>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/tickets.h"
#include "comm/ucx/device_memory.h"
#include "comm/ucx/peers.h"
#include "comm/ucx/worker.h"
#include "gradwire/transport.h"

namespace gradwire::ucx {

// Of a descriptor: of a message that is lent, and of one that is announced.
inline constexpr std::uint64_t kLentMagic = 0x6772616477697265;
inline constexpr std::uint64_t kAnnouncedMagic = 0x6772616477697266;

class Tickets;

// What still holds an op's memory. An op is over when nothing does.
enum Hold : std::uint8_t {
  kRequest = 1,  // UCX
  kLoan = 2,     // the peer, who has not said kTaken, or kWant
  kRead = 4,     // this rank is copying it, or is about to ask for it
  kReason = 8,   // failed; Peers will say whether that was a loss or a goodbye
  kSelf = 16,    // waits for its partner in this rank
  kCopy = 32,    // a device, which copies for this rank
  kData = 64,    // UCX, for the data of an announced message
  kWire = 128,   // nobody: no endpoint leads to the peer yet
};

struct Descriptor {
  std::uint64_t magic, id, address, bytes;
};

struct Op : comm::Message<Op> {
  Tickets* owner = nullptr;
  std::uint8_t holds = 0;
  void* request = nullptr;
  Descriptor descriptor{};  // sent, or received
  bool announces = false;   // what UCX holds, or held last, is an announcement
  bool wanted = false;      // announced, and the peer has asked before UCX let go of that
};
using Batch = comm::Batch<Op>;

class Tickets : public comm::Tickets<Tickets, Op> {
 public:
  // single_copy_bytes: as UcxOptions has it.
  Tickets(Worker& worker, Peers& peers, std::size_t single_copy_bytes);
  ~Tickets() { give_up_copies(); }

  // As Transport has it.
  bool has_message(int peer, std::uint64_t tag, std::uint64_t any) const;
  // Copies a bounded amount of what others lent; acts on the peers' news. False: nothing to do.
  bool progress();
  void on_message(const Control& message);
  // Ends every ticket before it returns, and drops the worker's data half for it: what UCX holds
  // there is never written again. Posts fail until restart(), over new data endpoints.
  void sever();

  bool reading() const;
  // Something that was announced waits for control messages.
  bool awaits_answers() const { return announced_ > 0 || !unsent_.empty(); }
  // For devices, of whose end nobody is told.
  bool copying() const { return !copies_.empty(); }
  int sending() const { return sending_; }

 private:
  friend class comm::Tickets<Tickets, Op>;
  // Announced data whose receive was cancelled after it had asked.
  struct Drop {
    Tickets* owner;
    int peer;
    std::uint64_t id;
    void* request = nullptr;
  };
  // What a device copies for this rank, and what follows.
  struct Copy {
    enum class Of : std::uint8_t {
      kMessage,     // of a receive
      kSelf,        // to a receive of this rank, from `sender`
      kDescriptor,  // of what was lent
      kPiece,       // of what was lent, so many bytes
    };
    Op* op = nullptr;
    Of of = Of::kMessage;
    Op* sender = nullptr;
    std::size_t bytes = 0;
    DeviceCopy copy = {};
  };
  struct Unsent {
    Op* op;
    ConstByteSpan data;
    gradwire::Device device;
    std::uint64_t tag;
  };
  struct Failing {
    Ticket ticket;
    Deadline until;  // then what UCX has not given back is given up
  };

  std::uint64_t wire_tag(int source, std::uint64_t tag) const;
  void start(Op& op);
  void started() {}
  static bool is_over(const Op& op) { return op.holds == 0; }
  void start_send(Op& op);
  void start_recv(Op& op);
  void send_bytes(Op& op, ConstByteSpan data, gradwire::Device device, std::uint64_t tag);
  void send_unsent();
  void carry(Op& from, Op& to);
  void carried(Op& op) { release(op, kSelf); }
  void offer(Op& op, std::uint64_t magic, std::uint64_t address);
  void send_announced(Op& op);
  void receive_announced(Op& op);
  void got_announced(Op& op, ucs_status_t status, const ucp_tag_recv_info_t& info);
  void drop_announced(int peer, std::uint64_t id);
  void on_withdrawal(int peer, std::uint64_t id);
  void end_loan(Op& op);
  void took(int peer, std::size_t bytes);
  void answer();
  void hold(Op& op, Hold what);
  void release(Op& op, Hold what);
  void fail(Batch& batch, const Status& why);
  void withdraw(Op& op);
  void arrived(Op& op, ucs_status_t status, const ucp_tag_recv_info_t& info);
  void sent(Op& op, ucs_status_t status);
  void begin_copy(Copy what, ConstByteSpan from, gradwire::Device from_device, ByteSpan to,
                  gradwire::Device to_device);
  void end_copy(Copy& what, const Status& outcome);
  bool end_copies();
  void settle_copies();
  void give_up_copies();
  void begin_read(Op& op, const Status& known);
  static bool may_read(const Op* op) { return (op->holds & kCopy) == 0; }
  Status read_piece(Op& op, std::size_t bytes);
  void took_piece(Op& op, std::size_t bytes);
  void end_read(Op& op);
  void read_lent();
  void abandon(Deadline now);

  // Of an op, which `End` then does with.
  template <auto End>
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                          void* op);
  static void on_dropped(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                         void* drop);
  static void on_sent(void* request, ucs_status_t status, void* op);

  Worker& worker_;
  Peers& peers_;
  std::size_t single_copy_bytes_;
  std::uint64_t next_loan_ = 1;
  int sending_ = 0;                                     // sends that UCX holds
  std::unordered_map<std::uint64_t, Op*> loans_;        // and what was announced
  int announced_ = 0;                                   // of these
  std::vector<Op*> awaited_;                            // receives that hold kData
  std::list<Drop> drops_;                               // UCX points to them
  std::vector<std::pair<int, std::uint64_t>> credits_;  // to be told to ranks
  std::set<std::pair<int, std::uint64_t>> withdrawn_;   // (rank, loan id), before it was read
  std::deque<Op*> reads_;
  std::vector<Unsent> unsent_;  // those that hold kWire, in the order of posting
  std::vector<Failing> failing_;
  DeviceCopies device_;
  std::deque<Copy> copies_;
  std::vector<std::byte> bounce_;  // for what was lent to a device
};

}  // namespace gradwire::ucx
