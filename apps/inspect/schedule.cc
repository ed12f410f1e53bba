// `gradwire inspect schedule ALGORITHM RANKS`: who sends what when, and the checker's verdict.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

#include "apps/flags.h"
#include "apps/inspect/inspect.h"
#include "base/text.h"
#include "collectives/checker.h"
#include "collectives/selection.h"

namespace gradwire {
namespace {

constexpr std::array kCollectives{
    std::pair{Collective::kAllReduce, ScheduleClaim::Operation::kAllReduce},
    std::pair{Collective::kReduceScatter, ScheduleClaim::Operation::kReduceScatter},
    std::pair{Collective::kAllGather, ScheduleClaim::Operation::kAllGather},
    std::pair{Collective::kAllToAll, ScheduleClaim::Operation::kAllToAll},
    std::pair{Collective::kBroadcast, ScheduleClaim::Operation::kBroadcast},
    std::pair{Collective::kBarrier, ScheduleClaim::Operation::kBarrier},
};

struct Chosen {
  Collective collective;
  ScheduleClaim::Operation operation;
};

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const auto& [collective, operation] : kCollectives) {
    names.emplace_back(to_string(collective));
  }
  return names;
}

// The operation asked for, else the first that has such an algorithm.
Result<Chosen> choose(const std::string& op, const std::string& algorithm) {
  std::string known;
  for (const auto& [collective, operation] : kCollectives) {
    if (!op.empty() && op != to_string(collective)) continue;
    for (const std::string_view name : algorithms_of(collective)) {
      if (name == algorithm) return Chosen{collective, operation};
      known += (known.empty() ? "" : ", ") + std::string(name) + " (" +
               std::string(to_string(collective)) + ")";
    }
  }
  return Status(Code::kInvalidArgument, "inspect schedule: unknown algorithm ('" + algorithm +
                                            "' seen; one of " + known + " wanted)");
}

ScheduleClaim claim_of(const Chosen& chosen, const std::string& algorithm, int ranks,
                       std::int64_t elems) {
  ScheduleClaim claim;
  claim.operation = chosen.operation;
  claim.size = ranks;
  claim.elems = elems;
  claim.rank_order = algorithm == "canonical";
  const auto n = static_cast<std::size_t>(ranks);
  if (chosen.operation == ScheduleClaim::Operation::kAllGather) claim.counts.assign(n, elems);
  if (chosen.operation == ScheduleClaim::Operation::kAllToAll) claim.counts.assign(n * n, elems);
  return claim;
}

void print_costs(const std::vector<ScheduleCost>& costs) {
  std::printf("checked: every schedule ends, every contribution is counted exactly once\n");
  std::printf("%6s %8s %10s %15s %15s\n", "rank", "rounds", "messages", "elements sent",
              "elements recv");
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    std::printf("%6zu %8d %10lld %15lld %15lld\n", rank, costs[rank].rounds,
                static_cast<long long>(costs[rank].messages_sent),
                static_cast<long long>(costs[rank].elems_sent),
                static_cast<long long>(costs[rank].elems_received));
  }
}

}  // namespace

Result<int> inspect_schedule(const std::vector<std::string>& args) {
  std::string algorithm;
  std::string ranks_text;
  std::string op;
  std::int64_t elems = 12;
  Flags flags("inspect schedule",
              "Prints every rank's rounds of a collective operation and proves, without a network, "
              "that they end and count every contribution exactly once.");
  flags.positional("algorithm", algorithm, "ring, canonical, pairwise, binomial or dissemination");
  flags.positional("ranks", ranks_text, "how many, 1 to 256");
  flags.choice("op", op, operation_names(), "operation; unset: the first with such an algorithm");
  flags.integer("elems", elems, {0, 1e9},
                "elements of the tensor (all_reduce, broadcast) or of one rank's row");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  const auto ranks = to_int(ranks_text);
  if (!ranks || *ranks < 1 || *ranks > 256) {
    return Status(Code::kInvalidArgument, "inspect schedule: bad value for ranks ('" + ranks_text +
                                              "' seen; a whole number from 1 to 256 wanted)");
  }
  const int size = static_cast<int>(*ranks);
  GW_ASSIGN(const Chosen chosen, choose(op, algorithm));
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank) {
    schedules.push_back(make_schedule(chosen.collective, algorithm, rank, size, elems));
  }
  std::printf("%s by %s, %d rank(s), %lld elements\n\n",
              std::string(to_string(chosen.collective)).c_str(), algorithm.c_str(), size,
              static_cast<long long>(elems));
  for (const Schedule& schedule : schedules) std::printf("%s\n", to_string(schedule).c_str());
  GW_ASSIGN(const auto costs, check_schedules(schedules, claim_of(chosen, algorithm, size, elems)));
  print_costs(costs);
  return 0;
}

}  // namespace gradwire
