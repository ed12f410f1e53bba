// Ranks without a model for the methods that compress at the optimizer: gradients from a formula,
// parameters by the method.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "adapters/trainer/optimizers/method.h"
#include "base/elements.h"
#include "base/philox.h"
#include "tests/reference/methods_reference.h"
#include "tests/support/aggregate_job.h"
#include "trainer/parameters.h"

namespace gradwire::testing {

// Two matrices, a bias, and a matrix of which no rank ever has a gradient.
inline ParameterTable table() {
  return {{"a.weight", Shape::matrix(12, 10), 10, 0},
          {"a.bias", Shape::vector(7), 10, 120},
          {"dead", Shape::matrix(4, 6), 6, 127},
          {"b.weight", Shape::matrix(5, 8), 8, 151}};
}
inline constexpr std::size_t kElems = 191;
inline constexpr std::size_t kDeadFirst = 127;
inline constexpr std::size_t kDeadEnd = 151;

inline std::vector<reference::Piece> pieces() {
  std::vector<reference::Piece> all;
  for (const ParameterInfo& info : table()) {
    all.push_back({static_cast<std::size_t>(info.offset),
                   static_cast<std::size_t>(info.shape.elems()),
                   static_cast<std::size_t>(info.shape.rank > 1 ? info.shape.dim[0] : 1),
                   info.shape.rank > 1});
  }
  return all;
}

// Partly what all ranks see, partly a rank's own; larger in some tensors than in others.
inline float gradient(int rank, int step, std::size_t e) {
  if (e >= kDeadFirst && e < kDeadEnd) return 0;
  const auto at = static_cast<std::uint64_t>(step);
  const RandomStream all(7, RandomUse::kTest, 1, kSharedRank, 0, at);
  const RandomStream own(7, RandomUse::kTest, 2, rank, 0, at);
  const float size = e % 16 == 3 ? 1e-9F : e < 120 ? 0.1F : 3.0F;  // some are nearly dead
  return size * (2 * all.uniform(e) - 1 + 0.5F * (2 * own.uniform(e) - 1));
}
inline float start_value(std::size_t e) {
  return 2 * RandomStream(7, RandomUse::kTest, 3, kSharedRank, 0, 0).uniform(e) - 1;
}
inline double rate(int step) { return 0.01 / (1 + 0.05 * step); }

inline MethodOptions options_of(const std::string& name) {
  MethodOptions o;
  o.name = name;
  o.optimizer.beta2 = 0.95;
  o.optimizer.weight_decay = 0.05;
  o.parallel.aggregator.algorithm = "canonical";
  o.parallel.check_every = 1;
  o.freeze = 12;
  o.variance_doubles = 3;
  o.local_doubles = 2;
  o.local_most = 4;
  o.chunk = 8;
  o.topk = 3;
  o.inner_steps = 5;
  return o;
}

// One rank's model without a model: gradients from a formula, parameters by the method.
class Rank {
 public:
  static Result<std::unique_ptr<Rank>> create(Communicator& communicator,
                                              const MethodOptions& options) {
    std::unique_ptr<Rank> own(new Rank);
    own->rank_ = communicator.rank();
    for (std::size_t e = 0; e < kElems; ++e) own->x[e] = start_value(e);
    const auto gradients = named_tensors(own->table_, own->g);
    GW_ASSIGN(own->method,
              make_method(MeshGroups::of_replicas(communicator), Registry::builtin(), options,
                          own->table_, named_tensors(own->table_, own->x), gradients));
    return own;
  }
  Status step(int number) {
    for (std::size_t e = 0; e < kElems; ++e) g[e] = gradient(rank_, number, e);
    GW_TRY(method->before_step(rate(number)));
    const auto views = named_tensors(table_, g);
    for (int index = static_cast<int>(views.size()); index-- > 0;) {
      GW_TRY(method->on_gradient(index, views[static_cast<std::size_t>(index)].tensor, {}));
    }
    GW_TRY(method->finish({}));
    return method->step(rate(number));
  }

  std::vector<float> x = std::vector<float>(kElems);
  std::vector<float> g = std::vector<float>(kElems);
  std::unique_ptr<Method> method;

 private:
  ParameterTable table_ = table();
  int rank_ = 0;
};

struct Trace {
  std::vector<Status> statuses;
  std::vector<std::vector<std::vector<float>>> x;  // by step, by rank
  std::vector<bool> equal;                         // by step: replicas_equal()
  std::vector<AggregateStats> stats;               // by step, of rank 0
};

inline Trace run(const MethodOptions& options, int ranks, int steps) {
  Trace trace;
  trace.x.resize(static_cast<std::size_t>(steps),
                 std::vector<std::vector<float>>(static_cast<std::size_t>(ranks)));
  trace.statuses = on_ranks(ranks, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    GW_ASSIGN(const auto rank, Rank::create(*communicator, options));
    GW_TRY(rank->method->start(ReplicaStart::kCompare));
    for (int step = 0; step < steps; ++step) {
      GW_TRY(rank->step(step));
      trace.x[static_cast<std::size_t>(step)][static_cast<std::size_t>(communicator->rank())] =
          rank->x;
      if (communicator->rank() != 0) continue;
      trace.equal.push_back(rank->method->replicas_equal());
      trace.stats.push_back(rank->method->stats());
    }
    return rank->method->settle();
  });
  for (const Status& status : trace.statuses) EXPECT_TRUE(status.ok()) << status.message();
  return trace;
}

}  // namespace gradwire::testing
