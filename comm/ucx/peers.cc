#include "comm/ucx/peers.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <utility>

#include "base/text.h"
#include "comm/ucx/lanes.h"
#include "comm/ucx/settings.h"

namespace gradwire::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kMessageId = 0x67;
// Heartbeats to a peer that takes nothing are not piled up.
constexpr int kMostInFlight = 8;
// Who is driven seldom does not let control messages wait for the worker's turn of them.
constexpr auto kLook = std::chrono::milliseconds(5);

}  // namespace

// The memory of one control message, until UCX has sent it.
struct Peers::Outgoing {
  Peer* peer;
  std::vector<std::byte> bytes;
  bool with_data = false;
};

// text := "NONCE NONCE_ADDRESS DATA_BYTES\n" data worker's address{DATA_BYTES} control worker's
std::string to_text(const PeerAddress& address) {
  return format("%llu %llu %zu\n", static_cast<unsigned long long>(address.process.nonce),
                static_cast<unsigned long long>(address.process.nonce_address),
                address.data.size()) +
         address.data + address.control;
}

Result<PeerAddress> address_of(const comm::Members& members, int rank) {
  const std::string& text = members.at(rank).address;
  const std::size_t line = text.find('\n');
  unsigned long long nonce = 0, at = 0;
  std::size_t data_bytes = 0;
  const int fields = std::sscanf(text.c_str(), "%llu %llu %zu", &nonce, &at, &data_bytes);
  if (fields == 3 && line != std::string::npos && data_bytes < text.size() - line) {
    return PeerAddress{text.substr(line + 1, data_bytes),
                       text.substr(line + 1 + data_bytes),
                       {nonce, at, members.at(rank).pid}};
  }
  return Status(Code::kRankMismatch, format("ucx: the address of rank %d is none", rank));
}

Peers::Peers(Worker& worker, comm::Members members, const comm::MembershipOptions& options)
    : worker_(worker), membership_(*this, std::move(members), options, Clock::now()) {
  for (int rank = 0; rank < this->members().size(); ++rank) {
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->owner = this;
    peers_.back()->rank = rank;
  }
  listen(worker.data());
  listen(worker.control());
}

void Peers::listen(ucp_worker_h worker) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = on_message;
  handler.arg = this;
  (void)ucp_worker_set_am_recv_handler(worker, &handler);
}

Result<ucp_ep_h> Peers::make_endpoint(Peer& peer, ucp_worker_h worker, const std::string& address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_endpoint_error;
  params.err_handler.arg = &peer;
  ucp_ep_h endpoint = nullptr;
  const ucs_status_t status = ucp_ep_create(worker, &params, &endpoint);
  if (status == UCS_OK) return endpoint;
  const Status why = error("ucp_ep_create", status);
  // Nobody listens there any more, its memory is gone, or no transport leads there.
  const bool lost = status == UCS_ERR_UNREACHABLE || status == UCS_ERR_SHMEM_SEGMENT ||
                    members().surely_gone(peer.rank);
  return Status(lost ? Code::kPeerLost : why.code(),
                format("endpoint to rank %d: %s", peer.rank, std::string(why.message()).c_str()));
}

// UCX 1.13 may abort a process to which another connects while it ends (ucp_request.c:684), and one
// that connects to another that has ended (tcp_iface.c:307).
bool breaks_on_late_connections() { return library_version().starts_with("1.13."); }

Status Peers::connect(bool late, Deadline deadline, double timeout_seconds) {
  late_ = late;
  const std::vector<int> first = late ? membership_.neighbours() : others();
  for (const int rank : first) {
    // Both endpoints set up their wires now, not in a first step.
    GW_TRY(make_control(at(rank)));
    GW_TRY(make_data(at(rank)));
    greet(at(rank));
  }
  return await_wires(first, deadline, timeout_seconds);
}

// Of this version.
std::vector<int> Peers::others() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < members().size(); ++rank) {
    if (rank != members().self() && members().has(rank)) ranks.push_back(rank);
  }
  return ranks;
}

// Until the data endpoints of this version are made and their wires up, both ways.
Status Peers::await_wires(const std::vector<int>& first, Deadline deadline,
                          double timeout_seconds) {
  const std::uint32_t version = members().version();
  for (const int rank : first) at(rank).wired = false;
  while (true) {
    (void)worker_.progress_control();
    (void)worker_.progress();
    (void)tend();
    std::optional<int> missing;
    for (const int rank : first) {
      Peer& peer = at(rank);
      const comm::Membership::State state = membership_.state(rank);
      const Status gone = membership_.why(rank).with_context("ucx: connecting");
      if (state == comm::Membership::State::kLost) return gone;
      (void)reach(rank);
      if (peer.data != nullptr && peer.hailed != version) {
        peer.hailed = version;
        Control hello{.kind = Control::Kind::kHello, .epoch = members().job_epoch(), .id = version};
        hello.from = members().self();
        post(peer, peer.data, hello);
      }
      // Who has closed was connected to this rank, though its word over the other wire may be late.
      const bool greeted = peer.greeted && *peer.greeted >= version;
      const bool closed = greeted && !membership_.live(rank);
      peer.wired = peer.wired || closed || (greeted && peer.address && let_go(peer));
      if (!peer.wired && state == comm::Membership::State::kClosed) return gone;
      if (!peer.wired) missing = rank;
    }
    if (!missing) return {};
    if (Clock::now() >= deadline) {
      return Status(Code::kTimedOut,
                    format("ucx: rank %d did not answer within %.1f s", *missing, timeout_seconds));
    }
    GW_TRY(worker_.sleep(deadline, sending_ > 0));
  }
}

