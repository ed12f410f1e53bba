#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "tests/laws/communicator/communicator_programs.h"
#include "tests/support/peak_memory.h"
#include "tests/support/short_run.h"

namespace gradwire {
namespace {

using Ints = std::vector<std::int32_t>;

constexpr int kMessages = 64;

// What is sent, and in which order it is received: message k has tags[k % tags.size()], or a tag of
// its own, and lengths[k % lengths.size()] elements.
struct Traffic {
  const char* name;
  std::vector<int> tags;  // empty: message k has tag 3 k
  std::vector<std::int64_t> lengths;
  std::vector<int> order = {};  // of messages, as they are received; of one tag they stay in order
  bool all_posted = false;      // every receive before any is waited for
};

int tag_of(const Traffic& traffic, int k) {
  if (traffic.tags.empty()) return 3 * k;
  return traffic.tags[static_cast<std::size_t>(k) % traffic.tags.size()];
}

std::size_t length_of(const Traffic& traffic, int k) {
  const std::size_t at = static_cast<std::size_t>(k) % traffic.lengths.size();
  return static_cast<std::size_t>(traffic.lengths[at]);
}

// Differs from message to message, and within each of them from place to place.
Ints message(const Traffic& traffic, int from, int to, int k) {
  Ints data(length_of(traffic, k));
  const auto first = static_cast<std::uint32_t>((from * 16 + to) * kMessages + k) * 2654435761u;
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<std::int32_t>(first + static_cast<std::uint32_t>(i));
  }
  return data;
}

std::string fault_of(const Traffic& traffic, const char* what, int k, const Status& status) {
  if (status.ok()) return "";
  return format("%s: %s %d: ", traffic.name, what, k) + std::string(status.message());
}

std::string contents_of(const Traffic& traffic, const Ints& got, int from, int to, int k) {
  const Ints want = message(traffic, from, to, k);
  const auto [g, w] = std::ranges::mismatch(got, want);
  if (g == got.end()) return "";
  return format("%s: message %d (tag %d, %zu elements) from rank %d: element %zu is %d (%d wanted)",
                traffic.name, k, tag_of(traffic, k), want.size(), from,
                static_cast<std::size_t>(g - got.begin()), *g, *w);
}

struct Sent {
  std::vector<Ints> data;
  std::vector<Work> works;
};

std::string send_all(Communicator& world, const Traffic& traffic, int to, Sent& sent) {
  for (int k = 0; k < kMessages; ++k) {
    sent.data.push_back(message(traffic, world.rank(), to, k));
    auto work =
        world.start(OpCall::send(view_of(std::span(sent.data.back())), to, tag_of(traffic, k)));
    if (!work.has_value()) return fault_of(traffic, "send", k, work.error());
    sent.works.push_back(std::move(work).value());
  }
  return "";
}

std::string wait_for_sends(const Traffic& traffic, Sent& sent) {
  for (int k = 0; k < kMessages; ++k) {
    const Status status = sent.works[static_cast<std::size_t>(k)].wait();
    if (auto fault = fault_of(traffic, "send", k, status); !fault.empty()) return fault;
  }
  return "";
}

std::string receive_one_by_one(Communicator& world, const Traffic& traffic, int from) {
  std::map<int, int> taken;  // of messages with a tag
  for (const int slot : traffic.order) {
    const int tag = tag_of(traffic, slot);
    // The k-th receive with a tag meets the k-th send with it.
    int k = 0;
    for (int left = taken[tag]++; left > 0 || tag_of(traffic, k) != tag; ++k) {
      if (tag_of(traffic, k) == tag) --left;
    }
    Ints got(length_of(traffic, k), -1);
    auto work = world.start(OpCall::recv(view_of(std::span(got)), from, tag));
    const Status status = work.has_value() ? work.value().wait() : work.error();
    if (auto fault = fault_of(traffic, "receive", k, status); !fault.empty()) return fault;
    auto fault = contents_of(traffic, got, from, world.rank(), k);
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string receive_all_at_once(Communicator& world, const Traffic& traffic, int from) {
  std::vector<Ints> got;
  std::vector<Work> works;
  for (int k = 0; k < kMessages; ++k) {
    got.emplace_back(length_of(traffic, k), -1);
    auto work = world.start(OpCall::recv(view_of(std::span(got.back())), from, tag_of(traffic, k)));
    if (!work.has_value()) return fault_of(traffic, "receive", k, work.error());
    works.push_back(std::move(work).value());
  }
  for (int k = kMessages - 1; k >= 0; --k) {
    const auto at = static_cast<std::size_t>(k);
    auto fault = fault_of(traffic, "receive", k, works[at].wait());
    if (fault.empty()) fault = contents_of(traffic, got[at], from, world.rank(), k);
    if (!fault.empty()) return fault;
  }
  return "";
}

// Every rank sends to the next and receives from the one before: of two ranks both directions of
// one pair at once.
std::string exchange(Communicator& world, const Traffic& traffic) {
  const int p = world.size();
  const int next = (world.rank() + 1) % p;
  const int before = (world.rank() + p - 1) % p;
  Sent sent;
  if (auto fault = send_all(world, traffic, next, sent); !fault.empty()) return fault;
  auto fault = traffic.all_posted ? receive_all_at_once(world, traffic, before)
                                  : receive_one_by_one(world, traffic, before);
  if (!fault.empty()) return fault;
  return wait_for_sends(traffic, sent);
}

// Takes what comes from all the others.
std::string take_from_any(Communicator& world, const Traffic& traffic) {
  std::map<std::pair<int, int>, int> last;  // message with a tag from a rank
  for (int i = 0; i < kMessages * (world.size() - 1); ++i) {
    const int slot = i % kMessages;
    const int tag = tag_of(traffic, slot);
    Ints got(length_of(traffic, slot), -1);
    auto work = world.start(OpCall::recv(view_of(std::span(got)), kAnySource, tag));
    const Status status = work.has_value() ? work.value().wait() : work.error();
    if (auto fault = fault_of(traffic, "receive", i, status); !fault.empty()) return fault;
    const int from = work.value().source();
    const auto found = last.try_emplace({from, tag}, -1).first;
    do {
      ++found->second;
    } while (tag_of(traffic, found->second) != tag);
    auto fault = contents_of(traffic, got, from, world.rank(), found->second);
    if (!fault.empty()) return fault;
  }
  return "";
}

// Every rank sends to every other one, and leaves when it has taken what came.
std::string from_any_source(Communicator& world, const Traffic& traffic) {
  const int p = world.size();
  std::vector<Sent> sent(static_cast<std::size_t>(p));
  for (int to = 0; to < p; ++to) {
    if (to == world.rank()) continue;
    auto fault = send_all(world, traffic, to, sent[static_cast<std::size_t>(to)]);
    if (!fault.empty()) return fault;
  }
  if (auto fault = take_from_any(world, traffic); !fault.empty()) return fault;
  for (Sent& each : sent) {
    if (each.works.empty()) continue;
    if (auto fault = wait_for_sends(traffic, each); !fault.empty()) return fault;
  }
  return "";
}

std::vector<int> in_order() {
  std::vector<int> order;
  for (int k = 0; k < kMessages; ++k) order.push_back(k);
  return order;
}

std::vector<int> reversed() {
  std::vector<int> order = in_order();
  std::ranges::reverse(order);
  return order;
}

std::vector<int> shuffled(int seed) {
  std::vector<int> order = in_order();
  std::mt19937 generator(static_cast<unsigned>(seed));
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[generator() % left]);
  }
  return order;
}

}  // namespace

