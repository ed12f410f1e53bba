// Checkpoints of several ranks: together or not at all, and read by any number.
#include "adapters/trainer/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/support/aggregate_job.h"
#include "tests/support/checkpoint_parts.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::testing::checkpoints_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class JobCheckpoints : public ::testing::Test {
 protected:
  CheckpointsOptions options() const {
    CheckpointsOptions options;
    options.folder = folder_.path() + "/run";
    options.seconds = 30;
    options.written_by = "a test";
    return options;
  }
  std::vector<Status> save(int ranks, std::int64_t step) {
    return on_ranks(ranks, [&](std::unique_ptr<Communicator>& communicator) {
      return save_job(*communicator, options(), step);
    });
  }
  void expect_saved(int ranks, std::int64_t step) {
    for (const Status& status : save(ranks, step)) EXPECT_TRUE(status.ok()) << status.message();
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(options().folder)) {
      found.insert(entry.path().filename());
    }
    return found;
  }
  // All ranks end with one error that names these; what was there before still is.
  template <typename... Words>
  void expect_refused(const std::vector<Status>& statuses, Code code, const Words&... words) {
    for (const Status& status : statuses) {
      EXPECT_THAT(status, fails(code, words...));
      EXPECT_EQ(status.message(), statuses[0].message());
    }
    EXPECT_THAT(names(), ElementsAre("step-0000000010"));
    EXPECT_EQ(last_of(options().folder), "10");
  }

  TemporaryFolder folder_;
};

