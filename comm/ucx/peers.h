// The other ranks over UCX: endpoints, control messages, and who is there (comm/membership.h).
//
// Each peer has two endpoints, one for data and one for control, on two workers, so that over TCP a
// heartbeat does not queue behind a bulk message. A goodbye goes over the data endpoint: it arrives
// after all data, and after every kTaken, which goes there for that reason.
//
// They are made with neighbours from the start (by UCX 1.13 with all), and with others once one of
// the two has something to say. Who makes one for data tells the peer its own address by kAddress,
// and hears the peer's: in version 0 of the members' table both know them from there, later ones
// have new data workers.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
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

// Whether the library that is loaded cannot be relied on with connections that are made later than
// at the start.
bool breaks_on_late_connections();

class Peers final : public comm::Membership::Carrier {
 public:
  Peers(Worker& worker, comm::Members members, const comm::MembershipOptions& options);
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  comm::Membership& membership() { return membership_; }
  const comm::Membership& membership() const { return membership_; }

  // Returns when the neighbours have answered, or all ranks if none is to be connected `late`.
  Status connect(bool late, Deadline deadline, double timeout_seconds);
  // After drop_data() and Membership::rebuild(): a new data worker. Where none is connected late it
  // returns, as connect(), when all ranks that are left have answered.
  Status reconnect(Deadline deadline);
  // Closes the data endpoints and drops the worker's data half with all that UCX holds there.
  void drop_data();

  // Whether `rank` has said that it can read this process's memory.
  bool reads_us(int rank) const { return at(rank).reads_us; }
  // Null where there is none now.
  ucp_ep_h data_endpoint(int rank) const { return at(rank).data; }
  // Makes it; null while its address is not known.
  ucp_ep_h reach(int rank);

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

  // Of control messages.
  const TransportStats& stats() const { return stats_; }
  // "sysv to ranks 1, 2; tcp to rank 3".
  std::string describe_lanes() const;

  void send(int rank, const Control& message) override;
  bool connected(int rank) const override { return at(rank).control != nullptr; }
  void cut(int rank) override;

 private:
  struct Peer {
    Peers* owner = nullptr;
    int rank = 0;
    ucp_ep_h data = nullptr;
    ucp_ep_h control = nullptr;
    std::optional<std::uint32_t> greeted = {};  // version of its last hello over `data`
    std::optional<std::uint32_t> hailed = {};   // of this rank's
    bool wired = false;                         // both wires have been up, both ways
    bool reads_us = false;
    bool severed = false;                    // it has ended its side of `data`
    int in_flight = 0;                       // control messages that UCX has not let go
    std::optional<Control> address = {};     // its last kAddress
    std::optional<std::uint32_t> told = {};  // the version of this rank's last one
  };
  struct Outgoing;

  const comm::Members& members() const { return membership_.members(); }
  Peer& at(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  const Peer& at(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }
  void listen(ucp_worker_h worker);
  bool let_go(const Peer& peer) const;
  Result<ucp_ep_h> make_endpoint(Peer& peer, ucp_worker_h worker, const std::string& address);
  std::vector<int> others() const;
  Status await_wires(const std::vector<int>& first, Deadline deadline, double timeout_seconds);
  Status make_data(Peer& peer);
  Status make_control(Peer& peer);
  void greet(Peer& peer);
  void on_address(const Control& message);
  void post(Peer& peer, ucp_ep_h endpoint, const Control& message);
  void handle(const Control& message, Deadline now);
  static void close_endpoint(ucp_ep_h& endpoint);

  static void on_endpoint_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t on_message(void* peers, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* outgoing);

  Worker& worker_;
  bool late_ = true;                          // endpoints are made when they are needed
  std::vector<std::unique_ptr<Peer>> peers_;  // callbacks keep their addresses
  comm::Membership membership_;
  std::string own_address_;        // of the data worker, after version 0
  Deadline next_look_{};           // at control messages
  std::vector<Control> inbox_;     // arrived in callbacks, not handled yet
  std::vector<Control> messages_;  // for take_messages()
  std::set<Outgoing*> with_data_;  // under way over data endpoints
  int sending_ = 0;
  TransportStats stats_;
};

}  // namespace gradwire::ucx
