// What four replicas wrote goes on on any other number of them, and at any stage of sharding: the
// same state on as many, and what compression still owes the model on others. A step has twelve
// micro-batches over all ranks, however many there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/strategy_state.h"
#include "compress/error_feedback/stored_residual.h"
#include "tests/adapters/deferred_mean.h"
#include "tests/adapters/training_runs.h"
#include "tests/support/fails.h"

namespace gradwire::testing::other_meshes_test {
namespace {

constexpr int kMicroBatches = 12;
constexpr const char* kQsgd = "qsgd:bits=4,ef=ef14,min_elems=0,dense_1d=false";
constexpr const char* kTopk = "topk:ratio=0.1,ef=ef14,min_elems=0,dense_1d=false";
constexpr const char* kPowersgd = "powersgd:rank=2,ef=ef14,min_elems=0";

Training on(int replicas, const std::string& compressor, int zero = 0) {
  return {.compressor = compressor,
          .ranks = replicas,
          .accumulate = kMicroBatches / replicas,
          .lr = 0.002,
          .optimizer = "adamw",
          .zero = zero};
}

TEST(OtherMeshes, FourReplicasGoOnBitForBit) {
  expect_exact(on(4, kQsgd, 2));
  expect_exact(on(4, kTopk));
  expect_exact(on(4, kPowersgd));
}

void expect_owed_and_trained(const Training& before, const std::vector<Training>& after) {
  const TemporaryFolder first;
  const Outcome whole = run(before, {.save_to = first.path()});
  ASSERT_TRUE(all_ok(whole));
  for (const Training& other : after) {
    SCOPED_TRACE(std::to_string(other.ranks) + " replicas at stage " + std::to_string(other.zero));
    const TemporaryFolder second;
    const Outcome resumed =
        run(other, {.resume_from = first.path(), .save_to = second.path(), .save_after = 0});
    ASSERT_TRUE(all_ok(resumed));
    EXPECT_LE(relative_difference(deferred_mean(first.path()), deferred_mean(second.path())), 1e-5);
    EXPECT_NEAR(resumed.last_loss, whole.last_loss, 0.02 * whole.last_loss);
  }
}

TEST(OtherMeshes, TheDeferredMeanIsKeptAtEveryStage) {
  std::vector<Training> all;
  for (const int replicas : {4, 1, 2, 3}) {
    for (const int stage : {0, 1, 2, 3}) all.push_back(on(replicas, kQsgd, stage));
  }
  expect_owed_and_trained(on(4, kQsgd, 2), all);
  // What owners of a sum owe, which sharded gradients do not have, is their own residual's then.
  expect_owed_and_trained(on(4, kQsgd), {on(4, kQsgd, 2), on(3, kQsgd, 1), on(3, kQsgd)});
}

TEST(OtherMeshes, TheDeferredMeanOfMethodsThatChooseOrFactorIsKept) {
  for (const char* spec : {kTopk, kPowersgd}) {
    expect_owed_and_trained(on(4, spec), {on(4, spec), on(1, spec), on(2, spec), on(3, spec)});
  }
}

// Of gathered payloads, which have one stage, and of sums that their owners encode again.
TEST(OtherMeshes, TheDeferredMeanOfOneStageAndOfTwoIsKept) {
  for (const std::string combine : {"gather", "sra"}) {
    const std::string spec = std::string(kQsgd) + ",combine=" + combine;
    expect_owed_and_trained(on(4, spec), {on(1, spec), on(2, spec), on(3, spec)});
    expect_owed_and_trained(on(1, spec), {on(4, spec), on(1, spec)});
  }
  for (const char* spec : {kTopk, kPowersgd}) expect_owed_and_trained(on(1, spec), {on(4, spec)});
}

// A residual in fewer bytes: what a checkpoint's ranks owe on average, by value.
DeferredMean stored_mean(const std::string& folder) {
  const CheckpointStore store(folder);
  auto reader = CheckpointReader::open(store.path_of(10));
  EXPECT_TRUE(reader.has_value());
  const CheckpointManifest& manifest = reader.value().manifest();
  DeferredMean average;
  for (const auto& [name, tensor] : manifest.tensors) {
    if (!name.ends_with(".error")) continue;
    const auto read = [&](const std::string& entry, Buffer& memory) {
      const CheckpointTensor& saved = manifest.tensors.at(entry);
      const auto elems = static_cast<std::size_t>(saved.shape.elems());
      memory = std::move(Buffer::allocate(elems * size_of(saved.dtype))).value();
      const TensorView view = memory.tensor(saved.shape, saved.dtype);
      EXPECT_TRUE(reader.value().read(entry, view).ok());
      return view;
    };
    Buffer values_memory;
    Buffer scales_memory;
    const TensorView values = read(name, values_memory);
    const bool codes = tensor.dtype == DType::kI8;
    const TensorView scales = codes ? read(name + ".scale", scales_memory) : values;
    std::vector<double>& sum = average[name.substr(name.find("gradients/"))];
    sum.resize(static_cast<std::size_t>(values.elems()));
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const float scale = codes ? elements<float>(ConstTensorView(scales))[i / 256] : 0;
      const double value =
          codes ? static_cast<double>(elements<std::int8_t>(ConstTensorView(values))[i]) *
                      static_cast<double>(scale)
                : stored_value(values, values, i);
      sum[i] += value / manifest.position.mesh.dp;
    }
  }
  return average;
}

// Rounded to nearest: by 2^-9 of an element (bf16), or by half a step of the largest of 256 (int8),
// which is 127 steps.
TEST(OtherMeshes, StoredResidualsGoOnByTheirValues) {
  for (const auto& [storage, bound] : {std::pair("bf16", 1.0 / 512), {"int8", 1.0 / 60}}) {
    const std::string spec = std::string(kTopk) + ",ef_storage=" + storage;
    const TemporaryFolder first;
    ASSERT_TRUE(all_ok(run(on(4, spec), {.save_to = first.path()})));
    for (const int replicas : {1, 3}) {
      SCOPED_TRACE(std::string(storage) + " on " + std::to_string(replicas));
      const TemporaryFolder second;
      ASSERT_TRUE(
          all_ok(run(on(replicas, spec),
                     {.resume_from = first.path(), .save_to = second.path(), .save_after = 0})));
      EXPECT_LE(relative_difference(stored_mean(first.path()), stored_mean(second.path())), bound);
    }
  }
}

// The tensors of a checkpoint that end with one of `tails`, by name.
std::map<std::string, std::vector<float>> kept_in(const std::string& folder,
                                                  const std::vector<std::string>& tails) {
  std::map<std::string, std::vector<float>> kept;
  const CheckpointStore store(folder);
  auto reader = CheckpointReader::open(store.path_of(store.complete().value().back()));
  EXPECT_TRUE(reader.has_value());
  for (const auto& [name, tensor] : reader.value().manifest().tensors) {
    const auto ends = [&name = name](const std::string& tail) { return name.ends_with(tail); };
    if (std::ranges::none_of(tails, ends)) continue;
    std::vector<float>& values = kept[name];
    values.resize(static_cast<std::size_t>(tensor.shape.elems()));
    EXPECT_TRUE(
        reader.value()
            .read(name, {reinterpret_cast<std::byte*>(values.data()), tensor.shape, DType::kF32})
            .ok());
  }
  return kept;
}

using Kept = std::map<std::string, std::vector<float>>;

std::string of_replica(int replica, const std::string& name) {
  return "dp-" + std::to_string(replica) + name.substr(name.find('/'));
}

// What the replicas have behind one name, one after another.
std::vector<float> joined(const Kept& kept, int replicas, const std::string& name) {
  std::vector<float> all;
  for (int replica = 0; replica < replicas; ++replica) {
    const std::vector<float>& values = kept.at(of_replica(replica, name));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::vector<float> average(const Kept& kept, int replicas, const std::string& name) {
  std::vector<double> sum(kept.at(name).size());
  for (int replica = 0; replica < replicas; ++replica) {
    const std::vector<float>& values = kept.at(of_replica(replica, name));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(values[i]);
  }
  std::vector<float> mean;
  for (const double value : sum) mean.push_back(static_cast<float>(value / replicas));
  return mean;
}

// What four replicas kept, as `replicas` have it: shifts and moving averages as their average,
// owners' averages joined and cut, factors and what all take for the average alike.
void expect_carried(const Kept& old, const Kept& now, int replicas) {
  EXPECT_EQ(now.size() * 4, old.size() * static_cast<std::size_t>(replicas));
  for (const auto& [name, values] : now) {
    SCOPED_TRACE(name);
    const std::string first = of_replica(0, name);
    if (name.ends_with(".ef21.average")) {
      EXPECT_EQ(joined(now, replicas, name), joined(old, 4, name));
    } else if (name.ends_with(".ef21.h") || name.ends_with(".ef21.v")) {
      EXPECT_EQ(values, average(old, 4, first));
    } else {
      for (int replica = 0; replica < 4; ++replica) {
        EXPECT_EQ(values, old.at(of_replica(replica, name)));
      }
    }
    EXPECT_TRUE(std::ranges::any_of(old.at(first), [](float value) { return value != 0; }));
  }
}

// A tensor that every replica has whole, as before, keeps its factors and shifts on any number of
// them, and nothing is said.
TEST(OtherMeshes, FactorsAndShiftsGoOn) {
  struct Case {
    std::string spec;
    std::vector<std::string> tails;
    std::size_t entries;  // of a replica
  };
  const std::vector<Case> all{
      {kPowersgd, {".coder.q"}, 2},
      {"acpsgd:rank=2,ef=ef14,min_elems=0", {".coder.q", ".coder.p"}, 4},
      {"topk:ratio=0.2,ef=ef21,min_elems=0,dense_1d=false", {".ef21.h", ".ef21.mean"}, 8},
      {"topk:ratio=0.2,ef=ef21_sgdm,min_elems=0,dense_1d=false",
       {".ef21.h", ".ef21.mean", ".ef21.v"},
       12},
      {"qsgd:bits=4,ef=ef21,combine=sra,min_elems=0,dense_1d=false",
       {".ef21.h", ".ef21.mean", ".ef21.average"},
       12}};
  for (const auto& [spec, tails, entries] : all) {
    SCOPED_TRACE(spec);
    const TemporaryFolder first;
    const Outcome whole = run(on(4, spec), {.save_to = first.path()});
    ASSERT_TRUE(all_ok(whole));
    const Kept old = kept_in(first.path(), tails);
    ASSERT_EQ(old.size(), 4 * entries);
    for (const int replicas : {1, 3, 6}) {
      SCOPED_TRACE(replicas);
      const TemporaryFolder second;
      const Outcome resumed =
          run(on(replicas, spec),
              {.resume_from = first.path(), .save_to = second.path(), .save_after = 0});
      ASSERT_TRUE(all_ok(resumed));
      EXPECT_TRUE(resumed.notices.empty());
      expect_carried(old, kept_in(second.path(), tails), replicas);
      EXPECT_NEAR(resumed.last_loss, whole.last_loss, 0.05 * whole.last_loss);
    }
  }
}

// Between nodes a factored parameter has one owner in each of them.
Training between_nodes(const std::vector<int>& node_of) {
  Training training = on(static_cast<int>(node_of.size()),
                         std::string(kPowersgd) + ",dense_1d=false,intra_node=none");
  training.node_of = node_of;
  return training;
}

TEST(OtherMeshes, FactorsBetweenNodesGoToTheirOwners) {
  const TemporaryFolder first;
  const Outcome whole = run(between_nodes({0, 0, 1, 1}), {.save_to = first.path()});
  ASSERT_TRUE(all_ok(whole));
  const Kept old = kept_in(first.path(), {".outer.coder.q"});
  ASSERT_FALSE(old.empty());
  for (const std::vector<int>& node_of :
       {std::vector<int>{0, 0, 1, 2, 1, 2}, {0, 0, 0, 1, 1, 1}, {0, 1, 2}}) {
    SCOPED_TRACE(::testing::PrintToString(node_of));
    const TemporaryFolder second;
    const Outcome resumed =
        run(between_nodes(node_of),
            {.resume_from = first.path(), .save_to = second.path(), .save_after = 0});
    ASSERT_TRUE(all_ok(resumed));
    EXPECT_TRUE(resumed.notices.empty());
    const Kept now = kept_in(second.path(), {".outer.coder.q"});
    // As many parameters, with an owner in each node.
    const int nodes = *std::ranges::max_element(node_of) + 1;
    EXPECT_EQ(now.size() * 2, old.size() * static_cast<std::size_t>(nodes));
    for (const auto& [name, values] : now) {
      int owner = 0;
      while (owner < 3 && !old.contains(of_replica(owner, name))) ++owner;
      EXPECT_EQ(values, old.at(of_replica(owner, name))) << name;
    }
    EXPECT_NEAR(resumed.last_loss, whole.last_loss, 0.05 * whole.last_loss);
  }
}

// With exact sums in canonical order every stage has the same bits, so any goes on from any.
TEST(OtherMeshes, ExactSumsGoOnBitForBitAtAnyOtherStage) {
  for (const int before : {0, 1, 3}) {
    const TemporaryFolder folder;
    const Outcome whole = run(on(4, "none", before), {.save_to = folder.path()});
    ASSERT_TRUE(all_ok(whole));
    for (const int after : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::to_string(before) + " to " + std::to_string(after));
      const Outcome resumed = run(on(4, "none", after), {.resume_from = folder.path()});
      ASSERT_TRUE(all_ok(resumed));
      EXPECT_EQ(resumed.parameters, whole.parameters);
    }
  }
}

// What rank-wise codes stand for next: numbers of few bits, of which a cast and its sum are exact.
float coded_at(std::int64_t e) { return static_cast<float>(e % 17 - 8) / 64; }

// One rank's gradients of a step, and what it holds of their mean.
struct NextStep {
  std::vector<float> given;
  std::vector<float> mean;
};

// The residuals of a checkpoint under a codec that is the identity for what it is given: gradients
// that make up coded_at() with the rank's residual.
Status next_step(Communicator& communicator, const std::string& folder, AggregateForm form,
                 NextStep& step) {
  AggregatorOptions options;
  options.compressor = "cast:bf16,ef=ef14,min_elems=0,dense_1d=false";
  // Owners of the sum would owe something themselves, and would round it.
  if (form == AggregateForm::kAllReduce) options.compressor += ",combine=gather";
  options.algorithm = "canonical";
  options.form = form;
  GW_ASSIGN(const auto aggregator, Aggregator::create(communicator, Registry::builtin(), options));
  const ParameterTable& table = small_mlp().parameters();
  step.mean.resize(static_cast<std::size_t>(parameter_elems(table)));
  for (const NamedTensor& named : named_tensors(table, step.mean)) {
    GW_TRY(aggregator->add(named.name, named.tensor));
  }
  const CheckpointStore store(folder);
  GW_ASSIGN(CheckpointReader reader, CheckpointReader::open(store.path_of(10)));
  std::vector<LoadedState> states;
  std::vector<std::vector<NamedTensor>> by_old_rank;
  std::vector<float> nothing(step.mean.size());
  for (int rank = 0; rank < reader.manifest().position.mesh.dp; ++rank) {
    std::set<std::string> used;
    GW_ASSIGN(LoadedState state, load_old_state(reader, aggregator->state(), table, rank, used));
    // A cast has no factors; parameters without a residual were exact.
    std::erase_if(state.tensors, [](const NamedTensor& entry) {
      return entry.name.find(".coder.") != std::string::npos;
    });
    for (const NamedTensor& zeros : named_tensors(table, nothing)) {
      const auto same = [&](const NamedTensor& entry) {
        return entry.name == zeros.name + ".error";
      };
      if (std::ranges::none_of(state.tensors, same)) {
        state.tensors.push_back({zeros.name + ".error", zeros.tensor});
      }
    }
    by_old_rank.push_back(state.tensors);
    states.push_back(std::move(state));
  }
  GW_TRY(aggregator->load_state(by_old_rank));
  for (const NamedTensor& kept : aggregator->state()) {
    const ParameterState of = parameter_state(table, kept.name);
    if (of.info == nullptr || of.kind != "error") continue;
    const std::span<const float> residual = elements<float>(ConstTensorView(kept.tensor));
    for (std::size_t i = 0; i < residual.size(); ++i) {
      const std::int64_t e = of.info->offset + static_cast<std::int64_t>(i);
      step.mean[static_cast<std::size_t>(e)] = coded_at(e) - residual[i];
    }
  }
  step.given = step.mean;
  for (int index = static_cast<int>(table.size()); index-- > 0;) GW_TRY(aggregator->ready(index));
  return aggregator->finish();
}

// |what came back - (mean of the gradients + deferred mean)| / |the latter|, of what rank `rank`
// holds of it.
double difference_of(const std::vector<NextStep>& steps, int rank, bool shards,
                     const DeferredMean& owed) {
  double square = 0;
  double norm = 0;
  const auto ranks = static_cast<int>(steps.size());
  for (const ParameterInfo& info : small_mlp().parameters()) {
    const std::int64_t elems = info.shape.elems();
    const Range mine = shards ? piece(elems, ranks, rank) : Range{0, elems};
    const auto found = owed.find(info.name);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const auto at = static_cast<std::size_t>(info.offset + i);
      double mean = found == owed.end() ? 0 : found->second[static_cast<std::size_t>(i)];
      for (const NextStep& step : steps) mean += static_cast<double>(step.given[at]) / ranks;
      const auto got = static_cast<double>(steps[static_cast<std::size_t>(rank)].mean[at]);
      square += std::pow(mean - got, 2);
      norm += std::pow(mean, 2);
    }
  }
  return std::sqrt(square / norm);
}

TEST(OtherMeshes, TheNextMeanOfAnIdentityIsTheGradientAndWhatWasDeferred) {
  const std::pair<const char*, int> written[] = {
      {kQsgd, 2}, {kQsgd, 0}, {kTopk, 0}, {kPowersgd, 0}};
  for (const auto& [spec, stage] : written) {
    const TemporaryFolder folder;
    ASSERT_TRUE(all_ok(run(on(4, spec, stage), {.save_to = folder.path()})));
    const DeferredMean owed = deferred_mean(folder.path());
    for (const int replicas : {4, 1, 2, 3}) {
      for (const AggregateForm form : {AggregateForm::kAllReduce, AggregateForm::kReduceScatter}) {
        SCOPED_TRACE(std::string(spec) + " on " + std::to_string(replicas));
        std::vector<NextStep> steps(static_cast<std::size_t>(replicas));
        const auto ended = on_ranks(replicas, [&](std::unique_ptr<Communicator>& communicator) {
          return next_step(*communicator, folder.path(), form,
                           steps[static_cast<std::size_t>(communicator->rank())]);
        });
        for (const Status& status : ended) ASSERT_TRUE(status.ok()) << status.message();
        for (int rank = 0; rank < replicas; ++rank) {
          EXPECT_LE(difference_of(steps, rank, form == AggregateForm::kReduceScatter, owed), 1e-6);
        }
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::testing::other_meshes_test
