// What a peer can write on a connection of comm/tcp: frames into receives of every kind, under any
// schedule of posts, withdrawals and rebuilds; and greetings by whoever does not know the key.
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>

#include "base/check.h"
#include "comm/tcp/greeting.h"
#include "comm/tcp/inbound.h"
#include "tests/fuzz/fuzz_target.h"

namespace gradwire::fuzz {
namespace {

using namespace tcp;

constexpr std::uint64_t kSource = std::uint64_t{1} << 40;  // rank 1, generation 0
constexpr int kGenerationShift = 56;
constexpr std::size_t kTags = 4;
constexpr std::size_t kMostReceives = 64;
constexpr std::size_t kGuard = 16;
constexpr std::byte kUntouched{0xa5};

// A receive, with memory on both sides of its own that nobody may write.
struct Receive {
  explicit Receive(std::uint64_t tag, std::size_t size) : memory(size + 2 * kGuard, kUntouched) {
    Op& op = batch.ops.emplace_back();
    op.batch = &batch;
    op.kind = Transfer::Kind::kRecv;
    op.peer = 1;
    op.tag = tag;
    op.data = ByteSpan(memory).subspan(kGuard, size);
  }
  Op& op() { return batch.ops.front(); }
  void check() {
    GW_CHECK(op().arrived <= op().data.size());
    const auto untouched = [](std::byte b) { return b == kUntouched; };
    GW_CHECK(std::all_of(memory.begin(), memory.begin() + kGuard, untouched));
    GW_CHECK(
        std::all_of(memory.end() - static_cast<std::ptrdiff_t>(kGuard), memory.end(), untouched));
  }

  Batch batch;
  std::vector<std::byte> memory;
};

// One rank's end of a connection, and the plan by which it treats what comes.
class Reader {
 public:
  explicit Reader(int fd) {
    in_.rebuild(kSource);
    in_.open(std::make_shared<rendezvous::Fd>(fd));
  }

  // What one byte of the plan asks for.
  void act(std::uint8_t what) {
    switch (what % 4) {
      case 0: return post(what / 4 % kTags, std::size_t{1} << (what / 16));
      case 1: return withdraw(what / 4);
      case 2: return what < 16 ? rebuild() : in_.drain();
      default: return read(1 + what / 4 * std::size_t{97});
    }
  }
  bool read_all() {
    in_.notice(true);
    in_.drain();
    for (int turns = 0; turns < 100000 && in_.runnable() && going_; ++turns) read(1 << 20);
    return going_;
  }
  void end() {
    for (const auto& receive : open_) {
      in_.withdraw(receive->op());
      receive->check();
    }
    in_.close();
  }

 private:
  void read(std::size_t most) {
    if (!going_ || !in_.runnable()) return;
    now_ += std::chrono::microseconds(150);
    going_ = in_.read(most, done_, now_).kind == Inbound::Outcome::Kind::kOpen;
    settle();
  }
  void post(std::uint64_t tag, std::size_t size) {
    if (open_.size() >= kMostReceives) return;
    open_.push_back(std::make_unique<Receive>(tag, size - 1));
    in_.post(open_.back()->op(), done_);
    settle();
  }
  void withdraw(std::size_t which) {
    if (open_.empty()) return;
    const auto found = open_.begin() + static_cast<std::ptrdiff_t>(which % open_.size());
    in_.withdraw((*found)->op());
    (*found)->check();
    open_.erase(found);
  }
  void rebuild() {
    while (!open_.empty()) withdraw(0);
    in_.rebuild(kSource | ++generation_ << kGenerationShift);
  }
  void settle() {
    for (const Op* op : done_) {
      const auto found = std::ranges::find_if(open_, [&](auto& each) { return &each->op() == op; });
      GW_CHECK(found != open_.end());  // each once, and none that was withdrawn
      (*found)->check();
      open_.erase(found);
    }
    done_.clear();
  }

