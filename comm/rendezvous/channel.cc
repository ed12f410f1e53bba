#include "comm/rendezvous/channel.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace gradwire::rendezvous {
namespace {

constexpr std::size_t kLengthBytes = 4;

// Drops the used front of a buffer once it is worth a move of the rest.
void compact(std::vector<std::byte>& buffer, std::size_t& used) {
  if (used < buffer.size() && used < 65536) return;
  buffer.erase(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(used));
  used = 0;
}

std::array<std::byte, 8> little_endian(std::uint64_t value) {
  std::array<std::byte, 8> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
  return out;
}

}  // namespace

void Channel::seal(const Mac& send_key, const Mac& receive_key) {
  send_seal_ = Seal{send_key, 0};
  receive_seal_ = Seal{receive_key, 0};
}

Mac Channel::mac_of(Seal& seal, ConstByteSpan payload) {
  return hmac(seal.key, {little_endian(seal.count++), payload});
}

void Channel::send(Kind kind, ConstByteSpan body) {
  const auto length = little_endian(body.size() + 1);
  out_.insert(out_.end(), length.begin(), length.begin() + kLengthBytes);
  const std::size_t start = out_.size();
  out_.push_back(static_cast<std::byte>(kind));
  out_.insert(out_.end(), body.begin(), body.end());
  if (!send_seal_) return;
  const Mac mac = mac_of(*send_seal_, ConstByteSpan(out_).subspan(start));
  out_.insert(out_.end(), mac.begin(), mac.end());
}

void Channel::consume(std::size_t bytes) {
  out_used_ += bytes;
  compact(out_, out_used_);
}

void Channel::receive(ConstByteSpan bytes) { in_.insert(in_.end(), bytes.begin(), bytes.end()); }

Result<std::optional<Frame>> Channel::next() {
  const ConstByteSpan have = ConstByteSpan(in_).subspan(in_used_);
  if (have.size() < kLengthBytes) return std::optional<Frame>();
  std::size_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= std::to_integer<std::size_t>(have[i]) << (8 * i);
  if (length < 1 || length > max_payload_)
    return Status(Code::kCorruptPayload,
                  format("rendezvous frame of %zu bytes (expected 1..%zu)", length, max_payload_));
  const std::size_t total = kLengthBytes + length + (receive_seal_ ? sizeof(Mac) : 0);
  if (have.size() < total) return std::optional<Frame>();

  const ConstByteSpan payload = have.subspan(kLengthBytes, length);
  if (receive_seal_) {
    Mac seen{};
    const ConstByteSpan trailer = have.subspan(kLengthBytes + length, seen.size());
    std::copy(trailer.begin(), trailer.end(), seen.begin());
    if (!equal(seen, mac_of(*receive_seal_, payload)))
      return Status(Code::kCorruptPayload, "rendezvous frame with a wrong HMAC");
  }
  const auto kind = std::to_integer<std::uint8_t>(payload[0]);
  if (kind < static_cast<std::uint8_t>(Kind::kHello) ||
      kind > static_cast<std::uint8_t>(Kind::kBye))
    return Status(Code::kCorruptPayload, format("rendezvous frame of unknown kind %d", kind));
  const ConstByteSpan body = payload.subspan(1);
  Frame frame{static_cast<Kind>(kind), {body.begin(), body.end()}};
  in_used_ += total;
  compact(in_, in_used_);
  return std::optional<Frame>(std::move(frame));
}

}  // namespace gradwire::rendezvous
