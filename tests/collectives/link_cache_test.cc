// Measured links come back from their file as they were, or not at all.
#include "collectives/cost/link_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/elements.h"
#include "gradwire/communicator.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::link_cache_test {
namespace {

constexpr std::int64_t kNow = 1'700'000'000;
constexpr LinkModel kLinks{.alpha = 13.7e-6,
                           .beta = 0.83e-9,
                           .gamma = 0.041e-9,
                           .alpha_intra = 1.9e-6,
                           .beta_intra = 1.0 / 3e9,
                           .gap = 0.5,
                           .contention = 2.75,
                           .contention_beta = 10.0 / 3};

class LinkCache : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "gw-links-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    file_ = folder_ + "/deep/er/links";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string text() const {
    std::ifstream in(file_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(file_).parent_path());
    std::ofstream(file_) << text;
  }

  std::string folder_;
  std::string file_;
};

TEST_F(LinkCache, GivesBackWhatWasPut) {
  EXPECT_FALSE(cached_links(file_, 7, kNow));
  cache_links(file_, 7, kNow, kLinks);
  cache_links(file_, 0xfedcba9876543210, kNow, LinkModel{});
  EXPECT_EQ(cached_links(file_, 7, kNow), kLinks);
  EXPECT_EQ(cached_links(file_, 0xfedcba9876543210, kNow), LinkModel{});
  EXPECT_FALSE(cached_links(file_, 8, kNow));
  // Nothing but the file is left in the folder.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/deep/er"), {}), 1);
}

TEST_F(LinkCache, TheLastOneOfAKeyCounts) {
  cache_links(file_, 7, kNow, LinkModel{});
  cache_links(file_, 7, kNow + 1, kLinks);
  EXPECT_EQ(cached_links(file_, 7, kNow + 1), kLinks);
  EXPECT_EQ(text().find("0000000000000007", text().find("0000000000000007") + 1),
            std::string::npos);
}

TEST_F(LinkCache, ForgetsAfterAWeekAndIsNoProphet) {
  cache_links(file_, 7, kNow, kLinks);
  EXPECT_TRUE(cached_links(file_, 7, kNow + kLinksLastSeconds));
  EXPECT_FALSE(cached_links(file_, 7, kNow + kLinksLastSeconds + 1));
  EXPECT_FALSE(cached_links(file_, 7, kNow - 1));
}

TEST_F(LinkCache, KeepsTheYoungest256) {
  for (std::uint64_t key = 0; key < 300; ++key) {
    cache_links(file_, key, kNow + static_cast<std::int64_t>(key), kLinks);
  }
  EXPECT_FALSE(cached_links(file_, 43, kNow + 300));
  EXPECT_TRUE(cached_links(file_, 44, kNow + 300));
  EXPECT_TRUE(cached_links(file_, 299, kNow + 300));
}

TEST_F(LinkCache, BelievesNoDamagedEntryAndReadsTheOthers) {
  const std::string good = "0000000000000007 1e-5 1e-9 0 1e-6 1e-10 1 2.5 1 1700000000\n";
  const std::string heading = "gradwire links 2\n";
  write(heading + good);
  EXPECT_TRUE(cached_links(file_, 7, kNow));
  for (const std::string bad :
       {"0000000000000007 1e-5 1e-9 0 1e-6 1e-10 1 2.5 1\n",
        "0000000000000007 1e-5 1e-9 0 1e-6 1e-10 1 2.5 1 1700000000 more\n",
        "0000000000000007 nan 1e-9 0 1e-6 1e-10 1 2.5 1 1700000000\n",
        "0000000000000007 -1 1e-9 0 1e-6 1e-10 1 2.5 1 1700000000\n",
        "0000000000000007 1e-5 2 0 1e-6 1e-10 1 2.5 1 1700000000\n",
        "0000000000000007 1e-5 1e-9 0 1e-6 1e-10 1.5 1 1 1700000000\n",
        "0000000000000007 1e-5 1e-9 0 1e-6 1e-10 1 0.5 1 1700000000\n",
        "7 1e-5 1e-9 0 1e-6 1e-10 1 2.5 1 1700000000\n", "garbage\n", "\n"}) {
    write(heading + bad);
    EXPECT_FALSE(cached_links(file_, 7, kNow)) << bad;
    write(heading + bad + good);
    EXPECT_TRUE(cached_links(file_, 7, kNow)) << bad;
  }
  write("gradwire links 1\n" + good);
  EXPECT_FALSE(cached_links(file_, 7, kNow));
  write(heading + std::string(2 << 20, 'x') + "\n" + good);
  EXPECT_FALSE(cached_links(file_, 7, kNow));
}

TEST_F(LinkCache, AFolderInItsPlaceIsNoHarm) {
  std::filesystem::create_directories(file_);
  cache_links(file_, 7, kNow, kLinks);
  EXPECT_FALSE(cached_links(file_, 7, kNow));
}

// What calibrate() gives each of some ranks as threads.
std::vector<LinkModel> settled(const CommunicatorOptions& options, int ranks,
                               const LinkSettings& settings) {
  auto made = make_inproc_communicators(ranks, options);
  EXPECT_TRUE(made.has_value());
  return on_threads<LinkModel>(ranks, [&](int r) {
    Communicator& own = *made.value()[static_cast<std::size_t>(r)];
    const auto links = calibrate(own, settings);
    EXPECT_TRUE(links.has_value()) << links.error().message();
    return own.links();
  });
}

TEST_F(LinkCache, AllRanksChooseByOneMeasurement) {
  const auto first = settled({}, 3, {.cache = file_});
  for (const LinkModel& links : first) EXPECT_EQ(links, first[0]);
  EXPECT_GT(first[0].alpha, 0);
  EXPECT_GT(first[0].gamma, 0);
  EXPECT_EQ(first[0].alpha, first[0].alpha_intra);  // nobody knows of nodes
  // The next job has them from the file, to the last bit; another number of ranks has not.
  EXPECT_EQ(settled({}, 3, {.cache = file_})[0], first[0]);
  EXPECT_NE(settled({}, 2, {.cache = file_})[0], first[0]);
  EXPECT_NE(settled({}, 3, {.cache = file_, .measure = true})[0], first[0]);
}

TEST_F(LinkCache, OldNamesOfTheFunctionsStillWork) {
  auto made = make_inproc_communicators(1, {});
  ASSERT_TRUE(made.has_value());
  Communicator& alone = *made.value()[0];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  alone.use_links(kLinks);
  const auto links = settle_links(alone);
#pragma GCC diagnostic pop
  ASSERT_TRUE(links.has_value());
  EXPECT_EQ(links.value(), kLinks);
}

TEST_F(LinkCache, InsideIsMeasuredBetweenRanksOfOneNodeWhicheverTheyAre) {
  const CommunicatorOptions options{.node_of = {0, 1, 1}};
  const auto links = settled(options, 3, {});
  for (const LinkModel& one : links) EXPECT_EQ(one, links[0]);
  // Two measurements of one number may agree, of all numbers they do not.
  EXPECT_NE(std::pair(links[0].alpha, links[0].beta),
            std::pair(links[0].alpha_intra, links[0].beta_intra));
  EXPECT_NE(links[0].alpha_intra, LinkModel{}.alpha_intra);
}

TEST_F(LinkCache, ALoneRankMeasuresNothing) {
  EXPECT_EQ(settled({.links = kLinks}, 1, {.cache = file_})[0], kLinks);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
}  // namespace gradwire::link_cache_test
