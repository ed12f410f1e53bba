#include "comm/tcp/control_line.h"

#include <sys/socket.h>

#include <bit>
#include <cstring>

#include "base/text.h"

namespace gradwire::tcp {
namespace {

using rendezvous::Moved;

constexpr std::size_t kLengthBytes = 4;
static_assert(std::endian::native == std::endian::little, "lengths are sent as they lie in memory");
constexpr std::uint32_t kLongest = comm::kMostControlBytes;
// A peer that takes nothing is not sent more than this.
constexpr std::size_t kMostPending = 256 << 10;

}  // namespace

void ControlLine::send(const comm::Control& message) {
  if (closed_) return;
  using Kind = comm::Control::Kind;
  const bool beat = message.kind == Kind::kHeartbeat;
  // Their number is that of messages that the peer itself has announced.
  const bool awaited = message.kind == Kind::kWant || message.kind == Kind::kTaken;
  const bool full = !awaited && out_.size() - out_used_ > kMostPending;
  if ((beat && !flushed()) || full) return;
  const std::vector<std::byte> body = encode(message);
  const auto length = static_cast<std::uint32_t>(body.size());
  std::byte prefix[kLengthBytes];
  std::memcpy(prefix, &length, sizeof length);
  out_.insert(out_.end(), prefix, prefix + kLengthBytes);
  out_.insert(out_.end(), body.begin(), body.end());
  stats_.bytes_sent += kLengthBytes + body.size();
  ++stats_.messages_sent;
  flush();
}

void ControlLine::flush() {
  if (!fd_.valid()) return;
  while (!flushed()) {
    const Moved moved = rendezvous::write_some(fd_.get(), ConstByteSpan(out_).subspan(out_used_));
    if (moved.kind != Moved::Kind::kSome) return;  // a broken line shows when it is read
    out_used_ += moved.bytes;
  }
  out_.clear();
  out_used_ = 0;
}

// Takes one message from what has been read; false when there is no whole one, or the line ends.
bool ControlLine::next(int size, Arrivals& arrivals) {
  std::uint32_t length = 0;
  if (arrivals.end || in_.size() < kLengthBytes) return false;
  std::memcpy(&length, in_.data(), sizeof length);
  if (length > kLongest) {
    arrivals.end = format("control message of %u bytes (expected at most %u)", length, kLongest);
    return false;
  }
  if (in_.size() < kLengthBytes + length) return false;
  const auto message = comm::decode(ConstByteSpan(in_).subspan(kLengthBytes, length), size);
  if (message) {
    arrivals.messages.push_back(*message);
    ++stats_.messages_received;
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(kLengthBytes + length));
  } else {
    arrivals.end = "an invalid control message";
  }
  return message.has_value();
}

ControlLine::Arrivals ControlLine::receive(int size) {
  Arrivals arrivals;
  while (fd_.valid() && !arrivals.end) {
    std::byte chunk[1024];
    const Moved moved = rendezvous::read_some(fd_.get(), chunk);
    if (moved.kind == Moved::Kind::kWait) break;
    if (moved.kind == Moved::Kind::kClosed) {
      arrivals.end = moved.error == 0 ? "connection closed" : std::strerror(moved.error);
    }
    stats_.bytes_received += moved.bytes;
    in_.insert(in_.end(), chunk, chunk + moved.bytes);
    while (next(size, arrivals)) {
    }
  }
  return arrivals;
}

void ControlLine::close() {
  closed_ = true;
  if (fd_.valid()) {
    (void)::shutdown(fd_.get(), SHUT_WR);
    std::byte chunk[1024];
    for (int i = 0; i < 64; ++i) {
      if (rendezvous::read_some(fd_.get(), chunk).kind != Moved::Kind::kSome) break;
    }
  }
  fd_ = rendezvous::Fd();
}

}  // namespace gradwire::tcp
