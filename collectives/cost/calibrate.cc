// From a cache, or by measuring between the ranks of a communicator, to the numbers that all ranks
// choose by.
#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/hash.h"
#include "base/text.h"
#include "collectives/cost/choice.h"
#include "collectives/cost/link_cache.h"
#include "comm/host.h"
#include "device/ops.h"
#include "gradwire/communicator.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kSmall = 2;  // elements
constexpr std::int64_t kFirst = 1 << 10;
constexpr std::int64_t kLarge = 1 << 18;
constexpr int kSmallTrips = 8;  // at a time,
constexpr int kSmallTurns = 5;  // so many times
constexpr double kSmallSeconds = 0.01;
constexpr double kLongEnough = 2e-3;
constexpr double kLargeSeconds = 0.06;  // for each of two sizes
constexpr double kAtLeast = 3e-3;       // of repetitions, where they are short
constexpr int kMostAlike = 8;
constexpr int kReductions = 4;
constexpr int kSmallReductions = 9;  // in each of so many spells
constexpr int kSpells = 7;
constexpr std::chrono::milliseconds kBetweenSpells{1};
constexpr int kLargeReductions = 7;
constexpr double kRingSeconds = 3e-3;  // of the wire
constexpr double kMostContention = 1000;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status finish(Result<Work> work) {
  GW_ASSIGN(Work started, std::move(work));
  return started.wait();
}

// Round trips that the first of two ranks orders and times, and the second answers. An order of no
// trips is the last.
class Pair {
 public:
  Pair(Communicator& world, int first, int second)
      : world_(world), first_(first), second_(second), values_(kLarge) {}

  // On the first rank: seconds of a message, half the shortest trip.
  Result<double> trips(std::int64_t elems, int count) {
    GW_TRY(order(elems, count));
    double shortest = 1e9;
    for (int i = 0; i < count; ++i) {
      const auto start = Clock::now();
      GW_TRY(finish(world_.send(message(elems), second_)));
      GW_TRY(finish(world_.recv(message(elems), second_)));
      shortest = std::min(shortest, since(start) / 2);
    }
    return shortest;
  }
  Status end() { return order(0, 0); }

  // On the second rank, until the end.
  Status answer() {
    while (true) {
      std::array<std::int64_t, 2> order{};
      GW_TRY(finish(world_.recv(view_of(std::span<std::int64_t>(order)), first_)));
      const auto [elems, count] = order;
      if (count == 0) return {};
      if (elems < 0 || elems > kLarge || count < 0 || count > kSmallTrips) {
        return {
            Code::kRankMismatch,
            format("rank %d orders %lld messages of %lld elements (expected at most %d of %lld)",
                   world_.job_rank(first_), static_cast<long long>(count),
                   static_cast<long long>(elems), kSmallTrips, static_cast<long long>(kLarge))};
      }
      for (std::int64_t i = 0; i < count; ++i) {
        GW_TRY(finish(world_.recv(message(elems), first_)));
        GW_TRY(finish(world_.send(message(elems), first_)));
      }
    }
  }

 private:
  Status order(std::int64_t elems, std::int64_t count) {
    const std::array<std::int64_t, 2> order{elems, count};
    return finish(world_.send(const_view_of(std::span<const std::int64_t>(order)), second_));
  }
  TensorView message(std::int64_t elems) {
    return view_of(std::span(values_).first(static_cast<std::size_t>(elems)));
  }

  Communicator& world_;
  int first_;
  int second_;
  std::vector<float> values_;
};

struct Link {
  double alpha = 0;
  double beta = 0;
};

// On the first rank of the pair: the shortest of some small messages' times and `known`.
Result<double> shortest_start(Pair& pair, double known) {
  const auto start = Clock::now();
  for (int turn = 0; turn < kSmallTurns && since(start) < kSmallSeconds; ++turn) {
    GW_ASSIGN(const double small, pair.trips(kSmall, kSmallTrips));
    known = std::min(known, small);
  }
  return known;
}

// Large messages are as large as one takes so long, so that start-ups count little.
bool long_enough(double seconds, double alpha) {
  return seconds >= std::max(kLongEnough, 3 * alpha);
}

// On the first rank of the pair: seconds of a message of that size, or `known` if that is less,
// once messages have stopped becoming faster: a connection that was idle starts slowly, and on a
// busy machine ranks wait for processors in spells.
Result<double> shortest_large(Pair& pair, std::int64_t elems, double known) {
  const auto start = Clock::now();
  for (int alike = 0; since(start) < kLargeSeconds && alike < kMostAlike;) {
    if (alike >= 2 && since(start) >= kAtLeast) break;
    GW_ASSIGN(const double seconds, pair.trips(elems, 1));
    alike = seconds < 0.9 * known ? 0 : alike + 1;
    known = std::min(known, seconds);
  }
  return known;
}

