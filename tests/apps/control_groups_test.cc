// Limits of control groups, from files as the kernel writes them.
#include "apps/control_groups.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "apps/memory_room.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::control_groups_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

class ControlGroups : public ::testing::Test {
 protected:
  // Of a file below the folder where groups are mounted, or "membership".
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path(folder_.path() + "/" + name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  std::int64_t most(std::int64_t swap = 0) const { return group_memory(swap, places_).bytes; }
  std::int64_t left(std::int64_t swap = 0) const { return free_group_memory(swap, places_).bytes; }

  TemporaryFolder folder_;
  ControlGroupPlaces places_{folder_.path() + "/membership", folder_.path() + "/groups"};
};

TEST_F(ControlGroups, WithoutALimitThereIsNone) {
  EXPECT_EQ(most(), kUnlimitedMemory);  // no files at all
  write("membership", "0::/");
  EXPECT_EQ(most(), kUnlimitedMemory);
  write("groups/memory.max", "max");
  EXPECT_EQ(most(5), kUnlimitedMemory);
  EXPECT_EQ(left(5), kUnlimitedMemory);
}

TEST_F(ControlGroups, OfVersion2TheStrictestOfThoseAboveCounts) {
  write("membership", "0::/jobs/one");
  write("groups/jobs/one/memory.max", std::to_string(900 * kMiB));
  write("groups/jobs/one/memory.current", std::to_string(100 * kMiB));
  write("groups/jobs/memory.max", std::to_string(600 * kMiB));
  write("groups/jobs/memory.current", std::to_string(200 * kMiB));
  EXPECT_EQ(most(), 600 * kMiB);
  EXPECT_EQ(left(), 400 * kMiB);
  EXPECT_EQ(group_memory(0, places_).limit, folder_.path() + "/groups/jobs/memory.max");
}

TEST_F(ControlGroups, CachedFilesAreFree) {
  write("membership", "0::/");
  write("groups/memory.max", std::to_string(600 * kMiB));
  write("groups/memory.current", std::to_string(500 * kMiB));
  write("groups/memory.stat", "anon " + std::to_string(100 * kMiB) + "\ninactive_file " +
                                  std::to_string(250 * kMiB) + "\nactive_file " +
                                  std::to_string(50 * kMiB) + "\nslab_reclaimable " +
                                  std::to_string(10 * kMiB));
  EXPECT_EQ(left(), (600 - (500 - 310)) * kMiB);
}

TEST_F(ControlGroups, SwapCountsAsFarAsTheGroupMayHaveIt) {
  write("membership", "0::/");
  write("groups/memory.max", std::to_string(600 * kMiB));
  EXPECT_EQ(most(100 * kMiB), 700 * kMiB);  // nothing said
  write("groups/memory.swap.max", "max");
  EXPECT_EQ(most(100 * kMiB), 700 * kMiB);
  write("groups/memory.swap.max", std::to_string(40 * kMiB));
  write("groups/memory.swap.current", std::to_string(30 * kMiB));
  EXPECT_EQ(most(100 * kMiB), 640 * kMiB);
  EXPECT_EQ(left(100 * kMiB), 610 * kMiB);
}

TEST_F(ControlGroups, OfVersion1TheMemoryControllersAreRead) {
  write("membership", "9:name=systemd:/\n5:cpu,cpuacct:/other\n4:memory:/jobs/one\n0::/");
  write("groups/memory/jobs/one/memory.limit_in_bytes", "9223372036854771712");  // none
  write("groups/memory/jobs/memory.limit_in_bytes", std::to_string(800 * kMiB));
  write("groups/memory/jobs/memory.usage_in_bytes", std::to_string(300 * kMiB));
  write("groups/memory/jobs/memory.stat", "inactive_file 1\ntotal_inactive_file " +
                                              std::to_string(100 * kMiB) + "\ntotal_active_file 0");
  EXPECT_EQ(most(), 800 * kMiB);
  EXPECT_EQ(left(), 600 * kMiB);
  // Of memory and swap together.
  write("groups/memory/jobs/memory.memsw.limit_in_bytes", std::to_string(850 * kMiB));
  write("groups/memory/jobs/memory.memsw.usage_in_bytes", std::to_string(320 * kMiB));
  EXPECT_EQ(most(500 * kMiB), 850 * kMiB);
  EXPECT_EQ(left(500 * kMiB), 630 * kMiB);
}

// A container sees its own group where groups are mounted, under the host's name for it.
TEST_F(ControlGroups, APathOfAnotherNamespaceIsTheMountedOne) {
  write("membership", "4:memory:/docker/4f5e");
  write("groups/memory/memory.limit_in_bytes", std::to_string(256 * kMiB));
  EXPECT_EQ(most(), 256 * kMiB);
}

TEST_F(ControlGroups, WhatIsUsedUpLeavesNothing) {
  write("membership", "broken\n\n0::/");
  write("groups/memory.max", std::to_string(100 * kMiB));
  write("groups/memory.current", std::to_string(120 * kMiB));
  EXPECT_EQ(left(), 0);
}

// The kernel writes none of these.
TEST_F(ControlGroups, ALineWhosePathIsNoneIsNoMembership) {
  for (const char* damaged : {"0::jobs", "0::jobs/one", "0::", "4:memory:one/two", ":::", "0:"}) {
    write("membership", damaged);
    write("groups/memory.max", std::to_string(100 * kMiB));
    write("groups/memory/memory.limit_in_bytes", std::to_string(100 * kMiB));
    EXPECT_EQ(most(), kUnlimitedMemory) << damaged;
  }
  write("membership", "0::jobs\n0::/");
  EXPECT_EQ(most(), 100 * kMiB);
}

TEST(MemoryRoom, ThereIsSome) {
  EXPECT_GT(free_memory().bytes, kMiB);
  EXPECT_GE(host_memory().bytes, free_memory().bytes);
  EXPECT_FALSE(host_memory().limit.empty());
}

}  // namespace
}  // namespace gradwire::control_groups_test
