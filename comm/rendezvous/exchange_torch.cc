// A client of c10d's TCPStore, as PyTorch 2.4 and later speak it. Integers are little endian on the
// machines that gradwire runs on; strings and values are preceded by their length as 8 bytes.
//   validate 0   magic:u32                          no answer
//   set      1   key value                          no answer
//   compare  2   key expected wanted                the value then; sets where there is none and
//                                                   `expected` is empty
//   get      3   key                                value
//   add      4   key amount:i64                     the sum, i64
//   wait     6   count:u64 key...                   0, once all keys are there
// PyTorch's own clients put "/" before every key, and so does this one.
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <thread>

#include "base/text.h"
#include "comm/rendezvous/exchange.h"

namespace gradwire::rendezvous {
namespace {

constexpr std::uint32_t kMagic = 0x3c85f7ce;
constexpr std::uint64_t kMostText = 1 << 20;
enum class Query : std::uint8_t {
  kValidate = 0,
  kSet = 1,
  kCompare = 2,
  kGet = 3,
  kAdd = 4,
  kWait = 6
};

class Message {
 public:
  explicit Message(Query query) { raw(static_cast<std::uint8_t>(query)); }
  template <typename T>
  Message& raw(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Message& text(std::string_view text) {
    raw(static_cast<std::uint64_t>(text.size()));
    bytes_.append(text);
    return *this;
  }
  ConstByteSpan bytes() const { return std::as_bytes(std::span(bytes_.data(), bytes_.size())); }

 private:
  std::string bytes_;
};

class StoreClient {
 public:
  StoreClient(Fd fd, std::string where, Deadline deadline)
      : fd_(std::move(fd)), where_(std::move(where)), deadline_(deadline) {}

  Status send(const Message& message) {
    const Status sent = write_all(fd_.get(), message.bytes(), deadline_);
    return sent.ok() ? sent : told(sent);
  }

  template <typename T>
  Result<T> number() {
    T value{};
    GW_TRY(receive(std::as_writable_bytes(std::span(&value, 1))));
    return value;
  }

  Result<std::string> text() {
    GW_ASSIGN(const auto size, number<std::uint64_t>());
    if (size > kMostText)
      return Status(
          Code::kInvalidArgument,
          format(
              "the store of torchrun's agent at %s answers with %llu bytes (expected at most %llu)",
              where_.c_str(), static_cast<unsigned long long>(size),
              static_cast<unsigned long long>(kMostText)));
    std::string value(size, '\0');
    GW_TRY(receive(std::as_writable_bytes(std::span(value.data(), value.size()))));
    return value;
  }

 private:
  Status told(const Status& failure) const {
    const bool closed = failure.code() == Code::kPeerLost;
    return {failure.code(),
            "the store of torchrun's agent at " + where_ +
                (closed ? " closed the connection (expected a TCPStore of PyTorch 2.4 or later)"
                        : " did not answer in time (rank 0 may be missing)")};
  }
  Status receive(ByteSpan into) {
    while (!into.empty()) {
      const auto bytes = read_more(fd_.get(), into, deadline_);
      if (!bytes.has_value()) return told(bytes.error());
      into = into.subspan(bytes.value());
    }
    return {};
  }

  Fd fd_;
  std::string where_;
  Deadline deadline_;
};

Result<Fd> reach(const HostPort& where, Deadline deadline) {
  while (true) {
    Result<Fd> fd = connect_to(where, deadline);
    constexpr std::chrono::milliseconds kPause(50);
    const bool again = !fd.has_value() && fd.error().code() == Code::kPeerLost &&
                       std::chrono::steady_clock::now() + kPause < deadline;
    if (!again) return fd;
    std::this_thread::sleep_for(kPause);
  }
}

Result<StoreClient> open_store(const HostPort& where, Deadline deadline) {
  Result<Fd> fd = reach(where, deadline);
  if (!fd.has_value())
    return fd.error().with_context("the store of torchrun's agent (MASTER_ADDR, MASTER_PORT)");
  StoreClient store(std::move(fd).value(), to_string(where), deadline);
  GW_TRY(store.send(Message(Query::kValidate).raw(kMagic)));
  return store;
}

}  // namespace

Result<std::string> first_over_torch(const HostPort& where, std::string_view key,
                                     std::string_view value, Deadline deadline) {
  GW_ASSIGN(StoreClient store, open_store(where, deadline));
  GW_TRY(store.send(
      Message(Query::kCompare).text("/gradwire/" + std::string(key)).text("").text(value)));
  return store.text();
}

Result<std::string> exchange_over_torch(const HostPort& where, std::string_view job, int rank,
                                        std::string_view text, Deadline deadline) {
  GW_ASSIGN(StoreClient store, open_store(where, deadline));
  const std::string space = "/gradwire/" + std::string(job);
  // All ranks meet equally often, so each one's own count names the meeting.
  GW_TRY(store.send(
      Message(Query::kAdd).text(space + "/met/" + std::to_string(rank)).raw(std::int64_t{1})));
  GW_ASSIGN(const auto count, store.number<std::int64_t>());
  const std::string key = space + "/first/" + std::to_string(count);
  if (rank == 0) GW_TRY(store.send(Message(Query::kSet).text(key).text(text)));
  GW_TRY(store.send(Message(Query::kWait).raw(std::uint64_t{1}).text(key)));
  GW_ASSIGN(const auto outcome, store.number<std::uint8_t>());
  if (outcome != 0)
    return Status(Code::kCancelled,
                  "the store of torchrun's agent at " + to_string(where) + " gave up waiting");
  GW_TRY(store.send(Message(Query::kGet).text(key)));
  return store.text();
}

}  // namespace gradwire::rendezvous