// On the first rank of the pair: what the second half of a long message takes for each byte.
// Shorter messages say nothing, they pass through what buffers hold, and so do the first bytes of
// each: a link that is held to a rate lets some through at once after it was idle.
Result<double> seconds_per_byte(Pair& pair, double alpha) {
  const auto start = Clock::now();
  double shorter = 0;
  std::int64_t elems = kFirst;
  for (;; elems *= 2) {
    GW_ASSIGN(shorter, pair.trips(elems, 1));
    const bool last = elems == kLarge / 2 || since(start) >= kLargeSeconds;
    if (!last && !long_enough(shorter, alpha)) continue;
    GW_ASSIGN(shorter, shortest_large(pair, elems, shorter));
    if (last || long_enough(shorter, alpha)) break;
  }
  GW_ASSIGN(const double longer, shortest_large(pair, 2 * elems, 1e9));
  const auto bytes = static_cast<double>(elems) * sizeof(float);
  // A start that takes most of a large message's time was a delayed one.
  const double whole = std::max(longer - alpha, longer / 2) / (2 * bytes);
  // Where that is not the link's time, the processors' varies by more than such bytes.
  if (longer < kLongEnough) return whole;
  return std::clamp((longer - shorter) / bytes, whole, 2 * whole);
}

// On the first rank of the pair.
Result<Link> timed(Pair& pair) {
  Link link;
  GW_ASSIGN(link.alpha, shortest_start(pair, 1e9));
  GW_ASSIGN(link.beta, seconds_per_byte(pair, link.alpha));
  GW_ASSIGN(link.alpha, shortest_start(pair, link.alpha));
  GW_TRY(pair.end());
  return link;
}

// Collective; the first rank's numbers, on all.
Result<Link> measure_pair(Communicator& world, std::pair<int, int> ranks) {
  Pair pair(world, ranks.first, ranks.second);
  std::array<double, 2> numbers{};
  if (world.rank() == ranks.first) {
    GW_ASSIGN(const Link link, timed(pair));
    numbers = {link.alpha, link.beta};
  } else if (world.rank() == ranks.second) {
    GW_TRY(pair.answer());
  }
  GW_TRY(finish(world.broadcast(view_of(std::span<double>(numbers)), ranks.first)));
  return Link{numbers[0], numbers[1]};
}

// Collective; rank 0's.
Result<double> measure_gamma(Communicator& world) {
  std::array<double, 1> gamma{1e9};
  if (world.rank() == 0) {
    std::vector<float> sum(kLarge, 1.0F);
    const std::vector<float> more(kLarge, 1.0F);
    for (int i = 0; i < kReductions; ++i) {
      const auto start = Clock::now();
      GW_TRY(reduce(ReduceOp::kSum, const_view_of(std::span(more)), view_of(std::span(sum)), {}));
      gamma[0] = std::min(gamma[0], since(start) / static_cast<double>(kLarge * sizeof(float)));
    }
  }
  GW_TRY(finish(world.broadcast(view_of(std::span<double>(gamma)), 0)));
  return gamma[0];
}

// The first two ranks that share a node, or do not.
std::optional<std::pair<int, int>> first_pair(const std::vector<int>& nodes, bool inside) {
  for (std::size_t a = 0; a < nodes.size(); ++a) {
    for (std::size_t b = a + 1; b < nodes.size(); ++b) {
      if ((nodes[a] == nodes[b]) == inside) {
        return std::pair(static_cast<int>(a), static_cast<int>(b));
      }
    }
  }
  return std::nullopt;
}

// Collective: seconds of an all-reduce, several times.
Result<std::vector<double>> all_reduce_seconds(Communicator& world, std::int64_t elems,
                                               std::string_view algorithm, int times) {
  std::vector<float> values(static_cast<std::size_t>(elems));
  std::vector<double> seconds;
  OpOptions options;
  options.algorithm = algorithm;
  for (int i = 0; i < times; ++i) {
    const auto start = Clock::now();
    GW_TRY(finish(world.all_reduce(view_of(std::span(values)), ReduceOp::kSum, options)));
    seconds.push_back(since(start));
  }
  return seconds;
}

// Collective: the middle one of many. Where ranks are more than processors, it depends on where
// they happen to sit, for a while each, and the shortest is the one that met no turn.
Result<double> middle_seconds(Communicator& world, std::int64_t elems, std::string_view algorithm) {
  std::vector<double> all;
  for (int spell = 0; spell < kSpells; ++spell) {
    GW_ASSIGN(const auto some, all_reduce_seconds(world, elems, algorithm, kSmallReductions));
    all.insert(all.end(), some.begin(), some.end());
    std::this_thread::sleep_for(kBetweenSpells);
  }
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
  return all[all.size() / 2];
}

