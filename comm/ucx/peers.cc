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
  listen(worker.data(), over_data_);
  listen(worker.control(), over_control_);
}

void Peers::listen(ucp_worker_h worker, Inlet& inlet) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = on_message;
  handler.arg = &inlet;
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

Control Peers::hello(bool can_read, std::uint64_t generation) const {
  Control hello{.kind = Control::Kind::kHello, .flag = can_read, .id = generation};
  hello.from = members().self();
  hello.epoch = members().job_epoch();
  return hello;
}

Status Peers::connect(Deadline deadline, double timeout_seconds) {
  std::vector<int> all;
  for (const auto& peer : peers_) {
    if (peer->rank == members().self()) continue;
    all.push_back(peer->rank);
    GW_ASSIGN(const PeerAddress address, address_of(members(), peer->rank));
    const bool readable = address.process.pid != 0 && shm::can_read(address.process);
    GW_ASSIGN(peer->data, make_endpoint(*peer, worker_.data(), address.data));
    GW_ASSIGN(peer->control, make_endpoint(*peer, worker_.control(), address.control));
    // Both endpoints set up their wires now, not in a first step.
    post(*peer, peer->data, hello(readable, 0));
    post(*peer, peer->control, hello(readable, 0));
  }
  return await(all, deadline, timeout_seconds, [this](Peer& peer) -> Result<bool> {
    // Who has closed was connected to this rank, though its hello over the other wire may be late.
    const bool closed = peer.greeted && !membership_.live(peer.rank);
    peer.wired = peer.wired || closed || (peer.greeted && peer.greeted_control && let_go(peer));
    return peer.wired;
  });
}

// Whether UCX has handed all to the wires, which are up then. A closed peer needs nothing any more.
bool Peers::let_go(const Peer& peer) const {
  return peer.in_flight == 0 || !membership_.live(peer.rank);
}

Status Peers::reconnect(std::span<const int> survivors, std::uint32_t generation,
                        Deadline deadline) {
  std::vector<int> others(survivors.begin(), survivors.end());
  std::erase(others, members().self());
  // Who is alone needs no wire, and perhaps has none any more: UCX wants a device that is up.
  if (others.empty()) return {};
  const Status rewired = rewire(others, generation, deadline);
  if (rewired.ok()) return {};
  for (const int rank : others) tell(rank, {.kind = Control::Kind::kAddress, .id = generation});
  return rewired;
}

Status Peers::rewire(const std::vector<int>& others, std::uint32_t generation, Deadline deadline) {
  GW_TRY(worker_.renew_data(deadline));
  listen(worker_.data(), over_data_);
  GW_ASSIGN(const std::string address, worker_.data_address());
  for (const int rank : others) {
    tell(rank, {.kind = Control::Kind::kAddress, .id = generation, .text = address});
  }
  // What is left, for the message; nothing where all of it went into agreeing.
  const double seconds =
      std::max(0.0, std::chrono::duration<double>(deadline - Clock::now()).count());
  return await(others, deadline, seconds,
               [&](Peer& peer) { return this->rewired(peer, generation); });
}

// A hello over the new wire says that the other has this rank's address too.
Result<bool> Peers::rewired(Peer& peer, std::uint32_t generation) {
  const bool over =
      peer.address.id > generation || (peer.address.id == generation && peer.address.text.empty());
  if (over) {
    return Status(Code::kPeerLost,
                  format("ucx: rank %d has given up generation %u", peer.rank, generation));
  }
  if (peer.data == nullptr && peer.address.id == generation) {
    GW_ASSIGN(peer.data, make_endpoint(peer, worker_.data(), peer.address.text));
    peer.severed = false;
    post(peer, peer.data, hello(false, generation));
  }
  return peer.greeted == generation && peer.data != nullptr && let_go(peer);
}