std::string send_many(Communicator& world, std::int64_t segment_elems) {
  const std::int64_t s = segment_elems;
  const std::vector<std::int64_t> mixed = {1, 5, s / 2, s - 1, s, 3 * s + 7, 9 * s, 16 * s};
  const std::vector<Traffic> exchanges = {
      {.name = "one tag, equal lengths", .tags = {7}, .lengths = {8 * s}, .order = in_order()},
      {.name = "one tag", .tags = {7}, .lengths = mixed, .order = in_order()},
      {.name = "no tag", .tags = {0}, .lengths = mixed, .order = in_order()},
      {.name = "one tag, all posted", .tags = {7}, .lengths = mixed, .all_posted = true},
      {.name = "several tags, in order",
       .tags = {0, 7, 1, 32767, 7},
       .lengths = mixed,
       .order = in_order()},
      {.name = "several tags, in reverse",
       .tags = {0, 7, 1, 32767, 7},
       .lengths = mixed,
       .order = reversed()},
      {.name = "several tags, shuffled",
       .tags = {0, 7, 1, 32767, 7},
       .lengths = mixed,
       .order = shuffled(1)},
      {.name = "a tag each, in reverse", .tags = {}, .lengths = mixed, .order = reversed()},
      {.name = "a tag each, shuffled", .tags = {}, .lengths = mixed, .order = shuffled(2)}};
  // Long messages take a second each.
  ShortRun run(segment_elems > 64 << 10 ? 2 : 1, 1);
  for (const Traffic& traffic : exchanges) {
    if (!run.takes()) continue;
    if (auto fault = exchange(world, traffic); !fault.empty()) return fault;
  }
  // A receive from any source knows a message's length by its tag alone.
  return from_any_source(
      world,
      {.name = "any source", .tags = {0, 7, 1, 32767}, .lengths = {8 * s, 1, 2 * s + 1, 16 * s}});
}

