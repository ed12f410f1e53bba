// Models whose tensors ranks share: one micro-batch there and back, and what it sends.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tests/adapters/tensor/tensor_ranks.h"
#include "trainer/layers/parallel/output_loss.h"
#include "trainer/models.h"

namespace gradwire::testing {

struct Problem {
  ModelOptions options;
  SampleShape input;
  std::int64_t classes = 1;
  std::int64_t rows = 1;
};

template <typename T>
struct Pass {
  double loss = 0;
  std::vector<T> grads;  // of the parameters that are here, uses of tied ones added
  std::uint64_t forward_bytes = 0;
  std::uint64_t backward_bytes = 0;
  std::int64_t forward_exchanges = 0;
  std::int64_t backward_exchanges = 0;
  std::int64_t saved = 0;  // elements that are kept for the way back, of one sample
};

// One micro-batch there and back. `at`: null for a whole model.
template <typename T>
Pass<T> run_pass(const Problem& problem, const Model<T>& model, TensorRank* at) {
  const ParameterTable& table = model.parameters();
  std::vector<T> params(static_cast<std::size_t>(parameter_elems(table)));
  init_parameters<T>(table, 5, params);
  const GradientTable gradients = model.gradients();
  std::vector<T> all(static_cast<std::size_t>(gradients.elems()), T(777));
  Activations<T> activations = std::move(model.make_activations(problem.rows)).value();
  ModelPass<T> pass{params, problem.rows, &activations};
  pass.context = {PassMode::kTrain, 3, 1, 5};
  pass.peers = at == nullptr ? nullptr : &at->peers;
  const bool text = problem.options.name == "gpt";
  const std::int64_t labels_per_sample = text ? problem.input.channels : 1;
  std::vector<std::uint32_t> labels;
  const std::vector<double> noise = draws<double>(problem.rows * problem.input.elems(), 8);
  const std::span<T> x = activations.values(0, problem.rows);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = text ? static_cast<T>(i * 7 % static_cast<std::size_t>(problem.classes))
                : static_cast<T>(noise[i]);
  }
  for (std::int64_t i = 0; i < problem.rows * labels_per_sample; ++i) {
    labels.push_back(static_cast<std::uint32_t>(i * 5 % problem.classes));
  }
  Pass<T> seen;
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    seen.saved += model.layer(layer).saved_elems(problem.rows) +
                  problem.rows * model.layer(layer).output().elems();
  }
  const auto counted = [&](std::uint64_t& bytes, std::int64_t& exchanges, const auto& work) {
    if (at == nullptr) return work();
    const std::int64_t before = at->peers.exchanges();
    bytes = at->bytes_of(work);
    exchanges = at->peers.exchanges() - before;
  };
  counted(seen.forward_bytes, seen.forward_exchanges, [&] { model.forward(pass); });
  OutputLoss<T> loss(model.loss(), model.class_share(), pass.peers,
                     static_cast<std::int64_t>(labels.size()));
  seen.loss = loss.mean(activations.values(model.last_level(), problem.rows), labels,
                        activations.deltas(model.last_level(), problem.rows));
  counted(seen.backward_bytes, seen.backward_exchanges,
          [&] { EXPECT_TRUE(model.backward(pass, all, [](int) { return Status(); }).ok()); });
  seen.grads.assign(all.begin(), all.begin() + parameter_elems(table));
  for (std::size_t use = 0; use < gradients.tied.size(); ++use) {
    const ParameterInfo& from = gradients.tensors[table.size() + use];
    const ParameterInfo& to = table[static_cast<std::size_t>(gradients.tied[use])];
    for (std::int64_t i = 0; i < from.shape.elems(); ++i) {
      seen.grads[static_cast<std::size_t>(to.offset + i)] +=
          all[static_cast<std::size_t>(from.offset + i)];
    }
  }
  for (const ParameterInfo& info : table) {
    if (!info.summed) continue;
    at->peers.start_sum(std::span(seen.grads)
                            .subspan(static_cast<std::size_t>(info.offset),
                                     static_cast<std::size_t>(info.shape.elems())));
    at->peers.await();
  }
  return seen;
}

template <typename T>
Model<T> shared(Problem problem, const TensorShare& share) {
  problem.options.share = share;
  return std::move(make_model<T>(problem.options, problem.input, problem.classes)).value();
}

// Loss, first values and gradients of what each rank has, `share_of` it.
inline void expect_model_as_whole(const Problem& problem, int ranks,
                                  const std::function<TensorShare(int rank)>& share_of) {
  const Model<double> whole = shared<double>(problem, {});
  const Pass<double> alone = run_pass<double>(problem, whole, nullptr);
  std::vector<double> first(static_cast<std::size_t>(parameter_elems(whole.parameters())));
  init_parameters<double>(whole.parameters(), 5, first);
  on_tensor_ranks(ranks, [&](TensorRank& at) {
    const Model<double> part = shared<double>(problem, share_of(at.rank()));
    std::vector<double> own(static_cast<std::size_t>(parameter_elems(part.parameters())));
    init_parameters<double>(part.parameters(), 5, own);
    EXPECT_EQ(own, cut_parameters(first, whole.parameters(), part.parameters()));
    const Pass<double> seen = run_pass<double>(problem, part, &at);
    EXPECT_NEAR(seen.loss, alone.loss, 1e-12);
    EXPECT_LE(
        distance(seen.grads, cut_parameters(alone.grads, whole.parameters(), part.parameters())),
        1e-12);
  });
}

}  // namespace gradwire::testing
