// Stages without a flush beside the serial replay of what they say they compute: what is compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/adapters/pipeline/mesh_runs.h"
#include "tests/adapters/pipeline/stage_models.h"
#include "tests/adapters/pipeline/stream_replay.h"

namespace gradwire::testing {

constexpr std::int64_t kDrains = 10;  // steps

struct Trainee {
  std::string name;
  const Model<float>* model;
  const DataSet* data;
};

inline std::vector<Trainee> trainees() {
  return {{"mlp", &deep_mlp(), &digits_data()},
          {"gpt", &small_gpt(), &grammar_text()},
          {"resnet8", &small_resnet(), &digits_data()}};
}

inline std::string name_of(const StreamRule& rule) {
  const std::string names[] = {"pipedream", "pipedream in sync", "2bw"};
  return names[static_cast<int>(rule.versions)] + " p=" + std::to_string(rule.ranks) +
         " m=" + std::to_string(rule.micro_batches);
}

inline MeshTraining training_of(const Trainee& one, const std::string& optimizer, int replicas,
                                const StreamRule& rule) {
  return {.training = {.model = one.model,
                       .ranks = replicas,
                       .accumulate = rule.micro_batches,
                       .batch = std::int64_t{4} * rule.micro_batches * replicas,
                       .lr = optimizer == "adamw" ? 0.003 : 0.02,
                       .steps = 13,
                       .optimizer = optimizer},
          .data = one.data};
}

inline void expect_replayed(const MeshTraining& plain, const StreamRule& rule,
                            const std::string& where) {
  MeshTraining replay = plain;
  replay.source = StreamReplay::choice(*plain.training.model, rule, kDrains);
  MeshTraining stages = plain;
  stages.stages = rule.ranks;
  stages.stream = rule;
  expect_equal(run_mesh(stages), run_mesh(replay), where + ", " + name_of(rule));
}

// Of every kind of versions.
inline std::vector<StreamRule> rules(int ranks) {
  using Versions = StreamRule::Versions;
  return {{.ranks = ranks, .versions = Versions::kNewest},
          {.ranks = ranks, .versions = Versions::kInSync},
          {.ranks = ranks, .micro_batches = ranks, .versions = Versions::kDelayed},
          {.ranks = ranks, .micro_batches = ranks + 1, .versions = Versions::kDelayed}};
}

}  // namespace gradwire::testing