namespace {

constexpr std::size_t kMostGrowth = 64 << 20;  // bytes; a quarter of what is sent ahead
constexpr double kSlow = 50;                   // seconds, of machines with much else to do

std::string growth_of(const char* name, const PeakMemory& memory) {
  if (memory.growth() < kMostGrowth) return "";
  return format("%s: %zu bytes beside the tensors (less than %zu wanted)", name, memory.growth(),
                kMostGrowth);
}

OpOptions slowly() {
  OpOptions options;
  options.deadline = deadline_in(kSlow);
  return options;
}

void come_late() { std::this_thread::sleep_for(std::chrono::seconds(1)); }

// Rank 0 starts all of them before the last rank has come.
std::string broadcast_ahead(Communicator& world) {
  constexpr int kBroadcasts = 1000;
  constexpr std::int64_t kElems = 64 << 10;
  Ints data(kElems);
  if (world.rank() == 0) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::int32_t>(i);
  }
  const PeakMemory memory;
  if (world.rank() == world.size() - 1) come_late();
  std::vector<Work> works;
  for (int k = 0; k < kBroadcasts; ++k) {
    if (world.rank() > 0) std::ranges::fill(data, -1);
    auto work = world.broadcast(view_of(std::span(data)), 0, slowly());
    if (!work.has_value()) return std::string(work.error().message());
    works.push_back(std::move(work).value());
    if (world.rank() == 0) continue;
    if (const Status status = works.back().wait(); !status.ok()) {
      return std::string(status.message());
    }
    if (data.front() != 0 || data.back() != kElems - 1) {
      return format("broadcast %d: wrong contents", k);
    }
  }
  for (Work& work : works) {
    if (const Status status = work.wait(); !status.ok()) return std::string(status.message());
  }
  return growth_of("broadcasts", memory);
}

// Every rank to the next, which takes the last one first.
std::string send_ahead(Communicator& world) {
  constexpr std::int64_t kElems = 1 << 20;
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  const Traffic traffic{
      .name = "late receives", .tags = {}, .lengths = {kElems}, .order = reversed()};
  Ints data = message(traffic, 0, 0, 0), got(data.size());
  const PeakMemory memory;
  std::vector<Work> works;
  for (int k = 0; k < kMessages; ++k) {
    const OpCall call = OpCall::send(view_of(std::span(data)), next, tag_of(traffic, k));
    auto work = world.start(call, slowly());
    if (!work.has_value()) return fault_of(traffic, "send", k, work.error());
    works.push_back(std::move(work).value());
  }
  come_late();
  for (const int k : traffic.order) {
    const OpCall call = OpCall::recv(view_of(std::span(got)), before, tag_of(traffic, k));
    auto work = world.start(call, slowly());
    const Status status = work.has_value() ? work.value().wait() : work.error();
    if (auto fault = fault_of(traffic, "receive", k, status); !fault.empty()) return fault;
    if (got != data) return format("late receives: message %d: wrong contents", k);
  }
  for (Work& work : works) {
    if (const Status status = work.wait(); !status.ok()) return std::string(status.message());
  }
  return growth_of("late receives", memory);
}

// A thousand sends of one tag are open while nobody receives.
std::string send_thousand(Communicator& world) {
  constexpr int kSends = 1000;
  constexpr int kTag = 7;
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  Ints data(64 << 10), got(data.size());  // 256 KiB: four times the growth allowed
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::int32_t>(i);
  const PeakMemory memory;
  std::vector<Work> works;
  for (int k = 0; k < kSends; ++k) {
    auto work = world.start(OpCall::send(view_of(std::span(data)), next, kTag), slowly());
    if (!work.has_value()) return "send: " + std::string(work.error().message());
    works.push_back(std::move(work).value());
  }
  come_late();
  for (int k = 0; k < kSends; ++k) {
    std::ranges::fill(got, -1);
    auto work = world.start(OpCall::recv(view_of(std::span(got)), before, kTag), slowly());
    const Status status = work.has_value() ? work.value().wait() : work.error();
    if (!status.ok()) return format("receive %d: ", k) + std::string(status.message());
    if (got != data) return format("receive %d: wrong contents", k);
  }
  for (Work& work : works) {
    if (const Status status = work.wait(); !status.ok()) return std::string(status.message());
  }
  return growth_of("a thousand sends", memory);
}