// Whether UCX has handed all to the wires, which are up then. A closed peer needs nothing any more.
bool Peers::let_go(const Peer& peer) const {
  return peer.in_flight == 0 || !membership_.live(peer.rank);
}

Status Peers::make_control(Peer& peer) {
  if (peer.control != nullptr) return {};
  GW_ASSIGN(const PeerAddress address, address_of(members(), peer.rank));
  GW_ASSIGN(peer.control, make_endpoint(peer, worker_.control(), address.control));
  membership_.welcome(peer.rank);
  return {};
}

// Ok, without an endpoint, while the peer's address is not known.
Status Peers::make_data(Peer& peer) {
  if (peer.data != nullptr || worker_.data() == nullptr) return {};
  const std::uint32_t version = members().version();
  std::string address;
  if (version == 0) {
    GW_ASSIGN(const PeerAddress first, address_of(members(), peer.rank));
    address = first.data;
  } else if (peer.address && peer.address->id == version) {
    address = peer.address->text;
  }
  if (address.empty()) return {};
  GW_ASSIGN(peer.data, make_endpoint(peer, worker_.data(), address));
  peer.severed = false;
  return {};
}

ucp_ep_h Peers::reach(int rank) {
  Peer& peer = at(rank);
  if (peer.data != nullptr || !membership_.live(rank)) return peer.data;
  greet(peer);
  const Status made = make_data(peer);
  if (!made.ok()) suspect(rank, std::string(made.message()));
  return peer.data;
}

// Once in each version: where this rank can be reached, and whether it can read the peer's memory.
void Peers::greet(Peer& peer) {
  const std::uint32_t version = members().version();
  if (worker_.data() == nullptr || peer.told == version) return;
  peer.told = version;
  const auto address = address_of(members(), peer.rank);
  const bool reads = address.has_value() && address.value().process.pid != 0 &&
                     shm::can_read(address.value().process);
  tell(peer.rank,
       {.kind = Control::Kind::kAddress, .flag = reads, .id = version, .text = own_address_});
}

// Who is in an earlier version is not to take the end of its endpoint for this rank's.
void Peers::on_address(const Control& message) {
  Peer& peer = at(message.from);
  peer.reads_us = message.flag;
  if (!peer.address || peer.address->id <= message.id) peer.address = message;
  if (message.id < members().version() || worker_.data() == nullptr) {
    tell(message.from, {.kind = Control::Kind::kSevered});
  } else if (message.id == members().version()) {
    greet(peer);
  }
}

Status Peers::reconnect(Deadline deadline) {
  // Who is alone needs no wire, and perhaps has none any more: UCX wants a device that is up.
  if (others().empty()) return {};
  GW_TRY(worker_.renew_data(deadline));
  listen(worker_.data());
  GW_ASSIGN(own_address_, worker_.data_address());
  for (const int rank : membership_.neighbours()) (void)reach(rank);
  for (const auto& peer : peers_) {
    if (peer->address && peer->address->id == members().version()) greet(*peer);
  }
  if (late_) return {};
  // What is left, for the message.
  const double seconds =
      std::max(0.0, std::chrono::duration<double>(deadline - Clock::now()).count());
  return await_wires(others(), deadline, seconds);
}

void Peers::on_sent(void* request, ucs_status_t, void* outgoing) {
  const std::unique_ptr<Outgoing> sent(static_cast<Outgoing*>(outgoing));
  Peers& self = *sent->peer->owner;
  --sent->peer->in_flight;
  --self.sending_;
  if (sent->with_data) self.with_data_.erase(sent.get());
  if (request != nullptr) ucp_request_free(request);
}

void Peers::post(Peer& peer, ucp_ep_h endpoint, const Control& message) {
  if (endpoint == nullptr) return;
  const bool with_data = endpoint == peer.data;
  auto outgoing = std::make_unique<Outgoing>(Outgoing{&peer, encode(message), with_data});
  stats_.bytes_sent += outgoing->bytes.size();
  ++stats_.messages_sent;
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
  if (with_data) with_data_.insert(mine);
  if (!UCS_PTR_IS_PTR(request)) {
    on_sent(nullptr, UCS_OK, mine);
    if (UCS_PTR_IS_ERR(request)) suspect(peer.rank, UCS_PTR_STATUS(request), !with_data);
  }
}

