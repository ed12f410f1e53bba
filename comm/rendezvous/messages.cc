#include "comm/rendezvous/messages.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/text.h"

namespace gradwire::rendezvous {
namespace {

constexpr std::uint32_t kMessageMagic = 0x5a525747;  // "GWRZ"

class Writer {
 public:
  template <typename Integer>
  Writer& put(Integer value) {
    for (std::size_t i = 0; i < sizeof(Integer); ++i)
      bytes_.push_back(static_cast<std::byte>(std::uint64_t{value} >> (8 * i)));
    return *this;
  }
  Writer& put(bool value) { return put(static_cast<std::uint8_t>(value ? 1 : 0)); }
  // Not inlined: g++ 12 then warns of an overflow that cannot happen (stringop-overflow).
  [[gnu::noinline]] Writer& raw(ConstByteSpan bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Writer& text(std::string_view text) {
    text = text.substr(0, 0xffff);
    put(static_cast<std::uint16_t>(text.size()));
    return raw(std::as_bytes(std::span(text.data(), text.size())));
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads forward; the first field that is missing or out of range makes every later answer void.
class Reader {
 public:
  explicit Reader(ConstByteSpan bytes) : bytes_(bytes) {}

  template <typename Integer>
  Integer get() {
    const ConstByteSpan field = take(sizeof(Integer));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < field.size(); ++i)
      value |= std::to_integer<std::uint64_t>(field[i]) << (8 * i);
    return static_cast<Integer>(value);
  }
  bool flag() {
    const auto value = get<std::uint8_t>();
    require(value <= 1);
    return value == 1;
  }
  Code code() {
    const auto value = get<std::uint8_t>();
    require(value <= static_cast<std::uint8_t>(Code::kInternal));
    return ok_ ? static_cast<Code>(value) : Code::kOk;
  }
  template <std::size_t N>
  std::array<std::byte, N> array() {
    std::array<std::byte, N> out{};
    const ConstByteSpan field = take(N);
    std::copy(field.begin(), field.end(), out.begin());
    return out;
  }
  std::string text(std::size_t most) {
    const std::size_t size = get<std::uint16_t>();
    require(size <= most);
    const ConstByteSpan field = take(size);
    return {reinterpret_cast<const char*>(field.data()), field.size()};
  }
  std::vector<std::byte> rest(std::size_t most) {
    require(bytes_.size() <= most);
    const ConstByteSpan field = take(bytes_.size());
    return {field.begin(), field.end()};
  }
  void require(bool condition) { ok_ = ok_ && condition; }

  // The message, if the body held exactly it.
  template <typename Message>
  Result<Message> finish(Message message, const char* name) const {
    if (ok_ && bytes_.empty()) return message;
    return Status(Code::kCorruptPayload, format("malformed rendezvous message '%s'", name));
  }

 private:
  ConstByteSpan take(std::size_t count) {
    require(count <= bytes_.size());
    if (!ok_) return {};
    const ConstByteSpan field = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return field;
  }
  ConstByteSpan bytes_;
  bool ok_ = true;
};

}  // namespace

std::vector<std::byte> encode(const Hello& m) {
  return Writer()
      .put(kMessageMagic)
      .put(m.version)
      .put(m.sealed)
      .put(m.rank)
      .put(m.size)
      .raw(m.nonce)
      .text(m.job)
      .take();
}
std::vector<std::byte> encode(const Challenge& m) {
  return Writer().put(kMessageMagic).put(m.sealed).raw(m.nonce).take();
}
std::vector<std::byte> encode(const Proof& m) { return Writer().raw(m.mac).take(); }
std::vector<std::byte> encode(const Refuse& m) {
  return Writer().put(static_cast<std::uint8_t>(m.code)).put(m.again).text(m.reason).take();
}
std::vector<std::byte> encode(const Set& m) {
  return Writer().put(m.id).text(m.key).raw(m.value).take();
}
std::vector<std::byte> encode(const Get& m) {
  return Writer().put(m.id).put(m.wait_ms).text(m.key).take();
}
std::vector<std::byte> encode(const Reply& m) {
  return Writer().put(m.id).put(static_cast<std::uint8_t>(m.code)).raw(m.data).take();
}

Result<Hello> parse_hello(ConstByteSpan body) {
  Reader in(body);
  Hello m;
  in.require(in.get<std::uint32_t>() == kMessageMagic);
  m.version = in.get<std::uint8_t>();
  m.sealed = in.flag();
  m.rank = in.get<std::uint32_t>();
  m.size = in.get<std::uint32_t>();
  m.nonce = in.array<16>();
  m.job = in.text(kMaxJobBytes);
  return in.finish(std::move(m), "hello");
}

Result<Challenge> parse_challenge(ConstByteSpan body) {
  Reader in(body);
  Challenge m;
  in.require(in.get<std::uint32_t>() == kMessageMagic);
  m.sealed = in.flag();
  m.nonce = in.array<16>();
  return in.finish(m, "challenge");
}

Result<Proof> parse_proof(ConstByteSpan body) {
  Reader in(body);
  Proof m;
  m.mac = in.array<32>();
  return in.finish(m, "proof");
}

Result<Refuse> parse_refuse(ConstByteSpan body) {
  Reader in(body);
  Refuse m;
  m.code = in.code();
  in.require(m.code != Code::kOk);
  m.again = in.flag();
  m.reason = in.text(kMaxHandshakeBytes);
  return in.finish(std::move(m), "refuse");
}

Result<Set> parse_set(ConstByteSpan body) {
  Reader in(body);
  Set m;
  m.id = in.get<std::uint32_t>();
  m.key = in.text(kMaxKeyBytes);
  m.value = in.rest(kMaxValueBytes);
  return in.finish(std::move(m), "set");
}

Result<Get> parse_get(ConstByteSpan body) {
  Reader in(body);
  Get m;
  m.id = in.get<std::uint32_t>();
  m.wait_ms = in.get<std::uint32_t>();
  m.key = in.text(kMaxKeyBytes);
  return in.finish(std::move(m), "get");
}

Result<Reply> parse_reply(ConstByteSpan body) {
  Reader in(body);
  Reply m;
  m.id = in.get<std::uint32_t>();
  m.code = in.code();
  m.data = in.rest(kMaxValueBytes);
  return in.finish(std::move(m), "reply");
}

}  // namespace gradwire::rendezvous
