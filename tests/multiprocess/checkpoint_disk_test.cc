// Checkpoints on a disk that is full, and on one that may not be written to: a small file system of
// the test's own. Without the right to mount one the suite says that it was skipped (77).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/aggregate_job.h"
#include "tests/support/checkpoint_parts.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

constexpr int kRanks = 3;
constexpr int kFiller = 512 << 10;
constexpr const char* kDiskSize = "size=512k";

// Gone with the test, whatever is on it.
class SmallDisk {
 public:
  SmallDisk() : mounted_(mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, kDiskSize) == 0) {}
  ~SmallDisk() {
    if (mounted_) umount2(folder_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& path() const { return folder_.path(); }
  bool allow_writing(bool allowed) const {
    const unsigned long flags = allowed ? MS_REMOUNT : MS_REMOUNT | MS_RDONLY;
    return mount("tmpfs", path().c_str(), "tmpfs", flags, kDiskSize) == 0;
  }
  void fill() const {
    std::ofstream file(path() + "/filler", std::ios::binary);
    for (int i = 0; i < kFiller && file.put('x').flush(); i += 1) {
      // Byte by byte: nothing is left free.
    }
  }

 private:
  TemporaryFolder folder_;
  bool mounted_;
};

class CheckpointDisk : public ::testing::Test {
 protected:
  std::vector<Status> save(std::int64_t step) {
    return on_ranks(kRanks, [&](std::unique_ptr<Communicator>& communicator) {
      CheckpointsOptions options;
      options.folder = run();
      options.seconds = 30;
      return save_job(*communicator, options, step);
    });
  }
  void expect_refused(std::int64_t step, const std::string& reason) {
    for (const Status& status : save(step)) {
      EXPECT_THAT(status, fails(Code::kInvalidArgument, reason, run()));
    }
    std::vector<std::string> left;
    for (const auto& entry : fs::directory_iterator(run())) left.push_back(entry.path().filename());
    EXPECT_THAT(left, ElementsAre("step-0000000010"));
    EXPECT_EQ(last_of(run()), "10");
  }
  std::string run() const { return disk_.path() + "/run"; }

  SmallDisk disk_;
};

TEST_F(CheckpointDisk, AFullOneIsAnErrorOnEveryRankAndLeavesTheOldOne) {
  for (const Status& status : save(10)) ASSERT_TRUE(status.ok()) << status.message();
  disk_.fill();
  expect_refused(20, "No space left on device");
  // Room for some of the files, not for all.
  fs::resize_file(disk_.path() + "/filler", fs::file_size(disk_.path() + "/filler") - 8192);
  expect_refused(20, "No space left on device");
  fs::remove(disk_.path() + "/filler");
  for (const Status& status : save(20)) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(last_of(run()), "20");
}

TEST_F(CheckpointDisk, AReadOnlyOneIsAnErrorOnEveryRankAndIsReadFrom) {
  for (const Status& status : save(10)) ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(disk_.allow_writing(false));
  expect_refused(20, "Read-only file system");
  ASSERT_TRUE(disk_.allow_writing(true));
  for (const Status& status : save(20)) EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace gradwire::testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!gradwire::testing::SmallDisk().mounted()) {
    std::fprintf(stderr, "skipped: no right to mount a file system\n");
    return 77;
  }
  return RUN_ALL_TESTS();
}
