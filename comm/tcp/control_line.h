// Control messages to and from one peer, on a connection that carries nothing else.
//
//   frame := bytes:u32 message{bytes}       little-endian; message as in comm/control.h
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "comm/control.h"
#include "comm/rendezvous/socket.h"

namespace gradwire::tcp {

class ControlLine {
 public:
  // What is sent before waits for that.
  void open(rendezvous::Fd fd) {
    fd_ = std::move(fd);
    flush();
  }
  bool is_open() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }

  // Queues the message and writes what the socket takes. A heartbeat is dropped while others wait.
  void send(const comm::Control& message);
  void flush();
  bool flushed() const { return out_used_ == out_.size(); }

  // What has arrived, whole messages only; `end` says why nothing more comes. Messages that no
  // encode() made for a job of `size` ranks end the line.
  struct Arrivals {
    std::vector<comm::Control> messages;
    std::optional<std::string> end;
  };
  Arrivals receive(int size);
  // Nothing more is sent; what the peer still sends is thrown away, lest the kernel answers it with
  // a reset that overtakes what was sent.
  void close();

  const TransportStats& stats() const { return stats_; }

 private:
  bool next(int size, Arrivals& arrivals);

  rendezvous::Fd fd_;
  bool closed_ = false;
  std::vector<std::byte> out_;
  std::size_t out_used_ = 0;
  std::vector<std::byte> in_;
  TransportStats stats_;
};

}  // namespace gradwire::tcp