  Inbound in_;
  Deadline now_{};
  std::uint64_t generation_ = 0;
  bool going_ = true;
  std::vector<std::unique_ptr<Receive>> open_;
  std::vector<Op*> done_;
};

// input := actions:u8 action{actions} stream; every action comes after another piece of the stream.
void read_stream(ConstByteSpan input) {
  if (input.empty()) return;
  const std::size_t actions =
      std::min<std::size_t>(std::to_integer<std::size_t>(input[0]), input.size() - 1);
  const ConstByteSpan plan = input.subspan(1, actions);
  ConstByteSpan stream = input.subspan(1 + actions);
  int ends[2] = {-1, -1};
  GW_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  rendezvous::Fd writer(ends[0]);
  Reader reader(ends[1]);
  const auto write = [&](std::size_t most) {
    const ConstByteSpan piece = stream.first(std::min(most, stream.size()));
    const auto wrote = ::send(writer.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (wrote > 0) stream = stream.subspan(static_cast<std::size_t>(wrote));
  };
  for (const std::byte action : plan) {
    write(stream.size() / (plan.size() + 1) + 1);
    reader.act(std::to_integer<std::uint8_t>(action));
  }
  write(stream.size());
  writer = rendezvous::Fd();
  (void)reader.read_all();
  reader.end();
}

void greet(ConstByteSpan bytes) {
  if (const auto hello = decode_hello(bytes)) {
    GW_CHECK(std::ranges::equal(encode(*hello), bytes));
  }
  // None of these was made with the key, which is no input of this program.
  const rendezvous::Mac key = greeting_key("secret", "job", "token");
  const ConstByteSpan hello = bytes.first(std::min(bytes.size(), kHelloBytes));
  const ConstByteSpan rest = bytes.subspan(hello.size());
  GW_CHECK(!is_challenge(key, hello, rest));
  const ConstByteSpan challenge = rest.first(std::min(rest.size(), kChallengeBytes));
  GW_CHECK(!is_proof(key, hello, challenge, rest.subspan(challenge.size())));
}

Bytes& add(Bytes& bytes, std::uint64_t number) {
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::uint8_t>(number >> (8 * i)));
  return bytes;
}

Bytes& add_frame(Bytes& bytes, std::uint64_t tag, std::size_t size, std::uint64_t generation = 0) {
  add(add(bytes, kSource | tag | generation << kGenerationShift), size);
  bytes.insert(bytes.end(), size, static_cast<std::uint8_t>(tag));
  return bytes;
}

Bytes planned(const Bytes& actions, const Bytes& stream) {
  Bytes bytes;
  bytes.reserve(1 + actions.size() + stream.size());
  bytes.push_back(static_cast<std::uint8_t>(actions.size()));
  std::ranges::copy(actions, std::back_inserter(bytes));
  std::ranges::copy(stream, std::back_inserter(bytes));
  return bytes;
}

}  // namespace

std::vector<Bytes> seeds() {
  Bytes few, large, later, huge, greeting;
  add_frame(add_frame(add_frame(few, 0, 5), 1, 0), 2, 300);
  add_frame(add_frame(large, 1, 9000), 0, 40000);
  add_frame(add_frame(add_frame(later, 1, 20), 1, 30, 1), 0, 10, 200);
  add(add(huge, kSource | 3), std::uint64_t{1} << 47);
  for (const std::byte b : encode(Hello{.kind = LinkKind::kControl, .from = 3, .to = 1}))
    greeting.push_back(std::to_integer<std::uint8_t>(b));
  greeting.resize(kHelloBytes + kChallengeBytes + kProofBytes);
  // Actions: 0x40 | 4 t posts 15 bytes of tag t, 0xf0 | 4 t 32767; 3, 0xff read; 1 withdraws; 2
  // rebuilds; 0x12 drains.
  return {planned({0x40, 0x44, 0x98, 0xff, 0xff}, few),
          planned({3, 3, 0xff, 0x44, 0x40, 0x98, 0xff}, few),
          planned({0xf4, 3, 1, 0xf4, 0xff, 0xff, 0x12, 0xf0}, large),
          planned({0x44, 0xff, 2, 0x54, 0xff, 2, 0xff}, later),
          planned({0x4c, 0xff, 1, 0xff}, huge),
          planned({0xff}, {1, 2, 3}),
          greeting};
}

}  // namespace gradwire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  gradwire::fuzz::read_stream(bytes);
  gradwire::fuzz::greet(bytes);
  return 0;
}