// Collective; rank 0's. All ranks talk at once in both: what the first takes is starts alone, what
// the second takes beyond its starts is bytes.
Status measure_contention(Communicator& world, LinkModel& links) {
  const int size = world.size();
  CostQuestion question{.ranks = size, .nodes = world.node_count(), .links = links};
  question.links.contention = question.links.contention_beta = 1;
  const double beta = question.nodes == 1 ? links.beta_intra : links.beta;
  const auto fitting = static_cast<std::int64_t>(kRingSeconds / std::max(beta * 4, 1e-12));
  const std::int64_t large = std::clamp(fitting, kFirst, kLarge);
  GW_ASSIGN(const double small, middle_seconds(world, kSmall, "recursive_doubling"));
  GW_ASSIGN(const auto rings, all_reduce_seconds(world, large, "ring", kLargeReductions));
  const double whole = *std::ranges::min_element(rings);
  const auto alone = [&](std::int64_t elems, std::string_view algorithm) {
    question.bytes = elems * question.elem_bytes;
    const auto cost = cost_of(question, algorithm);
    return cost.has_value() ? expected_seconds(question, cost.value()) : 0.0;
  };
  const auto times_as_long = [](double measured, double predicted) {
    return std::clamp(measured / std::max(predicted, 1e-9), 1.0, kMostContention);
  };
  std::array<double, 2> found{times_as_long(small, alone(kSmall, "recursive_doubling")), 1};
  question.links.contention = found[0];
  const double starts = alone(1, "ring");
  found[1] = times_as_long(whole - starts, alone(large, "ring") - starts);
  GW_TRY(finish(world.broadcast(view_of(std::span<double>(found)), 0)));
  links.contention = found[0];
  links.contention_beta = found[1];
  return {};
}

// Collective. Between two nodes, and between two ranks of one, as communicator.nodes() says (where
// that says nothing, all links are those between ranks 0 and 1): alpha is half the shortest of some
// round trips of 8 B, beta is what the second half of a message adds that takes four milliseconds
// or has 1 MiB. gamma from adding 1 MiB on rank 0. Where all ranks are apart, or all on one
// node, contention comes from all-reduces: of 8 B the middle one of many, of up to 1 MiB the
// shortest of several. What cannot be measured, for want of such ranks, stays as
// communicator.links() has it, as does the gap. All ranks get the same numbers. Takes 10 to 150 ms
// for each kind of link.
Result<LinkModel> measure_links(Communicator& communicator) {
  LinkModel links = communicator.links();
  const std::vector<int> nodes = communicator.nodes();
  const bool unknown = nodes.empty();
  const auto outside = unknown ? std::optional(std::pair(0, 1)) : first_pair(nodes, false);
  if (outside) {
    GW_ASSIGN(const Link link, measure_pair(communicator, *outside));
    links.alpha = link.alpha;
    links.beta = link.beta;
    if (unknown) links.alpha_intra = link.alpha, links.beta_intra = link.beta;
  }
  if (const auto inside = first_pair(nodes, true)) {
    GW_ASSIGN(const Link link, measure_pair(communicator, *inside));
    links.alpha_intra = link.alpha;
    links.beta_intra = link.beta;
  }
  GW_ASSIGN(links.gamma, measure_gamma(communicator));
  const int count = communicator.node_count();
  const bool alike = count == 1 || count == communicator.size();
  if (alike && communicator.size() <= kMostContenders) {
    GW_TRY(measure_contention(communicator, links));
  }
  return links;
}

std::int64_t now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

// The same links have the same key: what carries rank 0's messages, and the ranks' hosts. A host is
// one boot of a machine, or of a part of it with a network of its own.
Result<std::uint64_t> key_of(Communicator& communicator) {
  const auto own = static_cast<std::int64_t>(comm::host_number());
  std::vector<std::int64_t> hosts(static_cast<std::size_t>(communicator.size()));
  GW_TRY(finish(communicator.all_gather(const_view_of(std::span<const std::int64_t>(&own, 1)),
                                        view_of(std::span(hosts)))));
  for (const int node : communicator.nodes()) hosts.push_back(node);
  return hash_bytes(std::as_bytes(std::span(hosts)), hash_name(communicator.describe()));
}

// Rank 0's cache, for all.
Result<std::optional<LinkModel>> from_cache(Communicator& communicator,
                                            const LinkSettings& settings, std::uint64_t key) {
  std::array<double, kLinkNumbers.size() + 1> message{};
  if (communicator.rank() == 0 && !settings.measure && !settings.cache.empty()) {
    if (const auto cached = cached_links(settings.cache, key, now())) {
      message[0] = 1;
      for (std::size_t i = 0; i < kLinkNumbers.size(); ++i)
        message[i + 1] = *cached.*kLinkNumbers[i];
    }
  }
  GW_TRY(finish(communicator.broadcast(view_of(std::span<double>(message)), 0)));
  if (message[0] == 0) return std::optional<LinkModel>();
  LinkModel links;
  for (std::size_t i = 0; i < kLinkNumbers.size(); ++i) links.*kLinkNumbers[i] = message[i + 1];
  return std::optional(links);
}

}  // namespace

Result<LinkModel> calibrate(Communicator& communicator, const LinkSettings& settings) {
  if (communicator.size() == 1) return communicator.links();
  GW_ASSIGN(const std::uint64_t key, key_of(communicator));
  GW_ASSIGN(std::optional<LinkModel> links, from_cache(communicator, settings, key));
  if (!links) {
    GW_ASSIGN(links, measure_links(communicator));
    if (communicator.rank() == 0 && !settings.cache.empty()) {
      cache_links(settings.cache, key, now(), *links);
    }
  }
  communicator.set_link_parameters(*links);
  return *links;
}

}  // namespace gradwire
