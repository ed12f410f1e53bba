// What one mesh of replicas and stages wrote goes on on any other: bit for bit where there are as
// many replicas, and with what compression still owes the model where there are others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/entry_owner.h"
#include "tests/adapters/deferred_mean.h"
#include "tests/adapters/pipeline/mesh_runs.h"
#include "tests/support/fails.h"

namespace gradwire::testing::stage_checkpoints_test {
namespace {

constexpr int kMicroBatches = 8;
constexpr const char* kQsgd = "qsgd:bits=4,ef=ef14,min_elems=0,dense_1d=false";
constexpr const char* kTopk = "topk:ratio=0.1,ef=ef14,min_elems=0,dense_1d=false";
constexpr const char* kPowersgd = "powersgd:rank=2,ef=ef14,min_elems=0";

// Five layers that have parameters.
const Model<float>& five_layers() {
  static const auto kModel =
      std::move(make_model<float>({"mlp", {24, 20, 16, 12}}, digits().shape(), 10)).value();
  return kModel;
}

CheckpointManifest manifest_of(const std::string& folder) {
  const CheckpointStore store(folder);
  auto reader = CheckpointReader::open(store.path_of(10));
  EXPECT_TRUE(reader.has_value());
  return reader.value().manifest();
}

MeshTraining on(int replicas, int stages, const std::string& compressor,
                const std::string& optimizer = "adamw") {
  return {.training = {.model = &five_layers(),
                       .compressor = compressor,
                       .ranks = replicas,
                       .accumulate = kMicroBatches / replicas,
                       .lr = 0.002,
                       .optimizer = optimizer},
          .stages = stages};
}

std::string place(const MeshTraining& mesh) {
  return "dp " + std::to_string(mesh.training.ranks) + ", pp " + std::to_string(mesh.stages);
}

// Twenty steps without stages, and the last ten on every mesh that `after` has from what every mesh
// that `before` has wrote: all with as many replicas.
void expect_bits(const std::string& compressor, int replicas, const std::vector<int>& before,
                 const std::vector<int>& after) {
  const MeshEnded whole = run_mesh(on(replicas, 1, compressor));
  for (const int wrote : before) {
    const TemporaryFolder folder;
    const MeshTraining from = on(replicas, wrote, compressor);
    expect_equal(run_mesh(from, {.save_to = folder.path()}), whole, place(from));
    for (const int reads : after) {
      const MeshTraining to = on(replicas, reads, compressor);
      const MeshEnded resumed = run_mesh(to, {.resume_from = folder.path()});
      expect_equal(resumed, whole, compressor + ": " + place(from) + " to " + place(to));
      EXPECT_THAT(resumed.notices, ::testing::IsEmpty());
    }
  }
}

TEST(StageCheckpoints, GoOnBitForBitThroughAnyStages) {
  expect_bits("none", 1, {1, 2, 4}, {1, 2, 3, 4});
  expect_bits("none", 2, {1, 2, 3}, {1, 2, 4});
}

TEST(StageCheckpoints, KeepWhatReplicasOfStagesOwe) {
  for (const char* compressor : {kQsgd, kTopk, kPowersgd}) {
    expect_bits(compressor, 2, {1, 2}, {1, 2, 4});
  }
}

// Replicas on two nodes, whose owners keep what goes between these.
TEST(StageCheckpoints, WhatOwnersBetweenNodesKeepGoesOn) {
  const auto of = [](int stages) {
    MeshTraining mesh = on(4, stages, std::string(kPowersgd) + ",dense_1d=false,intra_node=none");
    for (int stage = 0; stage < stages; ++stage) {
      mesh.training.node_of.insert(mesh.training.node_of.end(), {0, 0, 1, 1});
    }
    return mesh;
  };
  const TemporaryFolder plain;
  const MeshEnded whole = run_mesh(of(1), {.save_to = plain.path()});
  const TemporaryFolder staged;
  expect_equal(run_mesh(of(2), {.save_to = staged.path()}), whole, "two stages");
  const auto& tensors = manifest_of(staged.path()).tensors;
  EXPECT_TRUE(std::ranges::any_of(tensors, [](const auto& tensor) {
    return tensor.first.find(".outer.") != std::string::npos;
  }));
  for (const int stages : {1, 3}) {
    expect_equal(run_mesh(of(stages), {.resume_from = staged.path()}), whole, "from 2 stages");
    expect_equal(run_mesh(of(stages), {.resume_from = plain.path()}), whole, "from whole models");
  }
}

// Ranks that have several stages, and halves of backward.
TEST(StageCheckpoints, GoOnUnderAnotherSchedule) {
  const MeshEnded whole = run_mesh(on(2, 1, kQsgd));
  MeshTraining mesh = on(2, 2, kQsgd);
  mesh.spec = {.kind = PipelineKind::kInterleaved, .chunks = 2};
  const TemporaryFolder folder;
  expect_equal(run_mesh(mesh, {.save_to = folder.path()}), whole, "interleaved");
  mesh.spec = {.kind = PipelineKind::kZeroBubbleH1};
  expect_equal(run_mesh(mesh, {.resume_from = folder.path()}), whole, "zb-h1");
}

// Running statistics are on the ranks of their layers, momenta on those of their workers.
TEST(StageCheckpoints, RunningStatisticsAndWorkersGoOn) {
  const auto of = [](int stages) {
    MeshTraining mesh = on(2, stages, "none", "sgd");
    mesh.training.model = &resnet();
    mesh.training.momentum_at = MomentumAt::kWorker;
    mesh.training.steps = 12;
    return mesh;
  };
  const MeshEnded whole = run_mesh(of(1));
  ASSERT_TRUE(std::ranges::any_of(whole.tensors, [](const auto& tensor) {
    return tensor.first.find("running_mean") != std::string::npos;
  }));
  for (const int wrote : {1, 3}) {
    const TemporaryFolder folder;
    expect_equal(run_mesh(of(wrote), {.save_to = folder.path()}), whole, "wrote");
    for (const int reads : {1, 2}) {
      expect_equal(run_mesh(of(reads), {.resume_from = folder.path()}), whole,
                   std::to_string(wrote) + " to " + std::to_string(reads));
    }
  }
}

using Mesh = std::pair<int, int>;  // replicas, stages

// On other replicas parameters are what they were, and so is the mean that the next step of an
// identity has beside its gradients: what is owed on average.
TEST(StageCheckpoints, TheDeferredMeanIsKeptOnOtherReplicas) {
  for (const char* compressor : {kQsgd, kTopk, kPowersgd}) {
    for (const auto& [replicas, stages] : {Mesh{2, 2}, Mesh{4, 1}, Mesh{1, 4}}) {
      const TemporaryFolder first;
      const MeshEnded whole = run_mesh(on(replicas, stages, compressor), {.save_to = first.path()});
      ASSERT_TRUE(all_ok(whole));
      const DeferredMean owed = deferred_mean(first.path());
      for (const auto& [now, through] : {Mesh{1, 4}, Mesh{4, 1}, Mesh{1, 1}, Mesh{4, 2}}) {
        if (now == replicas) continue;
        const MeshTraining to = on(now, through, compressor);
        SCOPED_TRACE(std::string(compressor) + " to " + place(to));
        const TemporaryFolder second;
        const MeshEnded resumed =
            run_mesh(to, {.resume_from = first.path(), .save_to = second.path(), .save_after = 0});
        ASSERT_TRUE(all_ok(resumed));
        EXPECT_LE(relative_difference(owed, deferred_mean(second.path())), 1e-6);
        EXPECT_NEAR(resumed.losses.back(), whole.losses.back(), 0.02 * whole.losses.back());
      }
    }
  }
}

// Every rank writes what is its stage's, the first replica what all replicas have alike.
TEST(StageCheckpoints, EachEntryIsWrittenByARankOfItsStage) {
  const TemporaryFolder folder;
  ASSERT_TRUE(all_ok(run_mesh(on(2, 2, kQsgd), {.save_to = folder.path()})));
  const CheckpointManifest manifest = manifest_of(folder.path());
  EXPECT_EQ(manifest.position.mesh, (MeshSizes{.pp = 2, .dp = 2, .tp = 1}));
  std::map<std::string, std::set<int>> stages_of;  // by parameter
  for (const ParameterInfo& info : five_layers().parameters()) {
    for (const auto& [name, tensor] : manifest.tensors) {
      if (name.find("/" + info.name) == std::string::npos) continue;
      ASSERT_EQ(tensor.slices.size(), 1U) << name;
      const MeshCoordinates at = manifest.files[static_cast<std::size_t>(tensor.slices[0].file)].at;
      stages_of[info.name].insert(at.pp);
      EXPECT_EQ(at.dp, name.starts_with("dp-1/") ? 1 : 0) << name;
    }
  }
  std::set<int> all;
  for (const auto& [name, stages] : stages_of) {
    EXPECT_EQ(stages.size(), 1U) << name;
    all.insert(stages.begin(), stages.end());
  }
  EXPECT_EQ(all, (std::set<int>{0, 1}));
  const auto writer = [&](const std::string& name) {
    return manifest.files[static_cast<std::size_t>(manifest.tensors.at(name).slices[0].file)].at;
  };
  EXPECT_EQ(writer("trainer/trainer.position"), (MeshCoordinates{.pp = 0, .dp = 0, .tp = 0}));
  EXPECT_EQ(writer("dp-1/gradients/aggregator.step"), (MeshCoordinates{.pp = 0, .dp = 1, .tp = 0}));
}

// A tensor that the first and the last of three stages hold, and one that the last two ranks of
// three hold halves of.
TEST(StageCheckpoints, OneOfTheRanksThatHoldATensorWritesIt) {
  const TensorBox whole = TensorBox::of(Shape::matrix(4, 6));
  const TensorBox none = whole.cut(0, {0, 0});
  ModelShare share{0,
                   {{"embedding", {whole, none, whole}},
                    {"halves", {none, whole.cut(0, {0, 2}), whole.cut(0, {2, 4})}},
                    {"second", {none, whole, none}}}};
  const std::map<std::string, std::vector<bool>> written{{"embedding", {true, true, false}},
                                                         {"halves", {true, true, true}},
                                                         {"second", {true, true, true}}};
  for (int rank = 0; rank < 3; ++rank) {
    share.rank = rank;
    const EntryOwner owner(&share, {.pp = rank, .dp = 1, .tp = 0});
    EXPECT_EQ(owner.writes_rest(), rank == 0);
    for (const auto& [name, by] : written) {
      EXPECT_EQ(owner.writes(name), by[static_cast<std::size_t>(rank)]) << name << " " << rank;
    }
  }
  EXPECT_TRUE(EntryOwner(nullptr, {.pp = 0, .dp = 3, .tp = 0}).writes("embedding"));
  EXPECT_FALSE(EntryOwner(nullptr, {.pp = 0, .dp = 0, .tp = 1}).writes_rest());
}

// The checkpoint in `from` with a tensor in two halves, as ranks that shared it would have it.
Status halve(const std::string& from, const std::string& tensor, const std::string& to) {
  GW_ASSIGN(CheckpointReader reader, CheckpointReader::open(CheckpointStore(from).path_of(10)));
  std::vector<Buffer> memory;
  std::vector<TensorPart> parts;
  for (const auto& [name, saved] : reader.manifest().tensors) {
    const auto elems = static_cast<std::size_t>(saved.shape.elems());
    GW_ASSIGN(memory.emplace_back(), Buffer::allocate(elems * size_of(saved.dtype)));
    const TensorView values = memory.back().tensor(saved.shape, saved.dtype);
    GW_TRY(reader.read(name, values));
    const TensorBox whole = TensorBox::of(saved.shape);
    if (name != tensor) {
      parts.push_back({name, whole, 0, ConstTensorView(values)});
      continue;
    }
    const std::int64_t rows = saved.shape.dim[0];
    const std::int64_t row = saved.shape.elems() / rows;
    for (const Range& half : {Range{0, rows / 2}, Range{rows / 2, rows}}) {
      parts.push_back({name, whole.cut(0, half), 0,
                       ConstTensorView(values).slice(half.begin * row, half.size() * row)});
    }
  }
  const auto ended = on_ranks(1, [&](std::unique_ptr<Communicator>& alone) {
    Checkpoints checkpoints(*alone, {.folder = to, .written_by = "test"});
    return checkpoints.save(reader.manifest().position, reader.manifest().settings, parts);
  });
  return ended.front();
}

// State of a tensor that was in other boxes: all ranks say so, whichever has the tensor now.
TEST(StageCheckpoints, WhatStartsAnewOnAnyStageIsSaid) {
  const TemporaryFolder first;
  ASSERT_TRUE(all_ok(run_mesh(on(1, 1, kPowersgd), {.save_to = first.path()})));
  const TemporaryFolder second;
  const Status halved = halve(first.path(), "parameters/fc4.weight", second.path());
  ASSERT_TRUE(halved.ok()) << halved.message();
  for (const int stages : {1, 2, 4}) {
    const MeshEnded resumed = run_mesh(on(1, stages, kPowersgd), {.resume_from = second.path()});
    ASSERT_TRUE(all_ok(resumed));
    EXPECT_THAT(resumed.notices,
                ::testing::ElementsAre(::testing::HasSubstr("factors of 1 tensor(s) start anew")))
        << stages;
  }
}

// What no rank of the job uses is refused, as on one.
TEST(StageCheckpoints, WhatNoRankUsesIsRefused) {
  for (const char* surplus : {"parameters/other.weight", "optimizer/fc1.weight.other"}) {
    const TemporaryFolder folder;
    ASSERT_TRUE(all_ok(run_mesh(on(1, 2, "none"), {.save_to = folder.path()})));
    CheckpointManifest manifest = manifest_of(folder.path());
    manifest.tensors[surplus] = manifest.tensors.at("parameters/fc1.weight");
    std::ofstream(CheckpointStore(folder.path()).path_of(10) + "/" + std::string(kManifestName))
        << write_manifest(manifest);
    for (const int stages : {1, 2, 4}) {
      const MeshEnded resumed = run_mesh(on(1, stages, "none"), {.resume_from = folder.path()});
      ASSERT_EQ(resumed.statuses.size(), static_cast<std::size_t>(stages));
      for (const Status& status : resumed.statuses) {
        EXPECT_THAT(status, fails(Code::kInvalidArgument, surplus, "no counterpart"));
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::testing::stage_checkpoints_test
