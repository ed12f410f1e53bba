// The other ranks: endpoints, heartbeats, verdicts and goodbyes.
//
// Each peer has two endpoints, one for data and one for control, so that over TCP a heartbeat does
// not queue behind a bulk message. A goodbye goes over the data endpoint: it arrives after all
// data, and after every kTaken, which goes there for that reason.
#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "comm/control.h"
#include "comm/liveness.h"
#include "comm/ucx/worker.h"
#include "gradwire/transport.h"

namespace gradwire::ucx {

using comm::Control;
using comm::Liveness;

struct PeersOptions {
  int rank = 0;
  int size = 1;
  std::uint8_t epoch = 0;
  Deadline::duration heartbeat;
  Deadline::duration patience;
  Log log;
};

class Peers {
 public:
  enum class State : std::uint8_t { kLive, kClosed, kLost };

  Peers(Worker& worker, const PeersOptions& options);
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // addresses[r] is the worker address of rank r, can_read[r] whether this rank can read its
  // memory. Returns when all have answered.
  Status connect(const std::vector<std::string>& addresses, const std::vector<bool>& can_read,
                 Deadline deadline, double timeout_seconds);

  State state(int rank) const { return at(rank).state; }
  // Whether `rank` has said that it can read this process's memory.
  bool reads_us(int rank) const { return at(rank).reads_us; }
  ucp_ep_h data_endpoint(int rank) const { return at(rank).data; }
  // Why a ticket that names `rank`, which is not live, settles: "rank 2 lost: no heartbeat ...".
  Status why(int rank) const;

  // Heartbeats, what has arrived, silence. Not to be called from a UCX callback. Returns true when
  // some peer's state has changed, for tickets to be looked through.
  bool tend();
  // kTaken and kWithdraw since the last call.
  std::vector<Control> take_messages() { return std::exchange(messages_, {}); }
  void send(int rank, Control message);

  // The network refused a transfer with `rank`. Becomes a loss unless a goodbye or a verdict that
  // explains it is on its way.
  void suspect(int rank, const std::string& reason);
  // Somebody waits for `rank`, which has closed.
  void need(int rank);
  // Control messages that UCX has not let go.
  int sending() const { return sending_; }
  void heard(int rank) { liveness_.heard(rank); }

  const std::optional<LostPeer>& lost() const { return lost_; }
  void announce(const LostPeer& culprit);
  // Says goodbye to all and waits, within `deadline`, until they have seen it.
  void leave(Deadline deadline);
  // Gives the endpoints back. What UCX then still completes refers to this object: it is to outlive
  // the worker.
  void close();

  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }
  std::uint64_t messages_sent() const { return messages_sent_; }
  std::uint64_t messages_received() const { return messages_received_; }
  // "sysv to ranks 1, 2; tcp to rank 3".
  std::string describe_lanes() const;

 private:
  struct Peer {
    Peers* owner = nullptr;
    int rank = 0;
    ucp_ep_h data = nullptr;
    ucp_ep_h control = nullptr;
    State state = State::kLive;
    bool greeted = false;   // its hello came
    bool farewell = false;  // it has seen this rank's goodbye
    bool reads_us = false;
    int in_flight = 0;  // control messages that UCX has not let go
    std::optional<Deadline> suspect_since;
    std::string reason;  // of the suspicion, then of the loss
  };
  struct Outgoing;

  Peer& at(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  const Peer& at(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }
  Result<ucp_ep_h> make_endpoint(Peer& peer, const std::string& address);
  Status await_hellos(Deadline deadline, double timeout_seconds);
  void post(Peer& peer, ucp_ep_h endpoint, const Control& message);
  void broadcast(const Control& message);
  void beat();
  void handle(const Control& message);
  void on_verdict(const Control& message);
  void look_for_losses(Deadline now);
  void lose(int rank, const std::string& reason, int reporter);
  void blame(int culprit, const std::string& reason, int reporter);
  void close_endpoints(Peer& peer);

  static void on_endpoint_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t on_message(void* peers, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* outgoing);

  Worker& worker_;
  PeersOptions options_;
  std::vector<std::unique_ptr<Peer>> peers_;  // callbacks keep their addresses
  Liveness liveness_;
  std::vector<Control> inbox_;     // arrived in callbacks, not handled yet
  std::vector<Control> messages_;  // for take_messages()
  std::optional<LostPeer> lost_;
  std::optional<Control> verdict_;  // as it was passed on, for the goodbye
  int sending_ = 0;
  bool changed_ = false;
  Deadline next_look_{};
  std::uint64_t bytes_sent_ = 0, bytes_received_ = 0, messages_sent_ = 0, messages_received_ = 0;
};

}  // namespace gradwire::ucx