// Drives the worker until all of `ranks` are `done`.
Status Peers::await(std::span<const int> ranks, Deadline deadline, double timeout_seconds,
                    const std::function<Result<bool>(Peer&)>& done) {
  while (true) {
    (void)worker_.progress_control();
    (void)worker_.progress();
    (void)tend();
    std::optional<int> missing;
    for (const int rank : ranks) {
      const comm::Membership::State state = membership_.state(rank);
      const Status gone = membership_.why(rank).with_context("ucx: connecting");
      if (state == comm::Membership::State::kLost) return gone;
      GW_ASSIGN(const bool there, done(at(rank)));
      // One that was there may have closed by now.
      if (!there && state == comm::Membership::State::kClosed) return gone;
      if (!there) missing = rank;
    }
    if (!missing) return {};
    if (Clock::now() >= deadline) {
      return Status(Code::kTimedOut,
                    format("ucx: rank %d did not answer within %.1f s", *missing, timeout_seconds));
    }
    GW_TRY(worker_.sleep(deadline, sending_ > 0));
  }
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
  if (with_data) with_data_.insert(mine);
  if (!UCS_PTR_IS_PTR(request)) {
    on_sent(nullptr, UCS_OK, mine);
    if (UCS_PTR_IS_ERR(request)) suspect(peer.rank, UCS_PTR_STATUS(request), !with_data);
  }
}

// What the peer waits for may not come after the goodbye.
void Peers::send(int rank, const Control& message) {
  Peer& peer = at(rank);
  const bool beat = message.kind == Control::Kind::kHeartbeat;
  if (beat && peer.in_flight >= kMostInFlight) return;
  const bool behind_data =
      message.kind == Control::Kind::kTaken || message.kind == Control::Kind::kGoodbye;
  post(peer, behind_data && peer.data != nullptr ? peer.data : peer.control, message);
}

void Peers::tell(int rank, Control message) {
  message.from = members().self();
  message.epoch = members().job_epoch();
  if (rank != members().self() && membership_.live(rank)) send(rank, message);
}

ucs_status_t Peers::on_message(void* inlet, const void*, size_t, void* data, size_t bytes,
                               const ucp_am_recv_param_t* param) {
  const auto& [owner, control] = *static_cast<const Inlet*>(inlet);
  Peers& self = *owner;
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;  // never sent by us
  auto message = comm::decode({static_cast<const std::byte*>(data), bytes}, self.members().size());
  if (!message || message->epoch != self.members().job_epoch() ||
      message->from == self.members().self()) {
    return UCS_OK;  // not of this job
  }
  self.bytes_received_ += bytes;
  ++self.messages_received_;
  self.inbox_.push_back({std::move(*message), control});
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
    for (const auto& [message, control] : std::exchange(inbox_, {})) handle(message, control, now);
  }
  membership_.tend(now);
  return membership_.take_changed();
}

void Peers::handle(const Control& message, bool control, Deadline now) {
  Peer& peer = at(message.from);
  if (membership_.state(message.from) == comm::Membership::State::kLost) return;
  membership_.receive(message, now);
  switch (message.kind) {
    case Control::Kind::kHello:
      if (control) {
        peer.greeted_control = true;
      } else {
        peer.greeted = message.id;
      }
      if (message.id == 0) peer.reads_us = message.flag;
      return;
    case Control::Kind::kGoodbye:  // it came behind all data
      return membership_.data_over(message.from, "closed", now);
    case Control::Kind::kTaken:
    case Control::Kind::kWithdraw:
    case Control::Kind::kWant:
    case Control::Kind::kCredit: messages_.push_back(message); return;
    case Control::Kind::kAddress: peer.address = message; return;
    case Control::Kind::kSevered: peer.severed = true; return;
    case Control::Kind::kHeartbeat:
    case Control::Kind::kVerdict:
    case Control::Kind::kFarewell:
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
  for (int rank = 0; rank < members().size(); ++rank) tell(rank, {.kind = Control::Kind::kSevered});
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
  return text.empty() ? "no peers" : text;
}

}  // namespace gradwire::ucx