// All but the last rank send to that one and leave; only then it looks for who has sent.
std::string leave_ahead(Communicator& world) {
  auto part = world.split(0, world.rank());
  if (!part.has_value()) return std::string(part.error().message());
  // Last counts come to nothing where the communicator does not exist yet.
  auto made = part.value()->barrier();
  const Status all_have_it = made.has_value() ? made.value().wait() : made.error();
  if (!all_have_it.ok()) return std::string(all_have_it.message());
  const int last = world.size() - 1;
  if (world.rank() == last) come_late();
  const Traffic traffic{.name = "ranks that left", .tags = {0, 7, 1}, .lengths = {1, 7, 5000}};
  for (Communicator* comm : {part.value().get(), &world}) {
    if (comm->rank() == last) {
      const auto found = comm->probe(kAnySource, 7, deadline_in(kSlow));
      if (!found.has_value() || found.value() < 0) return "a probe that found nobody";
      if (auto fault = take_from_any(*comm, traffic); !fault.empty()) return fault;
      continue;
    }
    Sent sent;
    if (auto fault = send_all(*comm, traffic, last, sent); !fault.empty()) return fault;
    if (auto fault = wait_for_sends(traffic, sent); !fault.empty()) return fault;
    if (comm != &world) part.value().reset();
  }
  return "";
}

}  // namespace

std::string run_ahead(Communicator& world) {
  if (auto fault = broadcast_ahead(world); !fault.empty()) return fault;
  if (auto fault = send_ahead(world); !fault.empty()) return fault;
  if (auto fault = send_thousand(world); !fault.empty()) return fault;
  return leave_ahead(world);
}

// Each is asked to send when rank 0 is about to look, and takes its time.
std::string probe_without_end(Communicator& world) {
  constexpr int kAsks = 3;
  constexpr int kAnswers = 5;
  Ints data(1, world.rank());
  const auto pass = [&](const OpCall& call) {
    auto work = world.start(call, slowly());
    return work.has_value() ? work.value().wait() : work.error();
  };
  if (world.rank() > 0) {
    if (const Status asked = pass(OpCall::recv(view_of(std::span(data)), 0, kAsks)); !asked.ok()) {
      return "asked: " + std::string(asked.message());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    data[0] = world.rank();
    const Status sent = pass(OpCall::send(view_of(std::span(data)), 0, kAnswers));
    return sent.ok() ? "" : "answers: " + std::string(sent.message());
  }
  for (int r = 1; r < world.size(); ++r) {
    if (const Status sent = pass(OpCall::send(view_of(std::span(data)), r, kAsks)); !sent.ok()) {
      return "asks: " + std::string(sent.message());
    }
    const auto found = world.probe(r % 2 == 0 ? r : kAnySource, kAnswers, Deadline::max());
    if (!found.has_value()) return "probe: " + std::string(found.error().message());
    if (found.value() != r) return format("a probe found rank %d (%d wanted)", found.value(), r);
    const Status got = pass(OpCall::recv(view_of(std::span(data)), r, kAnswers));
    if (!got.ok()) return "hears: " + std::string(got.message());
    if (data[0] != r) return format("%d from rank %d", data[0], r);
  }
  return "";
}

// Rank 0 gives up when the first of many messages has gone, most of which wait for its turn.
std::string abort_amid_messages(Communicator& world) {
  constexpr std::size_t kElems = std::size_t{1} << 20;
  const std::string why = "out of disk";
  std::vector<Ints> data;
  std::vector<Work> works;
  Status status;
  for (int k = 0; k < kMessages && world.rank() < 2; ++k) {
    data.emplace_back(kElems);
    auto work = world.rank() == 0 ? world.send(const_view_of(std::span(std::as_const(data[k]))), 1)
                                  : world.recv(view_of(std::span(data[k])), 0);
    if (work.has_value()) works.push_back(std::move(work).value());
  }
  if (world.rank() == 0) {
    status = works.empty() ? Status(Code::kInternal, "no message") : works.front().wait();
    world.abort(why);
    return status.ok() ? "" : std::string(status.message());
  }
  for (Work& work : works) {
    if (status = work.wait(); !status.ok()) break;
  }
  for (int i = 0; i < kMessages && status.ok(); ++i) {
    auto work = world.barrier();
    status = work.has_value() ? work.value().wait() : work.error();
  }
  if (status.code() != Code::kPeerLost || !status.message().starts_with("rank 0 gave up") ||
      status.message().find(why) == std::string_view::npos) {
    return std::string(to_string(status.code())) + ": " + std::string(status.message());
  }
  return "";
}

// 8 MiB at most, 16 segments of 512 KiB; less where more ranks have to hold it.
std::string send_many_large(Communicator& world) {
  return send_many(world, world.size() == 2 ? 128 << 10 : 8 << 10);
}

}  // namespace gradwire