TEST_F(JobCheckpoints, WhatSomeRanksWroteAnyNumberReads) {
  for (const int writers : {1, 2, 3, 5}) {
    expect_saved(writers, writers);
    for (const int readers : {1, 2, 4}) {
      const auto read = [&](std::unique_ptr<Communicator>& communicator) -> Status {
        GW_ASSIGN(auto last, Checkpoints(*communicator, options()).open_last());
        EXPECT_TRUE(last.has_value());
        EXPECT_EQ(what_is_wrong(*last), "");
        EXPECT_EQ(last->manifest().position.step, writers);
        const Range mine = piece(kWeightShape.elems(), readers, communicator->rank());
        std::vector<float> part(static_cast<std::size_t>(mine.size()));
        GW_TRY(last->read("weight", kWeightShape, mine.begin, view_of(std::span(part))));
        EXPECT_EQ(part.front(), weight_at(writers, mine.begin));
        EXPECT_EQ(part.back(), weight_at(writers, mine.end - 1));
        return {};
      };
      for (const Status& status : on_ranks(readers, read)) {
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
  }
}

TEST_F(JobCheckpoints, TheManifestSaysWhatRankZeroWasTold) {
  expect_saved(3, 10);
  const auto reader = CheckpointReader::open(options().folder + "/step-0000000010");
  ASSERT_TRUE(reader.has_value());
  const CheckpointManifest& manifest = reader.value().manifest();
  EXPECT_EQ(manifest.written_by, "a test");
  EXPECT_EQ(manifest.settings.at("model"), "toy");
  EXPECT_EQ(manifest.position.mesh, (MeshSizes{1, 3, 1}));
  EXPECT_EQ(manifest.files[2].at, (MeshCoordinates{0, 2, 0}));
  // 37 * 11 elements in three almost equal pieces, the longer ones first.
  const auto& slices = manifest.tensors.at("weight").slices;
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[1].begin, 136);
  EXPECT_EQ(slices[1].end, 272);
  EXPECT_EQ(slices[1].entry, "weight[136:272]");
  EXPECT_EQ(manifest.files[1].name, "rank-1.safetensors");
}

TEST_F(JobCheckpoints, TheLastTwoStay) {
  for (const std::int64_t step : {10, 20, 30}) expect_saved(2, step);
  EXPECT_THAT(names(), UnorderedElementsAre("step-0000000020", "step-0000000030"));
}

TEST_F(JobCheckpoints, SurplusOnesGoBeforeAnythingIsWrittenAndNeverTheNewest) {
  const auto saved_before = [&](int keep, std::int64_t step, bool fails) {
    std::vector<std::int64_t> there;  // when the folder to write into was made
    const auto save = [&](std::unique_ptr<Communicator>& communicator) {
      CheckpointsOptions own = options();
      own.keep = keep;
      if (communicator->rank() == 0) {
        own.observer = [&](std::string_view place) {
          if (place != "folder made") return;
          there = CheckpointStore(options().folder).complete().value();
          if (!fails) return;
          for (const auto& entry : fs::directory_iterator(options().folder)) {
            if (!entry.path().filename().string().ends_with(".part")) continue;
            std::ofstream(entry.path() / "rank-0.safetensors") << "in the way";
          }
        };
      }
      return save_job(*communicator, own, step);
    };
    for (const Status& status : on_ranks(2, save)) EXPECT_EQ(status.ok(), !fails) << step;
    return there;
  };
  for (const std::int64_t step : {10, 20, 30, 40, 50}) (void)saved_before(5, step, false);
  EXPECT_THAT(saved_before(2, 60, true), ElementsAre(40, 50));
  EXPECT_THAT(names(), UnorderedElementsAre("step-0000000040", "step-0000000050"));
  EXPECT_THAT(saved_before(1, 60, true), ElementsAre(50));
  EXPECT_THAT(names(), UnorderedElementsAre("step-0000000050"));
  // Nobody has gone on from the new one yet: the one before it stays until there is another, or the
  // run has ended well.
  EXPECT_THAT(saved_before(1, 60, false), ElementsAre(50));
  EXPECT_THAT(names(), UnorderedElementsAre("step-0000000050", "step-0000000060"));
  EXPECT_THAT(saved_before(1, 70, false), ElementsAre(60));
  EXPECT_THAT(names(), UnorderedElementsAre("step-0000000060", "step-0000000070"));
  const auto settle = [&](std::unique_ptr<Communicator>& communicator) {
    CheckpointsOptions own = options();
    own.keep = 1;
    return Checkpoints(*communicator, own).settle();
  };
  for (const Status& status : on_ranks(2, settle)) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(names(), UnorderedElementsAre("step-0000000070"));
}

TEST_F(JobCheckpoints, AModelThatIsNotFiniteOnSomeRankIsRefusedAndTheGoodOneStays) {
  expect_saved(3, 10);
  for (const std::string name : {"parameters/w", "rank-1/mode/w"}) {
    const auto save = [&](std::unique_ptr<Communicator>& communicator) {
      CheckpointsOptions own = options();
      own.keep = 1;
      CheckpointPosition position;
      position.step = 20;
      position.mesh.dp = communicator->size();
      std::vector<float> values(8, 1);
      if (communicator->rank() == 1) values[5] = std::numeric_limits<float>::infinity();
      const std::vector<TensorPart> parts{
          whole_tensor(name, const_view_of(std::span<const float>(values)))};
      return Checkpoints(*communicator, own).save(position, {}, parts);
    };
    expect_refused(on_ranks(3, save), Code::kInvalidArgument, "rank 1", name, "element 5", "inf");
  }
}

// A second moment may overflow: the step that it makes is 0.
TEST_F(JobCheckpoints, OtherStateMayBeInfinite) {
  const auto save = [&](std::unique_ptr<Communicator>& communicator) {
    CheckpointPosition position;
    position.step = 20;
    position.mesh.dp = communicator->size();
    const std::vector<float> values(8, std::numeric_limits<float>::infinity());
    const std::vector<TensorPart> parts{
        whole_tensor("trainer/exp_avg_sq", const_view_of(std::span<const float>(values)))};
    return Checkpoints(*communicator, options()).save(position, {}, parts);
  };
  for (const Status& status : on_ranks(1, save)) EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(JobCheckpoints, WithoutAnyThereIsNone) {
  const auto look = [&](std::unique_ptr<Communicator>& communicator) -> Status {
    GW_ASSIGN(auto last, Checkpoints(*communicator, options()).open_last());
    EXPECT_FALSE(last.has_value());
    return {};
  };
  for (const Status& status : on_ranks(2, look)) EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(JobCheckpoints, ADamagedOneIsNamedOnEveryRankAndNotPassedOver) {
  expect_saved(2, 10);
  expect_saved(2, 20);
  std::ofstream(options().folder + "/step-0000000020/manifest.json") << "{}";
  const auto look = [&](std::unique_ptr<Communicator>& communicator) {
    return Checkpoints(*communicator, options()).open_last().error();
  };
  for (const Status& status : on_ranks(2, look)) {
    EXPECT_THAT(status, fails(Code::kCorruptPayload, "step-0000000020/manifest.json"));
  }
}

TEST_F(JobCheckpoints, APartThatNobodyHasIsAnErrorEverywhere) {
  expect_saved(3, 10);
  const auto save_less = [&](std::unique_ptr<Communicator>& communicator) {
    CheckpointPosition position;
    position.step = 20;
    position.mesh.dp = communicator->size();
    const JobState state(20, communicator->rank(), 3);
    std::vector<TensorPart> parts = state.parts();
    if (communicator->rank() == 1) parts.erase(parts.begin());
    return Checkpoints(*communicator, options()).save(position, {}, parts);
  };
  expect_refused(on_ranks(3, save_less), Code::kCorruptPayload, "weight", "slice", "272", "136");
}

TEST_F(JobCheckpoints, RanksThatDisagreeOnATensorAreNamed) {
  expect_saved(3, 10);
  const auto disagree = [&](std::unique_ptr<Communicator>& communicator) {
    CheckpointPosition position;
    position.step = 20;
    position.mesh.dp = communicator->size();
    const JobState state(20, communicator->rank(), 3);
    std::vector<TensorPart> parts = state.parts();
    if (communicator->rank() == 2) parts[0].box = TensorBox::of(Shape::vector(kRows * kColumns));
    return Checkpoints(*communicator, options()).save(position, {}, parts);
  };
  expect_refused(on_ranks(3, disagree), Code::kRankMismatch, "rank-2.safetensors", "weight",
                 "(407) of f32", "(37, 11) of f32");
}

TEST_F(JobCheckpoints, AFileThatDoesNotArriveIsNamed) {
  expect_saved(3, 10);
  const auto lose = [&](std::unique_ptr<Communicator>& communicator) {
    CheckpointsOptions own = options();
    if (communicator->rank() == 2) {
      own.observer = [&](std::string_view place) {
        if (place != "file synced") return;
        for (const auto& entry : fs::directory_iterator(options().folder)) {
          fs::remove(entry.path() / "rank-2.safetensors");
        }
      };
    }
    return save_job(*communicator, own, 20);
  };
  const auto statuses = on_ranks(3, lose);
  for (const Status& status : statuses) {
    EXPECT_THAT(status, fails(Code::kInvalidArgument, "rank 0", "rank 2", "folder"));
  }
}

TEST_F(JobCheckpoints, ARankThatCannotWriteIsNamedByAll) {
  expect_saved(3, 10);
  const auto blocked = [&](std::unique_ptr<Communicator>& communicator) {
    CheckpointsOptions own = options();
    if (communicator->rank() == 1) {
      own.observer = [&](std::string_view place) {
        if (place != "folder made") return;
        for (const auto& entry : fs::directory_iterator(options().folder)) {
          if (!entry.path().filename().string().ends_with(".part")) continue;
          std::ofstream(entry.path() / "rank-1.safetensors") << "in the way";
        }
      };
    }
    return save_job(*communicator, own, 20);
  };
  expect_refused(on_ranks(3, blocked), Code::kInvalidArgument, "rank-1.safetensors", "File exists");
}

TEST_F(JobCheckpoints, APlaceThatIsNoFolderIsAnErrorEverywhere) {
  expect_saved(2, 10);
  std::ofstream(folder_.path() + "/file") << "x";
  const auto save_there = [&](std::unique_ptr<Communicator>& communicator) {
    CheckpointsOptions own = options();
    own.folder = folder_.path() + "/file/run";
    return save_job(*communicator, own, 20);
  };
  expect_refused(on_ranks(2, save_there), Code::kInvalidArgument, "rank 0",
                 folder_.path() + "/file", "Not a directory");
}

TEST_F(JobCheckpoints, TheSameStepIsNotWrittenTwice) {
  expect_saved(2, 10);
  expect_refused(save(2, 10), Code::kInvalidArgument, "step-0000000010", "File exists");
}

}  // namespace
}  // namespace gradwire::testing::checkpoints_test
