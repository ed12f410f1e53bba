// The connections of this rank, and sleeping on them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/membership.h"
#include "comm/rendezvous/socket.h"
#include "comm/tcp/control_line.h"
#include "comm/tcp/inbound.h"
#include "comm/tcp/meeting.h"
#include "comm/tcp/outbound.h"
#include "gradwire/status.h"

namespace gradwire::tcp {

struct Peer {
  Outbound out;
  Inbound in;
  ControlLine control;
  bool control_ready = false;  // something may have come there
  bool bulk_ended = false;     // the peer sends nothing more
  pid_t pid = 0;               // 0: not of this host
  bool over_link = false;      // it is on another host
};

// One thread at a time, but for wake().
class Peers final : public comm::Membership::Carrier {
 public:
  explicit Peers(int size);
  ~Peers() override;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  Status start();
  // `epoch`: the top 8 bits of every tag.
  Status open(std::vector<Links> links, int own_rank, std::uint64_t epoch);

  // After Tickets::cancel_all(): messages are of another generation from now on.
  void rebuild(int own_rank, std::uint64_t epoch);
  // Of the rank's process, if it is of this host's process numbers.
  void know_process(int rank, pid_t pid) { at(rank).pid = pid; }
  void know_link(int rank) { at(rank).over_link = true; }

  int size() const { return static_cast<int>(peers_.size()); }
  const Peer& at(int rank) const { return *peers_[static_cast<std::size_t>(rank)]; }
  Peer& at(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }

  // Learns from the kernel which connections have news; sleeps until one has, wake() or `until`
  // (not at all if that has passed).
  Status look(Deadline until);
  void wake() const;

  void send(int rank, const comm::Control& message) override { at(rank).control.send(message); }
  void cut(int rank) override;
  bool surely_gone(int rank) const override;

  std::uint64_t control_bytes_sent() const;
  std::uint64_t control_messages_sent() const;

 private:
  enum class Line : std::uint8_t { kBulk, kControl, kWake };
  Status watch(int fd, int rank, Line line, std::uint32_t events);

  std::vector<std::unique_ptr<Peer>> peers_;
  rendezvous::Fd poll_;
  rendezvous::Fd wake_;
};

}  // namespace gradwire::tcp
