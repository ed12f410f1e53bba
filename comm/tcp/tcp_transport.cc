#include "comm/tcp/tcp_transport.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/text.h"
#include "comm/descriptors.h"
#include "comm/host.h"
#include "comm/members.h"
#include "comm/membership.h"
#include "comm/rendezvous/hmac.h"
#include "comm/tcp/greeting.h"
#include "comm/tcp/interfaces.h"
#include "comm/tcp/meeting.h"
#include "comm/tcp/peers.h"
#include "comm/tcp/sockets.h"
#include "comm/tcp/tickets.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kFlushSeconds = 0.3;  // for messages that have been begun, when this rank leaves
constexpr double kLeaveSeconds = 0.5;  // a goodbye waits so long for peers that do not answer
// Of rings over loopback and over links of 1 and 10 Gbit/s, 2 and 4 ranks: parts of less than
// 128 KiB lose more to their system calls than they gain by travelling beside each other, on
// loopback, where nothing travels, less than 256 KiB; on a link of 10 Gbit/s 512 KiB is slower than
// any smaller one from 1 MiB up.
constexpr std::size_t kSegment = std::size_t{256} << 10;
constexpr std::size_t kLeastSegment = std::size_t{128} << 10;
constexpr std::size_t kLeastLoopbackSegment = std::size_t{256} << 10;
constexpr auto kLeaveLook = std::chrono::milliseconds(10);
// That a message has reached its rank is no news that the kernel tells.
constexpr auto kHeldLook = std::chrono::microseconds(100);
// Control messages, lost connections and room in full ones can wait so long.
constexpr int kTurnsUnlooked = 8;

class TcpTransport final : public comm::TicketTransport<tcp::Tickets> {
 public:
  TcpTransport(const Rendezvous& rendezvous, const TcpOptions& options)
      : TicketTransport(rendezvous), options_(options), peers_(rendezvous.rank, rendezvous.size) {}
  ~TcpTransport() override;
  Status start();

  TransportCaps caps() const override;
  TransportStats stats() const override;

  Result<Ticket> post(std::span<const Transfer> batch) override;
  void gather(bool more) override { tickets_->gather(more); }
  Result<int> progress() override;
  bool has_message(int peer, Tag tag, std::uint64_t any) override {
    return peers_.at(peer).in.has_message(tag.bits(), any);
  }
  Status wait(Deadline until) override;
  void wake() override { peers_.wake(); }
  Status rebuild(std::span<const int> survivors, std::uint32_t generation, Deadline) override;

 private:
  struct Listeners;
  Result<Listeners> listen() const;
  Result<std::vector<tcp::PeerAddress>> addresses(const Listeners& listeners);
  Status connect(Listeners listeners, Deadline deadline);
  Status open(tcp::Meeting::News link);
  Status greet(Deadline now);
  Status advance();
  void hear_control(Deadline now);

  TcpOptions options_;
  tcp::Peers peers_;
  std::unique_ptr<comm::Membership> membership_;
  bool one_host_ = true;  // all ranks are on this one, as all of them know
  int turns_unlooked_ = 0;
};

// Where this rank can be called. A port is 0 where there is no such address.
struct TcpTransport::Listeners {
  // The address in the members' table; "-" for none of the interface, and a word of chance.
  std::string text() const {
    return format("%s %s %d %d %s", host.c_str(), port > 0 ? outside.address.c_str() : "-", port,
                  loopback_port, rendezvous::random_hex(16).c_str());
  }

  std::string host = comm::network_identity();
  tcp::Interface outside;
  std::vector<rendezvous::Fd> fds;
  int port = 0;
  int loopback_port = 0;
};

Result<TcpTransport::Listeners> TcpTransport::listen() const {
  Listeners listeners;
  const std::vector<tcp::Interface> interfaces = tcp::list_interfaces();
  GW_ASSIGN(listeners.outside, tcp::choose_interface(interfaces, options_.interface));
  if (!listeners.outside.address.empty() && !listeners.outside.loopback) {
    GW_ASSIGN(rendezvous::Fd fd, rendezvous::listen_on(listeners.outside.address, 0));
    GW_ASSIGN(listeners.port, rendezvous::local_port(fd.get()));
    listeners.fds.push_back(std::move(fd));
  }
  Result<rendezvous::Fd> loopback = rendezvous::listen_on("127.0.0.1", 0);
  if (loopback.has_value()) {
    GW_ASSIGN(listeners.loopback_port, rendezvous::local_port(loopback.value().get()));
    listeners.fds.push_back(std::move(loopback).value());
  }
  if (listeners.fds.empty()) {
    return Status(Code::kUnsupported,
                  "tcp: nothing to listen on (interfaces: " + tcp::describe(interfaces) +
                      "); expected one that is up, or loopback");
  }
  return listeners;
}

