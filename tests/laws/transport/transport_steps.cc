#include "tests/laws/transport/transport_steps.h"

#include <gtest/gtest.h>

#include "base/philox.h"

namespace gradwire::laws {

Bytes pattern(std::size_t size, std::uint64_t seed, Transport* alive) {
  Bytes bytes(size);
  const std::uint64_t start = mix64(seed ^ size);
  for (std::size_t i = 0; i < size; ++i) {
    if (alive != nullptr && i % (1 << 20) == 0) (void)alive->progress();
    bytes[i] = static_cast<std::byte>(((start + i) * 0x9E3779B97F4A7C15u) >> 56);
  }
  return bytes;
}

Tag tag(std::uint64_t operation) { return Tag::make(1, operation, 0).value(); }

Transfer send(int peer, Tag tag, Bytes& data) {
  return {Transfer::Kind::kSend, peer, tag, ByteSpan(data), {}};
}
Transfer recv(int peer, Tag tag, Bytes& data) {
  return {Transfer::Kind::kRecv, peer, tag, ByteSpan(data), {}};
}

Ticket post(Transport& transport, std::initializer_list<Transfer> batch) {
  const auto ticket = transport.post(std::span(batch.begin(), batch.size()));
  EXPECT_TRUE(ticket.has_value()) << ticket.error().message();
  return ticket.has_value() ? ticket.value() : Ticket{};
}

Status settle(Transport& transport, Ticket ticket, Deadline until) {
  while (true) {
    if (auto moved = transport.progress(); !moved.has_value()) return moved.error();
    if (auto outcome = transport.poll(ticket)) return *outcome;
    if (std::chrono::steady_clock::now() >= until) break;
    GW_TRY(transport.wait(until));
  }
  return Status(Code::kTimedOut, "the ticket did not settle");
}

Status exchange(Transport& transport, std::initializer_list<Transfer> batch, Deadline until) {
  return settle(transport, post(transport, batch), until);
}

int first_lost(Transport& transport, Deadline until) {
  while (std::chrono::steady_clock::now() < until) {
    if (const auto moved = transport.progress(); !moved.has_value()) return -1;
    if (const auto loss = transport.lost()) return loss->rank;
    if (!transport.wait(until).ok()) return -1;
  }
  return -1;
}

void idle(Transport& transport, double seconds) {
  const Deadline until = deadline_in(seconds);
  while (std::chrono::steady_clock::now() < until) {
    if (!transport.progress().has_value() || !transport.wait(until).ok()) return;
  }
}

}  // namespace gradwire::laws
