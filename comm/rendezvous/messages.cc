#include "comm/rendezvous/messages.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/text.h"

namespace gradwire::rendezvous {
namespace {

constexpr std::uint32_t kMessageMagic = 0x5a525747;  // "GWRZ"

// The two ways over a message's fields, which fields() names once.
class Writer {
 public:
  Writer& magic() { return field(kMessageMagic); }
  template <typename Number>
  Writer& field(Number value) {
    for (std::size_t i = 0; i < sizeof(Number); ++i)
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
    return *this;
  }
  template <std::size_t N>
  Writer& field(const std::array<std::byte, N>& bytes) {
    return rest(bytes, N);
  }
  Writer& field(std::string_view text, std::size_t /*most*/) {
    text = text.substr(0, 0xffff);
    field(static_cast<std::uint16_t>(text.size()));
    return rest(bytes_of_text(text), text.size());
  }
  // Not inlined: g++ 12 then warns of an overflow that cannot happen (stringop-overflow).
  [[gnu::noinline]] Writer& rest(ConstByteSpan bytes, std::size_t /*most*/) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// The first field that is missing or out of range makes every later one void.
class Reader {
 public:
  explicit Reader(ConstByteSpan bytes) : bytes_(bytes) {}

  Reader& magic() {
    std::uint32_t seen = 0;
    field(seen);
    return require(seen == kMessageMagic);
  }
  template <typename Number>
  Reader& field(Number& number) {
    std::uint64_t value = 0;
    const ConstByteSpan bytes = take(sizeof(Number));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    if constexpr (std::is_same_v<Number, bool>) require(value <= 1);
    if constexpr (std::is_same_v<Number, Code>)
      require(value <= static_cast<std::uint64_t>(Code::kInternal));
    if (ok_) number = static_cast<Number>(value);
    return *this;
  }
  template <std::size_t N>
  Reader& field(std::array<std::byte, N>& out) {
    std::ranges::copy(take(N), out.begin());
    return *this;
  }
  Reader& field(std::string& text, std::size_t most) {
    std::uint16_t size = 0;
    field(size);
    require(size <= most);
    text = text_of_bytes(take(size));
    return *this;
  }
  Reader& rest(std::vector<std::byte>& out, std::size_t most) {
    require(bytes_.size() <= most);
    const ConstByteSpan bytes = take(bytes_.size());
    out.assign(bytes.begin(), bytes.end());
    return *this;
  }
  Reader& require(bool condition) {
    ok_ = ok_ && condition;
    return *this;
  }
  bool ended_well() const { return ok_ && bytes_.empty(); }

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

// M: the message, constant where it is written.
template <typename M, typename Message>
concept Is = std::is_same_v<std::remove_const_t<M>, Message>;

template <typename Way, Is<Hello> M>
void fields(Way& way, M& m) {
  way.magic().field(m.version).field(m.sealed).field(m.rank).field(m.size).field(m.nonce);
  way.field(m.job, kMaxJobBytes);
}
template <typename Way, Is<Challenge> M>
void fields(Way& way, M& m) {
  way.magic().field(m.sealed).field(m.nonce);
}
template <typename Way, Is<Proof> M>
void fields(Way& way, M& m) {
  way.field(m.mac);
}
template <typename Way, Is<Refuse> M>
void fields(Way& way, M& m) {
  way.field(m.code).field(m.again).field(m.reason, kMaxHandshakeBytes);
}
template <typename Way, Is<Set> M>
void fields(Way& way, M& m) {
  way.field(m.id).field(m.key, kMaxKeyBytes).rest(m.value, kMaxValueBytes);
}
template <typename Way, Is<Get> M>
void fields(Way& way, M& m) {
  way.field(m.id).field(m.wait_ms).field(m.key, kMaxKeyBytes);
}
template <typename Way, Is<Reply> M>
void fields(Way& way, M& m) {
  way.field(m.id).field(m.code).rest(m.data, kMaxValueBytes);
}

template <typename Message>
std::vector<std::byte> written(const Message& message) {
  Writer out;
  fields(out, message);
  return out.take();
}

// The message, if the body held exactly it.
template <typename Message>
Result<Message> read(ConstByteSpan body, const char* name) {
  Reader in(body);
  Message message;
  fields(in, message);
  if constexpr (Is<Message, Refuse>) in.require(message.code != Code::kOk);
  if (in.ended_well()) return message;
  return Status(Code::kCorruptPayload, format("malformed rendezvous message '%s'", name));
}

}  // namespace

std::vector<std::byte> encode(const Hello& message) { return written(message); }
std::vector<std::byte> encode(const Challenge& message) { return written(message); }
std::vector<std::byte> encode(const Proof& message) { return written(message); }
std::vector<std::byte> encode(const Refuse& message) { return written(message); }
std::vector<std::byte> encode(const Set& message) { return written(message); }
std::vector<std::byte> encode(const Get& message) { return written(message); }
std::vector<std::byte> encode(const Reply& message) { return written(message); }

Result<Hello> parse_hello(ConstByteSpan body) { return read<Hello>(body, "hello"); }
Result<Challenge> parse_challenge(ConstByteSpan body) { return read<Challenge>(body, "challenge"); }
Result<Proof> parse_proof(ConstByteSpan body) { return read<Proof>(body, "proof"); }
Result<Refuse> parse_refuse(ConstByteSpan body) { return read<Refuse>(body, "refuse"); }
Result<Set> parse_set(ConstByteSpan body) { return read<Set>(body, "set"); }
Result<Get> parse_get(ConstByteSpan body) { return read<Get>(body, "get"); }
Result<Reply> parse_reply(ConstByteSpan body) { return read<Reply>(body, "reply"); }

}  // namespace gradwire::rendezvous