// By rank; and what this rank knows of the ways there.
Result<std::vector<tcp::PeerAddress>> TcpTransport::addresses(const Listeners& listeners) {
  std::vector<tcp::PeerAddress> addresses;
  std::map<std::string, std::string> ranks_by_way;
  for (int peer = 0; peer < size(); ++peer) {
    int port = 0, loopback_port = 0;
    char host[128] = {}, address[64] = {}, token[64] = {};
    const int fields =
        std::sscanf(membership_->members().at(peer).address.c_str(), "%127s %63s %d %d %63s", host,
                    address, &port, &loopback_port, token);
    if (fields != 5) {
      return Status(Code::kRankMismatch, format("tcp: the address of rank %d is none", peer));
    }
    const bool near = host == listeners.host, outside = listeners.port > 0;
    if (!near && (port == 0 || !outside)) {
      return Status(
          Code::kUnsupported,
          format("tcp: rank %d has no address for rank %d, which is on another host (expected an "
                 "interface that is up and no bridge; set GRADWIRE_IFNAME to one)",
                 outside ? peer : rank(), outside ? rank() : peer));
    }
    const bool here = near && loopback_port > 0;
    one_host_ = one_host_ && here;
    addresses.push_back({here ? "127.0.0.1" : address, here ? loopback_port : port,
                         tcp::greeting_key(rendezvous_.secret, rendezvous_.job, token)});
    if (peer == rank()) continue;
    peers_.at(peer).over_link = !near;
    std::string& ranks =
        ranks_by_way[near ? "loopback" : listeners.outside.name + " " + listeners.outside.address];
    ranks += format(ranks.empty() ? "%d" : ", %d", peer);
  }
  for (const auto& [way, ranks] : ranks_by_way) {
    const std::string congestion = tcp::congestion_of(way == "loopback", options_.congestion);
    description_ +=
        (description_.empty() ? "" : "; ") + way + " (" + congestion + ") to rank " + ranks;
  }
  return addresses;
}

Status TcpTransport::connect(Listeners listeners, Deadline deadline) {
  GW_ASSIGN(std::vector<tcp::PeerAddress> known, addresses(listeners));
  if (one_host_ && listeners.fds.size() > 1) listeners.fds.erase(listeners.fds.begin());
  auto meeting = std::make_unique<tcp::Meeting>(rank(), std::move(known), std::move(listeners.fds));
  GW_TRY(meeting->start());
  GW_ASSIGN(std::vector<tcp::Meeting::News> links,
            meeting->run(membership_->neighbours(), deadline, rendezvous_.timeout_seconds));
  GW_TRY(peers_.meet(std::move(meeting)));
  for (tcp::Meeting::News& link : links) GW_TRY(open(std::move(link)));
  return {};
}

Status TcpTransport::open(tcp::Meeting::News link) {
  if (link.kind == tcp::LinkKind::kControl) {
    tcp::prepare_control(link.fd.get(), comm::duration_of(options_.liveness_seconds));
    GW_TRY(peers_.open(link.rank, link.kind, std::move(link.fd)));
    membership_->heard(link.rank);
    membership_->welcome(link.rank);
    return {};
  }
  const bool here = !peers_.at(link.rank).over_link;
  tcp::prepare_bulk(link.fd.get(), here, options_.congestion);
  if (!here && options_.link_rate > 0) tcp::limit_rate(link.fd.get(), 2 * options_.link_rate);
  GW_TRY(peers_.open(link.rank, link.kind, std::move(link.fd)));
  tickets_->linked(link.rank);
  return {};
}

// Connections that have been made, or could not be.
Status TcpTransport::greet(Deadline now) {
  GW_ASSIGN(std::vector<tcp::Meeting::News> news, peers_.take_news(now));
  for (tcp::Meeting::News& one : news) {
    if (!membership_->live(one.rank)) continue;
    if (one.fd.valid()) {
      GW_TRY(open(std::move(one)));
    } else if (membership_->leaving(one.rank)) {
      peers_.give_up(one.rank);
      membership_->data_over(one.rank, "closed", now);
    } else if (one.error != 0) {
      membership_->suspect(one.rank, std::strerror(one.error), now);
    }
  }
  return {};
}

Status TcpTransport::start() {
  GW_TRY(
      comm::check_job("tcp", rendezvous_, options_.heartbeat_seconds, options_.liveness_seconds));
  const Deadline deadline = deadline_in(rendezvous_.timeout_seconds);
  // Listeners, epoll and the like, and two connections with each neighbour. More come later.
  const auto neighbours = static_cast<std::size_t>(std::min(size() - 1, 4));
  GW_TRY(comm::make_room_for_descriptors(
      8 + 2 * neighbours, format("tcp: connections to some of %d ranks", size() - 1)));
  Listeners listeners;
  if (size() > 1) {
    GW_ASSIGN(listeners, listen());
  }
  GW_ASSIGN(comm::Members members, comm::Members::meet(rendezvous_, "tcp", listeners.text()));
  GW_TRY(peers_.start(members.epoch()));
  membership_ = std::make_unique<comm::Membership>(
      peers_, std::move(members),
      comm::MembershipOptions{comm::duration_of(options_.heartbeat_seconds),
                              comm::duration_of(options_.liveness_seconds), options_.log},
      Clock::now());
  tickets_ = std::make_unique<tcp::Tickets>(peers_, *membership_);
  membership_->watch_also([this] { return tickets_->awaited(); });
  if (size() > 1) GW_TRY(connect(std::move(listeners), deadline));
  description_ = format("tcp: rank %d of %d; ", rank(), size()) +
                 (description_.empty() ? "no peers" : description_);
  options_.log(LogLevel::kInfo, description_);
  return {};
}