// What the peer waits for may not come after the goodbye. What a rank that has no connection with
// this one does not need to hear makes none.
void Peers::send(int rank, const Control& message) {
  using Kind = Control::Kind;
  Peer& peer = at(rank);
  const Kind kind = message.kind;
  if (kind == Kind::kHeartbeat && peer.in_flight >= kMostInFlight) return;
  const bool idle = kind == Kind::kVerdict || kind == Kind::kGoodbye;
  if (peer.control == nullptr) {
    const Status made = idle ? Status() : make_control(peer);
    if (!made.ok()) suspect(rank, std::string(made.message()));
    if (peer.control == nullptr) return;
  }
  // A goodbye over a data endpoint that is made later would overtake it otherwise.
  if (kind == Kind::kTaken) (void)reach(rank);
  const bool behind_data = kind == Kind::kTaken || kind == Kind::kGoodbye;
  post(peer, behind_data && peer.data != nullptr ? peer.data : peer.control, message);
}

void Peers::tell(int rank, Control message) {
  message.from = members().self();
  message.epoch = members().job_epoch();
  if (rank != members().self() && membership_.live(rank)) send(rank, message);
}

ucs_status_t Peers::on_message(void* peers, const void*, size_t, void* data, size_t bytes,
                               const ucp_am_recv_param_t* param) {
  Peers& self = *static_cast<Peers*>(peers);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;  // never sent by us
  auto message = comm::decode({static_cast<const std::byte*>(data), bytes}, self.members().size());
  if (!message || message->epoch != self.members().job_epoch() ||
      message->from == self.members().self()) {
    return UCS_OK;  // not of this job
  }
  self.stats_.bytes_received += bytes;
  ++self.stats_.messages_received;
  self.inbox_.push_back(std::move(*message));
  return UCS_OK;
}

void Peers::on_endpoint_error(void* peer, ucp_ep_h endpoint, ucs_status_t status) {
  auto& failed = *static_cast<Peer*>(peer);
  failed.owner->suspect(failed.rank, status, endpoint == failed.control);
}

// What a peer has ended on purpose says nothing about the peer; heartbeats go on.
void Peers::suspect(int rank, ucs_status_t status, bool control) {
  if (at(rank).severed && !control) return;
  membership_.suspect(rank, ucs_status_string(status), Clock::now());
}

void Peers::suspect(int rank, const std::string& reason) {
  membership_.suspect(rank, reason, Clock::now());
}

bool Peers::tend() {
  const Deadline now = Clock::now();
  if (now >= next_look_) {
    next_look_ = now + kLook;
    (void)worker_.progress_control();
  }
  if (!inbox_.empty()) {
    for (const Control& message : std::exchange(inbox_, {})) handle(message, now);
  }
  membership_.tend(now);
  return membership_.take_changed();
}

void Peers::handle(const Control& message, Deadline now) {
  Peer& peer = at(message.from);
  if (membership_.state(message.from) == comm::Membership::State::kLost) return;
  membership_.receive(message, now);
  switch (message.kind) {
    case Control::Kind::kHello: peer.greeted = static_cast<std::uint32_t>(message.id); return;
    case Control::Kind::kGoodbye:  // it came behind all data
      return membership_.data_over(message.from, "closed", now);
    case Control::Kind::kTaken:
    case Control::Kind::kWithdraw:
    case Control::Kind::kWant:
    case Control::Kind::kCredit: messages_.push_back(message); return;
    case Control::Kind::kAddress: return on_address(message);
    case Control::Kind::kSevered: peer.severed = true; return;
    case Control::Kind::kHeartbeat:
    case Control::Kind::kVerdict:
    case Control::Kind::kFarewell:
    case Control::Kind::kClosed:
    case Control::Kind::kNote: return;
  }
}

void Peers::cut(int rank) {
  close_endpoint(at(rank).data);
  close_endpoint(at(rank).control);
}

// FORCE also ends the sends that are still open there. Nothing has to wait for it.
void Peers::close_endpoint(ucp_ep_h& endpoint) {
  if (endpoint == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint, &params);
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  endpoint = nullptr;
}

void Peers::drop_data() {
  for (const auto& peer : peers_) {
    if (peer->control != nullptr) tell(peer->rank, {.kind = Control::Kind::kSevered});
  }
  for (const auto& peer : peers_) close_endpoint(peer->data);
  worker_.drop_data();
  // Nobody calls back about these any more.
  while (!with_data_.empty()) on_sent(nullptr, UCS_OK, *with_data_.begin());
}

void Peers::close() {
  for (const auto& peer : peers_) cut(peer->rank);
}

void Peers::leave(Deadline deadline) {
  membership_.say_goodbye();
  // Over the control wire may be something that was told before the goodbye.
  const auto letting_go = [&] {
    return std::ranges::any_of(peers_, [&](const auto& peer) {
      const bool lost = membership_.state(peer->rank) == comm::Membership::State::kLost;
      return !lost && peer->in_flight > 0;
    });
  };
  while ((membership_.awaits_farewell() || letting_go()) && Clock::now() < deadline) {
    (void)worker_.progress_control();
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
  return !text.empty() ? text : members().size() > 1 ? "no connection yet" : "no peers";
}

}  // namespace gradwire::ucx
