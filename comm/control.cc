#include "comm/control.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gradwire::comm {
namespace {

constexpr std::uint8_t kVersion = 2;
constexpr std::uint8_t kStillThere = 1;
constexpr std::uint8_t kCertain = 2;

std::size_t most_text(Control::Kind kind) {
  const bool long_one = kind == Control::Kind::kNote || kind == Control::Kind::kAddress;
  return long_one ? kMostControlBytes - 24 : 200;
}

struct Head {
  std::uint8_t version, kind, epoch, flag;
  std::uint16_t from, about, reporter;
  std::uint8_t marks, cause;
  std::uint32_t operation;
  std::uint64_t id;
};
static_assert(sizeof(Head) == 24);
static_assert(std::endian::native == std::endian::little, "it is sent as it lies in memory");

}  // namespace

std::vector<std::byte> encode(const Control& message) {
  const Head head = {kVersion,
                     static_cast<std::uint8_t>(message.kind),
                     message.epoch,
                     static_cast<std::uint8_t>(message.flag ? 1 : 0),
                     static_cast<std::uint16_t>(message.from),
                     static_cast<std::uint16_t>(message.about),
                     static_cast<std::uint16_t>(message.reporter),
                     static_cast<std::uint8_t>((message.gone ? 0 : kStillThere) |
                                               (message.certain ? kCertain : 0)),
                     static_cast<std::uint8_t>(message.cause),
                     message.operation ? static_cast<std::uint32_t>(*message.operation + 1) : 0,
                     message.id};
  const std::size_t text = std::min(message.text.size(), most_text(message.kind));
  std::vector<std::byte> bytes(sizeof head + text);
  std::memcpy(bytes.data(), &head, sizeof head);
  if (text > 0) std::memcpy(bytes.data() + sizeof head, message.text.data(), text);
  return bytes;
}

std::optional<Control> decode(ConstByteSpan bytes, int size) {
  Head head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  const bool known = head.version == kVersion &&
                     head.kind >= static_cast<std::uint8_t>(Control::Kind::kHello) &&
                     head.kind <= static_cast<std::uint8_t>(Control::Kind::kCredit);
  if (!known || head.flag > 1 || head.marks > 3) return std::nullopt;
  if (head.cause > static_cast<std::uint8_t>(kLastLossCause)) return std::nullopt;
  if (bytes.size() > sizeof head + most_text(static_cast<Control::Kind>(head.kind))) {
    return std::nullopt;
  }
  if (std::max({head.from, head.about, head.reporter}) >= size) return std::nullopt;
  Control message;
  message.kind = static_cast<Control::Kind>(head.kind);
  message.epoch = head.epoch;
  message.flag = head.flag == 1;
  message.from = head.from;
  message.about = head.about;
  message.reporter = head.reporter;
  message.gone = (head.marks & kStillThere) == 0;
  message.certain = (head.marks & kCertain) != 0;
  message.cause = static_cast<LossCause>(head.cause);
  if (head.operation != 0) message.operation = head.operation - 1;
  message.id = head.id;
  message.text.assign(reinterpret_cast<const char*>(bytes.data()) + sizeof head,
                      bytes.size() - sizeof head);
  return message;
}

}  // namespace gradwire::comm
