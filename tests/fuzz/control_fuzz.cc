// What ranks tell each other beside the data: control messages, alone and on a line, and the
// engines' notes within them.
#include <sys/socket.h>

#include <algorithm>

#include "base/check.h"
#include "collectives/failure/notes.h"
#include "comm/control.h"
#include "comm/tcp/control_line.h"
#include "tests/fuzz/fuzz_target.h"

namespace gradwire::fuzz {
namespace {

constexpr int kRanks = 300;

// What is understood is what encode() makes, and names ranks of the job alone.
void check(const comm::Control& message) {
  for (const int rank : {message.from, message.about, message.reporter}) {
    GW_CHECK(rank >= 0 && rank < kRanks);
  }
  GW_CHECK(encode(message).size() <= comm::kMostControlBytes);
}

void parse(ConstByteSpan bytes) {
  if (const auto message = comm::decode(bytes, kRanks)) {
    check(*message);
    GW_CHECK(std::ranges::equal(encode(*message), bytes));
  }
  if (const auto note = decode_note(bytes, kRanks)) {
    for (const int rank : note->proposal.lost) GW_CHECK(rank >= 0 && rank < kRanks);
    GW_CHECK(std::ranges::includes(note->proposal.lost, note->proposal.certain));
    GW_CHECK(std::ranges::equal(encode(*note), bytes));
  }
}

// The bytes come in pieces; the first byte says how large these are.
void read_line(ConstByteSpan bytes) {
  int ends[2] = {-1, -1};
  GW_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const rendezvous::Fd writer(ends[0]);
  tcp::ControlLine line;
  line.open(rendezvous::Fd(ends[1]));
  const std::size_t piece = bytes.empty() ? 1 : 1 + std::to_integer<std::size_t>(bytes[0]) * 4;
  bool going = true;
  while (going && !bytes.empty()) {
    const ConstByteSpan some = bytes.first(std::min(piece, bytes.size()));
    bytes = bytes.subspan(some.size());
    GW_CHECK(::send(writer.get(), some.data(), some.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(some.size()));
    const auto arrivals = line.receive(kRanks);
    for (const comm::Control& message : arrivals.messages) check(message);
    going = !arrivals.end;
  }
  line.close();
}

Bytes plain(const std::vector<std::byte>& body) {
  Bytes bytes;
  for (const std::byte b : body) bytes.push_back(std::to_integer<std::uint8_t>(b));
  return bytes;
}

Bytes& add_framed(Bytes& line, const comm::Control& message) {
  const Bytes body = plain(encode(message));
  for (int i = 0; i < 4; ++i) line.push_back(static_cast<std::uint8_t>(body.size() >> (8 * i)));
  line.insert(line.end(), body.begin(), body.end());
  return line;
}

}  // namespace

std::vector<Bytes> seeds() {
  using Kind = comm::Control::Kind;
  const comm::Control verdict{.kind = Kind::kVerdict,
                              .epoch = 3,
                              .from = 1,
                              .about = 2,
                              .reporter = 1,
                              .certain = true,
                              .id = 5,
                              .text = "no heartbeat for 5.0 s"};
  const EngineNote ask{.kind = EngineNote::Kind::kAsk, .operation = 41, .text = "barrier"};
  const EngineNote propose{
      .kind = EngineNote::Kind::kPropose,
      .proposal = {.generation = 2, .ready = true, .lost = {1, 4, 299}, .certain = {4}}};
  const std::vector<std::byte> note = encode(propose);
  const comm::Control carried{.kind = Kind::kNote,
                              .from = 2,
                              .text = {reinterpret_cast<const char*>(note.data()), note.size()}};
  Bytes line;
  add_framed(add_framed(add_framed(line, {.kind = Kind::kHello, .flag = true, .from = 7}), verdict),
             carried);
  return {plain(encode(verdict)),
          plain(encode(comm::Control{.kind = Kind::kGoodbye, .gone = false})),
          plain(encode(comm::Control{.kind = Kind::kAddress, .text = std::string(4096, 'a')})),
          plain(encode(ask)),
          plain(note),
          line,
          {255, 255, 255, 255, 0}};
}

}  // namespace gradwire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  gradwire::fuzz::parse(bytes);
  gradwire::fuzz::read_line(bytes);
  return 0;
}
