// Frames of one direction between two ranks, over a pair of connected sockets in this process.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "comm/tcp/inbound.h"
#include "comm/tcp/outbound.h"

namespace gradwire::tcp {
using Bytes = std::vector<std::byte>;
inline constexpr std::uint64_t kPrefix = std::uint64_t{7} << 56 | std::uint64_t{1} << 40;

inline Bytes pattern(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed + i / 256);
  return bytes;
}

class TcpStream : public testing::Test {
 protected:
  TcpStream() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    in_fd_ = ends[1];
    out_.open(std::make_shared<rendezvous::Fd>(ends[0]));
    out_.rebuild(kPrefix);
    in_.open(std::make_shared<rendezvous::Fd>(ends[1]));
    in_.rebuild(kPrefix);
  }
  Op& op(Transfer::Kind kind, std::uint64_t tag, Bytes& data) {
    batches_.push_back(std::make_unique<Batch>());
    Batch& batch = *batches_.back();
    Op& op = batch.ops.emplace_back();
    op.batch = &batch;
    op.kind = kind;
    op.peer = 1;
    op.tag = tag;
    op.data = ByteSpan(data);
    return op;
  }
  Op& send(std::uint64_t tag, Bytes& data) {
    Op& sent = op(Transfer::Kind::kSend, tag, data);
    out_.push(sent);
    return sent;
  }
  Op& receive(std::uint64_t tag, Bytes& data) {
    Op& wanted = op(Transfer::Kind::kRecv, tag, data);
    in_.post(wanted, done_);
    return wanted;
  }
  bool is_done(const Op& op) const {
    return std::find(done_.begin(), done_.end(), &op) != done_.end();
  }
  // Moves bytes until neither side gets further; `step` bounds each read and write. Time stands
  // still, but for `ms_a_turn`.
  Inbound::Outcome move(std::size_t step = 1 << 20, int ms_a_turn = 0) {
    Inbound::Outcome outcome;
    for (int idle = 0, turns = 0; idle < 3 && turns < 200000; ++turns) {
      out_.unblock();
      in_.notice(ended_);
      const std::size_t wrote = out_.write(step, done_).bytes;
      const std::size_t before = done_.size();
      if (in_.runnable()) outcome = in_.read(step, done_, now_);
      now_ += std::chrono::milliseconds(ms_a_turn);
      if (outcome.kind != Inbound::Outcome::Kind::kOpen) break;
      idle = wrote + outcome.bytes > 0 || done_.size() > before ? 0 : idle + 1;
    }
    return outcome;
  }

  Outbound out_;
  Inbound in_;
  int in_fd_ = -1;
  bool ended_ = false;
  Deadline now_{};
  std::vector<Op*> done_;
  std::vector<std::unique_ptr<Batch>> batches_;
};

}  // namespace gradwire::tcp
