// All that goes with stages, together: each test is one row of a table of sharding, layers that are
// computed again, precision and compressor, and compares with the same run without stages, also
// where it goes on from a checkpoint on other replicas and stages. A sample of the rows, and the
// whole where GRADWIRE_TEST_FULL is set:
//   GRADWIRE_TEST_FULL=1 meson test -C build pipeline_stage_composition
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/adapters/pipeline/mesh_runs.h"
#include "tests/support/short_run.h"

namespace gradwire::testing::stage_composition_test {
namespace {

constexpr int kMicroBatches = 8;
constexpr std::int64_t kSteps = 13;  // of which ten come before the checkpoint

struct Row {
  int zero = 0;
  std::string recompute;
  std::string precision;
  std::string compressor;  // "": none
};

std::string name_of(const Row& row) {
  const std::string method = row.compressor.substr(0, row.compressor.find(':'));
  return "Zero" + std::to_string(row.zero) + "_Recompute_" + row.recompute + "_" + row.precision +
         "_" + method;
}
void PrintTo(const Row& row, std::ostream* out) { *out << name_of(row); }

std::vector<Row> all_rows() {
  const std::vector<std::string> sharded{"none", "qsgd:bits=4,ef=ef14,min_elems=0,dense_1d=false",
                                         "signsgd:ef=ef14,min_elems=0,dense_1d=false"};
  std::vector<std::string> whole = sharded;
  whole.insert(whole.end(), {"topk:ratio=0.1,ef=ef14,min_elems=0,dense_1d=false",
                             "powersgd:rank=2,ef=ef14,min_elems=0"});
  std::vector<Row> all;
  for (const int zero : {0, 1, 2, 3}) {
    for (const char* recompute : {"none", "full"}) {
      for (const char* precision : {"fp32", "bf16", "fp16"}) {
        for (const std::string& compressor : zero == 0 ? whole : sharded) {
          all.push_back({zero, recompute, precision, compressor});
        }
      }
    }
  }
  return all;
}

// Every seventh takes turns through all values of a column.
std::vector<Row> rows() {
  std::vector<Row> all = all_rows();
  if (std::getenv("GRADWIRE_TEST_FULL") != nullptr) return all;
  std::vector<Row> sample;
  for (std::size_t i = 0; i < all.size(); i += 7) sample.push_back(all[i]);
  return sample;
}

const Model<float>& five_layers() {
  static const auto kModel =
      std::move(make_model<float>({"mlp", {20, 16, 16, 12}}, digits().shape(), 10)).value();
  return kModel;
}

MeshTraining on(const Row& row, int replicas, int stages) {
  const bool scaled = row.precision == "fp16";
  return {.training = {.model = &five_layers(),
                       .compressor = row.compressor,
                       .ranks = replicas,
                       .accumulate = kMicroBatches / replicas,
                       .lr = 0.002,
                       .steps = kSteps,
                       .optimizer = "adamw",
                       .zero = row.zero,
                       .precision = parse_precision(row.precision).value(),
                       .loss_scale = LossScaleOptions::parse(scaled ? "dynamic" : "none").value(),
                       .recompute = row.recompute},
          .stages = stages};
}

class StageComposition : public ::testing::TestWithParam<Row> {};

TEST_P(StageComposition, HasTheBitsOfRunsWithoutStages) {
  const Row& row = GetParam();
  const TemporaryFolder plain;
  const MeshEnded whole = run_mesh(on(row, 2, 1), {.save_to = plain.path()});
  const TemporaryFolder staged;
  expect_equal(run_mesh(on(row, 2, 2), {.save_to = staged.path()}), whole, "two stages");
  expect_equal(run_mesh(on(row, 2, 4), {.resume_from = staged.path()}), whole, "from 2 to 4");
  expect_equal(run_mesh(on(row, 2, 2), {.resume_from = plain.path()}), whole, "from 1 to 2");
  for (const auto& [replicas, stages] : {std::pair{4, 2}, std::pair{1, 4}}) {
    const MeshEnded other = run_mesh(on(row, replicas, 1), {.resume_from = plain.path()});
    expect_equal(run_mesh(on(row, replicas, stages), {.resume_from = staged.path()}), other,
                 std::to_string(replicas) + " replicas");
  }
}

INSTANTIATE_TEST_SUITE_P(Table, StageComposition, ::testing::ValuesIn(rows()),
                         [](const auto& info) { return name_of(info.param); });

const DataSet& grammar() {
  static const DataSet kSet = [] {
    DataOptions options;
    options.text.context = 8;
    options.text.evaluated = 96;  // windows, which take less than the steps
    return std::move(load_data_set("grammar", {}, options)).value();
  }();
  return kSet;
}

// With dropout.
Model<float> made_gpt(bool tied) {
  ModelOptions options{"gpt"};
  options.width = 8;
  options.layers = 4;
  options.heads = 2;
  options.dropout = 0.2;
  options.tied = tied;
  return std::move(make_model<float>(options, grammar().shape(), grammar().classes())).value();
}
const Model<float>& small_gpt() {
  static const Model<float> kModel = made_gpt(false);
  return kModel;
}
const Model<float>& tied_gpt() {
  static const Model<float> kModel = made_gpt(true);
  return kModel;
}

class ShardedModels : public ::testing::TestWithParam<int> {};

// Under every schedule, two stages a rank among them: as whole models that are sharded.
void expect_bits(MeshTraining mesh, bool halves) {
  mesh.stages = 1;
  const TemporaryFolder folder;
  const MeshEnded whole = run_mesh(mesh, {.save_to = folder.path()});
  mesh.stages = 2;
  for (const PipelineSpec& spec :
       {PipelineSpec{.kind = PipelineKind::kOneFOneB},
        PipelineSpec{.kind = PipelineKind::kInterleaved, .chunks = 2},
        PipelineSpec{.kind = PipelineKind::kZeroBubbleH1},
        PipelineSpec{.kind = PipelineKind::kZeroBubbleVHalf},
        PipelineSpec{.kind = PipelineKind::kBreadthFirst, .chunks = 2}}) {
    if (splits_backward(spec.kind) && !halves) continue;
    mesh.spec = spec;
    expect_equal(run_mesh(mesh, {.resume_from = folder.path()}), whole, spec.text());
  }
}

TEST_P(ShardedModels, WithBatchNormHaveTheBitsOfWholeModels) {
  MeshTraining mesh = on({GetParam(), "none", "fp32", "none"}, 2, 1);
  mesh.training.model = &resnet();
  mesh.training.steps = 11;
  expect_bits(mesh, true);
}

TEST_P(ShardedModels, OfLanguageHaveTheBitsOfWholeModels) {
  for (const char* recompute : {"none", "2"}) {
    const bool turn = (GetParam() % 2 == 0) == (std::string(recompute) == "none");
    if (is_short_run() && !turn) continue;
    MeshTraining mesh = on({GetParam(), recompute, "bf16", "none"}, 2, 1);
    mesh.training.model = &small_gpt();
    mesh.data = &grammar();
    mesh.training.steps = 11;
    expect_bits(mesh, std::string(recompute) == "none");
  }
}

// Both ends hold the embedding, what is owed of it and, where they own its shards, its state.
TEST_P(ShardedModels, WithTiedEndsHaveTheBitsOfWholeModels) {
  const std::string qsgd = "qsgd:bits=4,ef=ef14,min_elems=0,dense_1d=false";
  const auto of = [&](int stages, PipelineKind kind) {
    MeshTraining mesh = on({GetParam(), "none", "bf16", qsgd}, 2, stages);
    mesh.training.model = &tied_gpt();
    mesh.data = &grammar();
    mesh.training.steps = 12;
    mesh.spec.kind = kind;
    return mesh;
  };
  const MeshTraining plain = of(1, PipelineKind::kOneFOneB);
  const TemporaryFolder folder;
  const MeshEnded whole = run_mesh(plain);
  expect_equal(run_mesh(of(2, PipelineKind::kInterleaved), {.save_to = folder.path()}), whole,
               "interleaved");
  for (const MeshTraining& mesh :
       {plain, of(2, PipelineKind::kZeroBubbleH1), of(2, PipelineKind::kZeroBubbleV),
        of(4, PipelineKind::kOneFOneB)}) {
    expect_equal(run_mesh(mesh, {.resume_from = folder.path()}), whole,
                 std::to_string(mesh.stages) + " " + mesh.spec.text());
  }
}

INSTANTIATE_TEST_SUITE_P(Zero, ShardedModels, ::testing::Values(0, 1, 2, 3));

TEST(StageCompositionTable, HasAllRows) {
  EXPECT_EQ(all_rows().size(), 84U);
  const std::size_t rows_here = std::getenv("GRADWIRE_TEST_FULL") == nullptr ? 12 : 84;
  EXPECT_EQ(rows().size(), rows_here);
}

}  // namespace
}  // namespace gradwire::testing::stage_composition_test