TcpTransport::~TcpTransport() {
  if (!tickets_) return;
  tickets_->cancel_all();
  for (const Deadline until = deadline_in(kFlushSeconds);
       tickets_->unwritten() && Clock::now() < until;) {
    if (!advance().ok() || !peers_.look(Clock::now() + kLeaveLook).ok()) break;
  }
  // What still comes is thrown away: what is unread when a connection is closed makes the kernel
  // forget what it has not delivered.
  peers_.rebuild(membership_->members().epoch() + std::uint64_t{1});
  membership_->say_goodbye();  // first: who sees the end alone takes it for a loss
  for (int peer = 0; peer < size(); ++peer) peers_.at(peer).out.shut();
  for (const Deadline until = deadline_in(kLeaveSeconds);
       (membership_->awaits_farewell() || tickets_->undelivered()) && Clock::now() < until;) {
    if (!peers_.look(Clock::now() + kLeaveLook).ok() || !advance().ok()) break;
  }
}

TransportCaps TcpTransport::caps() const {
  TransportCaps caps;
  caps.notes = true;
  caps.segment_bytes = kSegment;
  caps.least_segment_bytes = one_host_ ? kLeastLoopbackSegment : kLeastSegment;
  return caps;
}

TransportStats TcpTransport::stats() const {
  TransportStats stats = tickets_->stats();
  for (int peer = 0; peer < size(); ++peer) {
    stats = comm::sum(stats, peers_.at(peer).control.stats());
  }
  return stats;
}

Result<Ticket> TcpTransport::post(std::span<const Transfer> batch) {
  GW_TRY(comm::check_batch(batch, size(), "the TCP transport takes no other"));
  return tickets_->post(batch);
}

void TcpTransport::hear_control(Deadline now) {
  peers_.heard().visit([&](int rank) {
    tcp::Peer& peer = peers_.at(rank);
    const tcp::ControlLine::Arrivals arrivals = peer.control.receive(size());
    for (const comm::Control& message : arrivals.messages) {
      if (message.from != rank) continue;
      membership_->receive(message, now);
      tickets_->on_message(message);
    }
    if (membership_->leaving(rank)) {
      peer.in.drain();
      peers_.active().add(rank);
      if (!peers_.receives_from(rank)) membership_->data_over(rank, "closed", now);
    } else if (arrivals.end) {
      membership_->suspect(rank, *arrivals.end, now);
    }
    return false;
  });
}

// One round of everything that needs no waiting. What a receive waits for is read without asking
// first whether it is there; that question is as dear as the answer.
Status TcpTransport::advance() {
  if (!tickets_->ask() || ++turns_unlooked_ == kTurnsUnlooked) {
    turns_unlooked_ = 0;
    GW_TRY(peers_.look(Deadline()));
  }
  const Deadline now = Clock::now();
  GW_TRY(greet(now));
  (void)tickets_->move(now);
  hear_control(now);
  membership_->tend(now);
  if (membership_->take_changed()) tickets_->on_losses();
  return {};
}

Result<int> TcpTransport::progress() {
  GW_TRY(advance());
  return tickets_->take_settled();
}

Status TcpTransport::wait(Deadline until) {
  GW_TRY(advance());
  if (tickets_->any_settled() || tickets_->runnable() || membership_->has_notes()) {
    return {};
  }
  const Deadline now = Clock::now();
  if (tickets_->holding()) until = std::min(until, now + kHeldLook);
  GW_TRY(peers_.look(std::min({until, membership_->next_event(now), peers_.next_event()})));
  return advance();
}

// The connections stay: what is left of earlier messages is read and thrown away.
Status TcpTransport::rebuild(std::span<const int> survivors, std::uint32_t generation, Deadline) {
  tickets_->sever();
  GW_TRY(membership_->rebuild(survivors, generation));
  peers_.rebuild(membership_->members().epoch());
  tickets_->restart();
  for (const int peer : membership_->neighbours()) {  // some are new
    if (peer > rank()) peers_.connect(peer, true);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp_transport(const Rendezvous& rendezvous,
                                                      const TcpOptions& options) {
  auto transport = std::make_unique<TcpTransport>(rendezvous, options);
  GW_TRY(transport->start());
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace gradwire
