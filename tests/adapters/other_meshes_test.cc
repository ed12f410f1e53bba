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

// Between nodes an owner has a range of a parameter, which is another on other ranks: its factors
// have another shape.
TEST(OtherMeshes, FactorsBetweenNodesStartAnewOnOtherRanges) {
  const std::string spec = std::string(kPowersgd) + ",dense_1d=false,intra_node=none";
  Training training = on(4, spec);
  training.node_of = {0, 0, 1, 1};
  const TemporaryFolder first;
  const Outcome whole = run(training, {.save_to = first.path()});
  ASSERT_TRUE(all_ok(whole));
  training = on(6, spec);
  training.node_of = {0, 0, 0, 1, 1, 1};
  const TemporaryFolder second;
  const Outcome resumed =
      run(training, {.resume_from = first.path(), .save_to = second.path(), .save_after = 0});
  ASSERT_TRUE(all_ok(resumed));
  EXPECT_THAT(resumed.notices, ::testing::ElementsAre(::testing::HasSubstr("low-rank factors")));
  EXPECT_NEAR(resumed.last_loss, whole.last_loss, 0.05 * whole.last_loss);
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

// What fits the replicas that made it starts anew on others, and that is said; moving averages and
// residuals do not.
TEST(OtherMeshes, FactorsAndShiftsStartAnew) {
  struct Case {
    std::string spec;
    std::vector<std::string> tails;
    const char* said;
  };
  const std::vector<Case> all{
      {kPowersgd, {".coder.q"}, "low-rank factors of 2 tensor(s)"},
      {"acpsgd:rank=2,ef=ef14,min_elems=0", {".coder.q", ".coder.p"}, "low-rank factors of 2"},
      {"topk:ratio=0.2,ef=ef21,min_elems=0,dense_1d=false",
       {".ef21.h", ".ef21.mean"},
       "shifts of EF21 of 4 tensor(s)"},
      {"qsgd:bits=4,ef=ef21,combine=sra,min_elems=0,dense_1d=false",
       {".ef21.h", ".ef21.mean", ".ef21.average"},
       "shifts of EF21 of 4 tensor(s)"}};
  for (const auto& [spec, tails, said] : all) {
    SCOPED_TRACE(spec);
    const TemporaryFolder first;
    const Outcome whole = run(on(4, spec), {.save_to = first.path()});
    ASSERT_TRUE(all_ok(whole));
    for (const int replicas : {1, 3}) {
      const TemporaryFolder second;
      const TemporaryFolder begun;
      const Outcome resumed =
          run(on(replicas, spec),
              {.resume_from = first.path(), .save_to = second.path(), .save_after = 0});
      ASSERT_TRUE(all_ok(resumed));
      EXPECT_THAT(resumed.notices, ::testing::ElementsAre(::testing::HasSubstr(said)));
      ASSERT_TRUE(all_ok(run(on(replicas, spec), {.save_to = begun.path(), .save_after = 0})));
      const auto fresh = kept_in(begun.path(), tails);
      EXPECT_EQ(kept_in(second.path(), tails), fresh);
      ASSERT_FALSE(fresh.empty());
      // Not what the old replicas had.
      const auto old = kept_in(first.path(), tails);
      for (const auto& [name, values] : fresh) EXPECT_NE(old.at(name), values) << name;
      EXPECT_LT(resumed.last_loss, 1.2 * whole.last_loss);
    }
    EXPECT_TRUE(run(on(4, spec), {.resume_from = first.path()}).notices.empty());
  }
}

TEST(OtherMeshes, MovingAveragesGoOnWhereShiftsStartAnew) {
  const std::string spec = "topk:ratio=0.2,ef=ef21_sgdm,min_elems=0,dense_1d=false";
  const TemporaryFolder first;
  const TemporaryFolder second;
  ASSERT_TRUE(all_ok(run(on(2, spec), {.save_to = first.path()})));
  ASSERT_TRUE(all_ok(
      run(on(1, spec), {.resume_from = first.path(), .save_to = second.path(), .save_after = 0})));
  const auto old = kept_in(first.path(), {".ef21.v"});
  const auto now = kept_in(second.path(), {".ef21.v"});
  ASSERT_EQ(now.size(), 4U);
  for (const auto& [name, values] : now) {
    const std::vector<float>& one = old.at(name);
    const std::vector<float>& other = old.at("dp-1" + name.substr(name.find('/')));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double mean = (static_cast<double>(one[i]) + static_cast<double>(other[i])) / 2;
      ASSERT_EQ(values[i], static_cast<float>(mean)) << name << " " << i;
    }
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
