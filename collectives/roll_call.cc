#include "collectives/roll_call.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>

namespace gradwire {
namespace {

constexpr std::size_t kBytes = 96;
using Text = std::array<char, kBytes>;  // padded with zeros

Text text_of(std::string_view description) {
  Text text{};
  std::memcpy(text.data(), description.data(), std::min(description.size(), kBytes - 1));
  return text;
}

struct Answer {
  int peer = 0;
  Text text{};
  std::optional<Ticket> send = {};
  std::optional<Ticket> recv = {};
  bool arrived = false;
};

void look(Transport& transport, Answer& answer) {
  if (answer.send && transport.poll(*answer.send)) answer.send.reset();
  if (!answer.recv) return;
  const std::size_t bytes = transport.received(*answer.recv, 0);
  if (const auto outcome = transport.poll(*answer.recv)) {
    answer.arrived = outcome->ok() && bytes == kBytes;
    answer.recv.reset();
  }
}

bool is_open(const Answer& answer) { return answer.send || answer.recv; }
bool is_awaited(const Answer& answer) { return answer.recv.has_value(); }

template <typename Predicate>
void look_until(Transport& transport, std::vector<Answer>& answers, double seconds,
                const Predicate& pending) {
  const Deadline until = deadline_in(seconds);
  while (true) {
    if (!transport.progress().has_value()) return;
    for (Answer& answer : answers) look(transport, answer);
    const Deadline now = std::chrono::steady_clock::now();
    if (std::ranges::none_of(answers, pending) || now >= until) return;
    if (!transport.wait(std::min(until, now + std::chrono::milliseconds(5))).ok()) return;
  }
}

}  // namespace

RollCall take_roll_call(Transport& transport, const Route& route, std::string_view description,
                        double seconds) {
  RollCall call;
  const auto tag = Tag::make(route.communicator, route.operation, kRollCallChannel);
  if (!tag.has_value()) return call;
  Text own = text_of(description);
  std::vector<Answer> answers;
  for (const int peer : *route.group) {
    if (peer != transport.rank()) answers.push_back({.peer = peer});
  }
  const auto bytes_of = [](Text& text) { return std::as_writable_bytes(std::span(text)); };
  for (Answer& answer : answers) {
    const Transfer send{Transfer::Kind::kSend, answer.peer, tag.value(), bytes_of(own), {}};
    const Transfer recv{Transfer::Kind::kRecv, answer.peer, tag.value(), bytes_of(answer.text), {}};
    if (auto ticket = transport.post({&send, 1}, {}); ticket.has_value())
      answer.send = ticket.value();
    if (auto ticket = transport.post({&recv, 1}, {}); ticket.has_value())
      answer.recv = ticket.value();
  }
  look_until(transport, answers, seconds, is_awaited);
  for (Answer& answer : answers) {
    if (answer.arrived && answer.text != own && call.disagreement.empty()) {
      answer.text.back() = 0;
      call.disagreement = "rank " + std::to_string(answer.peer) + " runs " + answer.text.data();
    }
    if (!answer.arrived) call.missing.push_back(answer.peer);
    if (answer.send) transport.cancel(*answer.send);
    if (answer.recv) transport.cancel(*answer.recv);
  }
  std::ranges::sort(call.missing);
  look_until(transport, answers, 0.1, is_open);
  call.settled = std::ranges::none_of(answers, is_open);
  return call;
}

}  // namespace gradwire
