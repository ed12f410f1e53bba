// The other ranks over UCX: endpoints, control messages, and who is there (comm/membership.h).
//
// Each peer has two endpoints, one for data and one for control, on two workers, so that over TCP a
// heartbeat does not queue behind a bulk message. A goodbye goes over the data endpoint: it arrives
// after all data, and after every kTaken, which goes there for that reason.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/control.h"
#include "comm/membership.h"
#include "comm/shm/peer_memory.h"
#include "comm/ucx/worker.h"
#include "gradwire/transport.h"

namespace gradwire::ucx {

using comm::Control;

// What a rank knows of another before they connect: the address in the members' table.
struct PeerAddress {
  std::string data, control;  // of its workers
  shm::ProcessIdentity process;
};
std::string to_text(const PeerAddress& address);
// kRankMismatch for what is none; its pid is not in the text.
Result<PeerAddress> address_of(const comm::Members& members, int rank);

class Peers final : public comm::Membership::Carrier {
 public:
  Peers(Worker& worker, comm::Members members, const comm::MembershipOptions& options);
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  comm::Membership& membership() { return membership_; }
  const comm::Membership& membership() const { return membership_; }

  // Returns when all have answered.
  Status connect(Deadline deadline, double timeout_seconds);
  // After drop_data(): new data endpoints among `survivors`, over the control ones. Whoever gives
  // it up, for whatever reason, makes all others give it up too, with kPeerLost.
  Status reconnect(std::span<const int> survivors, std::uint32_t generation, Deadline deadline);
  // Closes the data endpoints and drops the worker's data half with all that UCX holds there.
  void drop_data();

  // Whether `rank` has said that it can read this process's memory.
  bool reads_us(int rank) const { return at(rank).reads_us; }
  ucp_ep_h data_endpoint(int rank) const { return at(rank).data; }

  // Heartbeats, what has arrived, silence. Not to be called from a UCX callback. Returns true when
  // some peer's state has changed, for tickets to be looked through.
  bool tend();
  // kTaken, kWithdraw, kWant and kCredit since the last call.
  std::vector<Control> take_messages() { return std::exchange(messages_, {}); }
  // The header is filled in here. Nothing to a rank that is not live.
  void tell(int rank, Control message);

  // The network refused a transfer of data with `rank`.
  void suspect(int rank, ucs_status_t status, bool control = false);
  // The same for what UCX does not know of.
  void suspect(int rank, const std::string& reason);
  // Control messages that UCX has not let go.
  int sending() const { return sending_; }

  // Says goodbye to all and waits, within `deadline`, until they have seen it.
  void leave(Deadline deadline);
  // Gives the endpoints back. What UCX then still
  // completes refers to this object: it is to outlive the worker.
  void close();

  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }
  std::uint64_t messages_sent() const { return messages_sent_; }
  std::uint64_t messages_received() const { return messages_received_; }
  // "sysv to ranks 1, 2; tcp to rank 3".
  std::string describe_lanes() const;

  void send(int rank, const Control& message) override;
  void cut(int rank) override;

 private:
  struct Peer {
    Peers* owner = nullptr;
    int rank = 0;
    ucp_ep_h data = nullptr;
    ucp_ep_h control = nullptr;
    std::optional<std::uint64_t> greeted;  // generation of its last hello over `data`
    bool greeted_control = false;          // it said hello over `control`, too
    bool wired = false;                    // both wires have been up, both ways
    bool reads_us = false;
    bool severed = false;  // it has ended its side of `data`
    int in_flight = 0;     // control messages that UCX has not let go
    Control address = {};  // its last kAddress; without text: it gives that generation up
  };
  struct Outgoing;
  struct Inlet {  // what UCX hands to on_message()
    Peers* owner;
    bool control;
  };
  struct Incoming {
    Control message;
    bool control;  // over the control wire
  };

  const comm::Members& members() const { return membership_.members(); }
  Peer& at(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  const Peer& at(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }
  void listen(ucp_worker_h worker, Inlet& inlet);
  bool let_go(const Peer& peer) const;
  Result<ucp_ep_h> make_endpoint(Peer& peer, ucp_worker_h worker, const std::string& address);
  Status await(std::span<const int> ranks, Deadline deadline, double timeout_seconds,
               const std::function<Result<bool>(Peer&)>& done);
  Control hello(bool can_read, std::uint64_t generation) const;
  void post(Peer& peer, ucp_ep_h endpoint, const Control& message);
  void handle(const Control& message, bool control, Deadline now);
  static void close_endpoint(ucp_ep_h& endpoint);
  Status rewire(const std::vector<int>& others, std::uint32_t generation, Deadline deadline);
  Result<bool> rewired(Peer& peer, std::uint32_t generation);

  static void on_endpoint_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t on_message(void* inlet, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* outgoing);

  Worker& worker_;
  std::vector<std::unique_ptr<Peer>> peers_;  // callbacks keep their addresses
  comm::Membership membership_;
  Inlet over_data_{this, false}, over_control_{this, true};
  Deadline next_look_{};           // at control messages
  std::vector<Incoming> inbox_;    // arrived in callbacks, not handled yet
  std::vector<Control> messages_;  // for take_messages()
  std::set<Outgoing*> with_data_;  // under way over data endpoints
  int sending_ = 0;
  std::uint64_t bytes_sent_ = 0, bytes_received_ = 0, messages_sent_ = 0, messages_received_ = 0;
};

}  // namespace gradwire::ucx
