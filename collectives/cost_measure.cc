#include "collectives/cost_measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "base/elements.h"
#include "device/ops.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLarge = (1 << 20) / sizeof(float);  // elements
constexpr std::size_t kSmall = 2;
constexpr int kSmallTrips = 40;
constexpr int kLargeTrips = 6;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status finish(Result<Work> work) {
  GW_ASSIGN(Work started, std::move(work));
  return started.wait();
}

// Half the shortest round trip between ranks a and b, on rank a; the others do nothing.
Result<double> one_way(Communicator& world, int a, int b, std::size_t elems, int trips) {
  std::vector<float> values(elems);
  const TensorView view = view_of(std::span(values));
  double shortest = 1e9;
  for (int i = 0; i < trips; ++i) {
    const auto start = Clock::now();
    if (world.rank() == a) {
      GW_TRY(finish(world.send(view, b)));
      GW_TRY(finish(world.recv(view, b)));
      shortest = std::min(shortest, since(start) / 2);
    } else if (world.rank() == b) {
      GW_TRY(finish(world.recv(view, a)));
      GW_TRY(finish(world.send(view, a)));
    }
  }
  return shortest;
}

struct Link {
  double alpha;
  double beta;
};

Result<Link> measure_pair(Communicator& world, int a, int b) {
  GW_ASSIGN(const double small, one_way(world, a, b, kSmall, kSmallTrips));
  GW_ASSIGN(const double large, one_way(world, a, b, kLarge, kLargeTrips));
  const double bytes = static_cast<double>((kLarge - kSmall) * sizeof(float));
  return Link{small, std::max(large - small, 0.0) / bytes};
}

Result<double> measure_gamma() {
  std::vector<float> sum(kLarge, 1.0F);
  const std::vector<float> more(kLarge, 1.0F);
  double shortest = 1e9;
  for (int i = 0; i < kLargeTrips; ++i) {
    const auto start = Clock::now();
    GW_TRY(reduce(ReduceOp::kSum, const_view_of(std::span(more)), view_of(std::span(sum)), {}));
    shortest = std::min(shortest, since(start));
  }
  return shortest / static_cast<double>(kLarge * sizeof(float));
}

// The first rank that shares rank 0's node, or does not; -1: there is none.
int partner(int size, std::span<const int> node_of, bool inside) {
  for (int r = 1; r < size; ++r) {
    const auto at = static_cast<std::size_t>(r);
    const bool same = !node_of.empty() && node_of[at] == node_of[0];
    if (same == inside) return r;
  }
  return -1;
}

}  // namespace

Result<LinkModel> measure_links(Communicator& communicator, std::span<const int> node_of) {
  LinkModel links = communicator.links();
  const int size = communicator.size();
  const int outside = partner(size, node_of, false);
  if (outside >= 0) {
    GW_ASSIGN(const Link link, measure_pair(communicator, 0, outside));
    links.alpha = link.alpha;
    links.beta = link.beta;
    if (node_of.empty()) links.alpha_intra = link.alpha, links.beta_intra = link.beta;
  }
  if (const int inside = partner(size, node_of, true); inside >= 0) {
    GW_ASSIGN(const Link link, measure_pair(communicator, 0, inside));
    links.alpha_intra = link.alpha;
    links.beta_intra = link.beta;
  }
  GW_ASSIGN(links.gamma, measure_gamma());
  std::array<double, 5> agreed{links.alpha, links.beta, links.gamma, links.alpha_intra,
                               links.beta_intra};
  GW_TRY(finish(communicator.broadcast(view_of(std::span<double>(agreed)), 0)));
  links.alpha = agreed[0];
  links.beta = agreed[1];
  links.gamma = agreed[2];
  links.alpha_intra = agreed[3];
  links.beta_intra = agreed[4];
  return links;
}

}  // namespace gradwire
