#include "comm/ucx/peers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "comm/ucx/lanes.h"
#include "comm/ucx/settings.h"

namespace gradwire::ucx {
namespace {

constexpr unsigned kMessageId = 0x67;
// Between an endpoint's failure and the loss of its rank: a goodbye or a verdict that was sent
// before may still be read. Far below any deadline.
constexpr auto kSuspicion = std::chrono::milliseconds(150);
constexpr auto kLook = std::chrono::milliseconds(20);
// Heartbeats to a peer that takes nothing are not piled up.
constexpr int kMostInFlight = 8;

double seconds(Deadline::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

// The memory of one control message, until UCX has sent it.
struct Peers::Outgoing {
  Peer* peer;
  std::vector<std::byte> bytes;
};

Peers::Peers(Worker& worker, const PeersOptions& options)
    : worker_(worker),
      options_(options),
      liveness_(options.size, options.rank, options.heartbeat, options.patience,
                std::chrono::steady_clock::now()) {
  for (int rank = 0; rank < options.size; ++rank) {
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->owner = this;
    peers_.back()->rank = rank;
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = on_message;
  handler.arg = this;
  (void)ucp_worker_set_am_recv_handler(worker.handle(), &handler);
}

void Peers::close() {
  for (const auto& peer : peers_) close_endpoints(*peer);
}

Result<ucp_ep_h> Peers::make_endpoint(Peer& peer, const std::string& address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_endpoint_error;
  params.err_handler.arg = &peer;
  ucp_ep_h endpoint = nullptr;
  const ucs_status_t status = ucp_ep_create(worker_.handle(), &params, &endpoint);
  if (status == UCS_OK) return endpoint;
  return error("ucp_ep_create", status).with_context(format("endpoint to rank %d", peer.rank));
}

Status Peers::connect(const std::vector<std::string>& addresses, const std::vector<bool>& can_read,
                      Deadline deadline, double timeout_seconds) {
  for (const auto& peer : peers_) {
    if (peer->rank == options_.rank) continue;
    const auto index = static_cast<std::size_t>(peer->rank);
    GW_ASSIGN(peer->data, make_endpoint(*peer, addresses[index]));
    GW_ASSIGN(peer->control, make_endpoint(*peer, addresses[index]));
    Control hello{.kind = Control::Kind::kHello, .flag = can_read[index]};
    hello.from = options_.rank;
    hello.epoch = options_.epoch;
    post(*peer, peer->data, hello);  // both endpoints set up their wires now, not in a first step
    post(*peer, peer->control, hello);
  }
  return await_hellos(deadline, timeout_seconds);
}

Status Peers::await_hellos(Deadline deadline, double timeout_seconds) {
  while (true) {
    (void)worker_.progress();
    (void)tend();
    const Peer* missing = nullptr;
    for (const auto& peer : peers_) {
      if (peer->rank == options_.rank) continue;
      if (peer->state == State::kLost) {
        return Status(Code::kPeerLost,
                      format("ucx: connecting to rank %d: %s", peer->rank, peer->reason.c_str()));
      }
      if (!peer->greeted && peer->state == State::kLive) missing = peer.get();
    }
    if (missing == nullptr) return {};
    if (std::chrono::steady_clock::now() >= deadline) {
      return Status(Code::kTimedOut, format("ucx: rank %d did not answer within %.1f s",
                                            missing->rank, timeout_seconds));
    }
    GW_TRY(worker_.sleep(deadline, sending_ > 0));
  }
}

void Peers::on_sent(void* request, ucs_status_t, void* outgoing) {
  const std::unique_ptr<Outgoing> sent(static_cast<Outgoing*>(outgoing));
  --sent->peer->in_flight;
  --sent->peer->owner->sending_;
  if (request != nullptr) ucp_request_free(request);
}

void Peers::post(Peer& peer, ucp_ep_h endpoint, const Control& message) {
  if (endpoint == nullptr) return;
  auto outgoing = std::make_unique<Outgoing>(Outgoing{&peer, encode(message)});
  bytes_sent_ += outgoing->bytes.size();
  ++messages_sent_;
  ++peer.in_flight;
  ++sending_;
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = on_sent;
  params.user_data = outgoing.get();
  const ucs_status_ptr_t request = ucp_am_send_nbx(
      endpoint, kMessageId, nullptr, 0, outgoing->bytes.data(), outgoing->bytes.size(), &params);
  Outgoing* const mine = outgoing.release();
  if (!UCS_PTR_IS_PTR(request)) {
    on_sent(nullptr, UCS_OK, mine);
    if (UCS_PTR_IS_ERR(request)) suspect(peer.rank, ucs_status_string(UCS_PTR_STATUS(request)));
  }
}

void Peers::send(int rank, Control message) {
  message.from = options_.rank;
  message.epoch = options_.epoch;
  if (at(rank).state != State::kLive) return;
  // What the peer waits for may not come after the goodbye.
  const bool before_goodbye = message.kind == Control::Kind::kTaken;
  post(at(rank), before_goodbye ? at(rank).data : at(rank).control, message);
}

void Peers::broadcast(const Control& message) {
  for (const auto& peer : peers_) {
    if (peer->rank != options_.rank) send(peer->rank, message);
  }
}

ucs_status_t Peers::on_message(void* peers, const void*, size_t, void* data, size_t bytes,
                               const ucp_am_recv_param_t* param) {
  auto& self = *static_cast<Peers*>(peers);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;  // never sent by us
  const auto message =
      comm::decode({static_cast<const std::byte*>(data), bytes}, self.options_.size);
  if (!message || message->epoch != self.options_.epoch || message->from == self.options_.rank) {
    return UCS_OK;  // not of this job
  }
  self.bytes_received_ += bytes;
  ++self.messages_received_;
  self.inbox_.push_back(*message);
  return UCS_OK;
}

void Peers::on_endpoint_error(void* peer, ucp_ep_h, ucs_status_t status) {
  auto& failed = *static_cast<Peer*>(peer);
  failed.owner->suspect(failed.rank, ucs_status_string(status));
}

void Peers::suspect(int rank, const std::string& reason) {
  Peer& peer = at(rank);
  if (peer.suspect_since || peer.state != State::kLive) return;
  peer.suspect_since = std::chrono::steady_clock::now();
  peer.reason = reason;
}

bool Peers::tend() {
  const Deadline now = std::chrono::steady_clock::now();
  liveness_.tick(now);
  if (!inbox_.empty()) {
    for (const Control& message : std::exchange(inbox_, {})) handle(message);
  }
  if (liveness_.beat_due(now)) beat();
  if (now >= next_look_) {
    next_look_ = now + kLook;
    look_for_losses(now);
  }
  return std::exchange(changed_, false);
}

void Peers::beat() {
  for (const auto& peer : peers_) {
    if (peer->rank == options_.rank || peer->in_flight >= kMostInFlight) continue;
    send(peer->rank, {});
  }
}

void Peers::handle(const Control& message) {
  Peer& peer = at(message.from);
  if (peer.state == State::kLost) return;  // what a rank says that was given up is too late
  liveness_.heard(message.from);
  switch (message.kind) {
    case Control::Kind::kHello:
      peer.greeted = true;
      peer.reads_us = message.flag;
      return;
    case Control::Kind::kHeartbeat: return;
    case Control::Kind::kVerdict: return on_verdict(message);
    case Control::Kind::kGoodbye:
      if (message.flag) on_verdict(message);
      send(message.from, {.kind = Control::Kind::kFarewell});
      peer.state = State::kClosed;
      peer.reason = "closed";
      liveness_.forget(message.from);
      changed_ = true;
      return;
    case Control::Kind::kFarewell: peer.farewell = true; return;
    case Control::Kind::kTaken:
    case Control::Kind::kWithdraw: messages_.push_back(message); return;
  }
}

void Peers::on_verdict(const Control& message) {
  // A rank that gives up for a reason of its own names itself.
  lose(message.culprit, message.text, message.reporter);
}

// The first culprit stays, and is passed on once, so that it reaches everybody even if the rank
// that saw it first goes at once.
void Peers::blame(int culprit, const std::string& reason, int reporter) {
  if (lost_) return;
  lost_ = LostPeer{culprit, reporter == options_.rank
                                ? reason
                                : format("reported by rank %d: %s", reporter, reason.c_str())};
  verdict_ = Control{
      .kind = Control::Kind::kVerdict, .culprit = culprit, .reporter = reporter, .text = reason};
  options_.log(LogLevel::kWarn, format("rank %d lost: %s", culprit, lost_->reason.c_str()));
  broadcast(*verdict_);
}

void Peers::lose(int rank, const std::string& reason, int reporter) {
  blame(rank, reason, reporter);
  if (rank == options_.rank) {  // the others have given this rank up: it reaches nobody any more
    for (const auto& peer : peers_) {
      if (peer->state != State::kLive || peer->rank == options_.rank) continue;
      peer->state = State::kLost;
      peer->reason = format("it gave this rank up (%s)", lost_->reason.c_str());
    }
    changed_ = true;
    return;
  }
  Peer& peer = at(rank);
  if (peer.state == State::kLost) return;
  peer.state = State::kLost;
  peer.reason = reporter == options_.rank
                    ? reason
                    : format("reported by rank %d: %s", reporter, reason.c_str());
  liveness_.forget(rank);
  close_endpoints(peer);
  changed_ = true;
}

void Peers::look_for_losses(Deadline now) {
  // The earliest first: a rank that was kept from running may find two ripe at once, and who went
  // because of the other is not to be blamed.
  const auto ripe = [&](const auto& peer) {
    return peer->state == State::kLive && peer->suspect_since &&
           now - *peer->suspect_since >= kSuspicion;
  };
  while (true) {  // ends: lose() leaves no peer live
    const Peer* first = nullptr;
    for (const auto& peer : peers_) {
      if (ripe(peer) && (first == nullptr || *peer->suspect_since < *first->suspect_since))
        first = peer.get();
    }
    if (first == nullptr) break;
    lose(first->rank, std::string(first->reason), options_.rank);
  }
  while (const auto silent = liveness_.silent()) {  // ends: lose() forgets the rank
    lose(*silent, format("no heartbeat for %.1f s", seconds(liveness_.silence_of(*silent))),
         options_.rank);
  }
}

void Peers::need(int rank) { blame(rank, at(rank).reason, options_.rank); }

void Peers::announce(const LostPeer& culprit) {
  if (culprit.rank < 0 || culprit.rank >= options_.size) return;
  // This rank's own failure: the others hear why it goes; it still reaches them.
  if (culprit.rank == options_.rank) return blame(culprit.rank, culprit.reason, options_.rank);
  lose(culprit.rank, culprit.reason, options_.rank);
}

Status Peers::why(int rank) const {
  const Peer& peer = at(rank);
  if (peer.state == State::kClosed) return {Code::kPeerLost, format("rank %d closed", rank)};
  return {Code::kPeerLost, format("rank %d lost: %s", rank, peer.reason.c_str())};
}

// FORCE also ends the sends that are still open there. Nothing has to wait for it.
void Peers::close_endpoints(Peer& peer) {
  for (ucp_ep_h* endpoint : {&peer.data, &peer.control}) {
    if (*endpoint == nullptr) continue;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t request = ucp_ep_close_nbx(*endpoint, &params);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
    *endpoint = nullptr;
  }
}

void Peers::leave(Deadline deadline) {
  Control goodbye = verdict_.value_or(Control{});
  goodbye.kind = Control::Kind::kGoodbye;
  goodbye.flag = verdict_.has_value();
  goodbye.from = options_.rank;
  goodbye.epoch = options_.epoch;
  for (const auto& peer : peers_) {
    if (peer->state == State::kLive) post(*peer, peer->data, goodbye);
  }
  const auto awaited = [&](const auto& peer) {
    return peer->rank != options_.rank &&
           ((peer->state == State::kLive && !peer->farewell && !peer->suspect_since) ||
            (peer->state == State::kClosed && peer->in_flight > 0));
  };
  while (std::any_of(peers_.begin(), peers_.end(), awaited) &&
         std::chrono::steady_clock::now() < deadline) {
    (void)worker_.progress();
    (void)tend();
    if (!worker_.sleep(std::min(deadline, deadline_in(0.01)), sending_ > 0).ok()) return;
  }
}

std::string Peers::describe_lanes() const {
  std::map<std::string, std::string> ranks_by_lanes;
  for (const auto& peer : peers_) {
    if (peer->data == nullptr) continue;
    std::string& ranks = ranks_by_lanes[text_of(lanes_of(peer->data))];
    ranks += format(ranks.empty() ? "%d" : ", %d", peer->rank);
  }
  std::string text;
  for (const auto& [lanes, ranks] : ranks_by_lanes) {
    text += (text.empty() ? "" : "; ") + lanes + " to rank " + ranks;
  }
  return text.empty() ? "no peers" : text;
}

}  // namespace gradwire::ucx
