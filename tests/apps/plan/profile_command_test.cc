// `gradwire profile` in this process: it measures, keeps and shows; and what it reads off messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/plan/read_cluster.h"
#include "apps/profile/link_measurement.h"
#include "apps/profile/profile.h"
#include "apps/profile/rounds.h"
#include "apps/whole_file.h"
#include "planner/profile/profile_file.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::testing::profile_command_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Shown {
  std::string text;
  Status error;
};

Shown profile(const std::vector<std::string>& words) {
  ::testing::internal::CaptureStdout();
  const auto ended = profile_command(words);
  Shown shown{.text = ::testing::internal::GetCapturedStdout(), .error = {}};
  if (!ended.has_value()) shown.error = ended.error();
  return shown;
}

std::string contents(const std::string& path) {
  const auto read = read_whole_file(path);
  EXPECT_TRUE(read.has_value()) << read.error().message();
  return read.has_value() ? read.value() : std::string();
}

TEST(ProfileCommand, MeasuresOnceAndShowsWhatItKept) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/p.json";
  const std::vector<std::string> quick{file, "--quick", "--no-links"};
  const Shown first = profile(quick);
  ASSERT_TRUE(first.error.ok()) << first.error.message();
  for (const char* part : {"mlp fc1", "powersgd:rank=4", "adamw", "8 x 64 x 64", "kept in"}) {
    EXPECT_THAT(first.text, HasSubstr(part));
  }
  const std::string kept = contents(file);
  const Profile read = read_own_profile(file).value();
  EXPECT_EQ(read.products.size(), 2U);
  EXPECT_EQ(read.optimizers.size(), 2U * 3);
  EXPECT_EQ(read.codecs.size(), 2U * 7);
  EXPECT_TRUE(read.links.empty());
  // Another time it is shown alone, and with --again measured.
  const Shown second = profile(quick);
  EXPECT_EQ(contents(file), kept);
  EXPECT_THAT(second.text, Not(HasSubstr("kept in")));
  EXPECT_THAT(first.text, HasSubstr(second.text));
  EXPECT_EQ(profile({file, "--json"}).text, profile_lines(read));
  EXPECT_THAT(profile_lines(read), HasSubstr("\n{\"kind\":\"product\",\"rows\":8,\"in\":16"));
  EXPECT_THAT(profile({file, "--quick", "--no-links", "--again"}).text, HasSubstr("kept in"));
  EXPECT_NE(contents(file), kept);
}

TEST(ProfileCommand, NamesWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/p.json";
  ASSERT_TRUE(write_whole_file(file, "{\n\"profile\": 2}").ok());
  EXPECT_THAT(profile({file}).error, fails(Code::kInvalidArgument, "p.json:2:", "version"));
  EXPECT_THAT(profile({file, "--rows", "0"}).error, fails(Code::kInvalidArgument, "--rows"));
  EXPECT_THAT(profile({file, "--again", "--no-links", "--images", "faces"}).error,
              fails(Code::kInvalidArgument, "faces"));
}

// Of another machine: shown, and said; refused where this machine's is wanted.
TEST(ProfileCommand, AnotherMachinesIsNamed) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/p.json";
  Profile other{.conditions = conditions_here()};
  other.conditions.cores += 1;
  ASSERT_TRUE(write_whole_file(file, profile_text(other)).ok());
  EXPECT_THAT(profile({file}).text, HasSubstr("is of another machine: cores"));
  EXPECT_THAT(read_own_profile(file).error(),
              fails(Code::kInvalidArgument, "p.json", "cores", "another machine"));
  EXPECT_TRUE(read_profile(file).has_value());
}

// A cluster's profiles lie beside it, and what is not measured is named.
TEST(ProfileCommand, ClustersNameTheirProfiles) {
  const TemporaryFolder folder;
  Profile profile{.conditions = conditions_here()};
  profile.products = {{.rows = 8, .in = 16, .out = 16, .seconds = 1e-6}};
  ASSERT_TRUE(write_whole_file(folder.path() + "/p.json", profile_text(profile)).ok());
  const std::string file = folder.path() + "/c.toml";
  ASSERT_TRUE(write_whole_file(file,
                               "[device.cpu]\nmemory = \"1G\"\nprofile = \"p.json\"\n"
                               "[link.net]\nlatency = 1e-5\nbandwidth = 1e9\n"
                               "[[node]]\nname = \"n\"\ndevice = \"cpu\"\n")
                  .ok());
  const auto alone = read_cluster(file);
  ASSERT_TRUE(alone.has_value()) << alone.error().message();
  EXPECT_EQ(rates_text(alone.value()), "rates are measured");
  Cluster cluster = alone.value();
  cluster.nodes[0].uplink = 0;
  EXPECT_EQ(rates_text(cluster), "rates of net are given, not measured");
  cluster.types[0].profile.clear();
  EXPECT_EQ(rates_text(cluster), "rates of cpu, net are given, not measured");
  ASSERT_TRUE(write_whole_file(folder.path() + "/p.json", "{}").ok());
  EXPECT_THAT(read_cluster(file).error(),
              fails(Code::kInvalidArgument, "c.toml:3:", "p.json:1:", "profile"));
}

// A measurement that finds one sum, of each of `seconds` in turn, and notes when it was asked.
Measurement sums(const std::string& name, std::vector<double> seconds, std::string& order) {
  return {name, [=, &order, turn = std::size_t{0}](Profile& profile) mutable -> Status {
            order += name;
            if (turn == seconds.size()) return {Code::kInternal, "no more"};
            profile.sums.push_back({.elements = 4, .seconds = seconds[turn++]});
            return {};
          }};
}

TEST(ProfileCommand, EachRoundMeasuresEverything) {
  std::string order;
  std::vector<Measurement> all{sums("a", {5, 1, 2}, order), sums("b", {7, 9, 8}, order),
                               sums("c", {3, 4}, order)};
  all[2].every = 2;
  EXPECT_EQ(measured_in_all(all, 3), 8);
  std::vector<std::int64_t> done;
  const auto told = [&done](std::int64_t so_many, const std::string&) { done.push_back(so_many); };
  const auto found = measure_by_rounds(all, 3, told);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(order, "abcababc");
  EXPECT_THAT(done, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  ASSERT_EQ(found.value().sums.size(), 3U);
  EXPECT_EQ(found.value().sums[0].seconds, 2);
  EXPECT_EQ(found.value().sums[1].seconds, 8);
  EXPECT_EQ(found.value().sums[2].seconds, 4);
  EXPECT_THAT(measure_by_rounds(all, 1, told).error(),
              fails(Code::kInternal, "profile: a: no more"));
}

TEST(ProfileCommand, MediansAreOfEachTime) {
  const auto of = [](double scale) {
    return Profile{.layers = {{.name = "fc", .forward_seconds = scale, .backward_seconds = -scale}},
                   .products = {{.seconds = scale}},
                   .optimizers = {{.name = "sgd", .seconds = scale}},
                   .codecs = {{.spec = "none",
                               .encode_seconds = scale,
                               .decode_seconds = -scale,
                               .bits_per_element = scale}},
                   .links = {{.transport = "tcp",
                              .latency_seconds = scale,
                              .bytes_per_second = -scale,
                              .cpu_seconds_per_byte = scale}},
                   .exchanges = {{.transport = "tcp", .spec = "none", .seconds = scale}},
                   .messages = {{.transport = "tcp", .seconds = scale, .send_seconds = -scale}},
                   .sums = {{.seconds = scale}}};
  };
  const std::vector<Profile> rounds{of(5), of(1), of(3)};
  EXPECT_EQ(profile_text(median_profile(rounds).value()), profile_text(of(3)));
  std::vector<Profile> more = rounds;
  more[2].links.clear();
  EXPECT_THAT(median_profile(more).error(),
              fails(Code::kInternal, "0 links", "expected 1, as the first"));
}

TEST(ProfileCommand, LinksAreReadOffTwoSizes) {
  const std::string small = R"({"bytes":1024,"time_us_p50":10.0,"cpu_seconds_per_gb":9})";
  const std::string large = R"({"bytes":1001024,"time_us_p50":510.0,"cpu_seconds_per_gb":0.5})";
  const auto link = link_of_rows("tcp", "a line of a log\n" + small + "\n" + large + "\n");
  ASSERT_TRUE(link.has_value()) << link.error().message();
  EXPECT_DOUBLE_EQ(link.value().latency_seconds, 10e-6);
  EXPECT_NEAR(link.value().bytes_per_second, 1e6 / 500e-6, 1);
  EXPECT_DOUBLE_EQ(link.value().cpu_seconds_per_byte, 0.5e-9);
  EXPECT_THAT(link_of_rows("tcp", small).error(), fails(Code::kInternal, "tcp", "1 rows"));
  EXPECT_THAT(link_of_rows("tcp", "no luck").error(), fails(Code::kInternal, "0 rows", "no luck"));
  EXPECT_THAT(link_of_rows("tcp", small + "\n" + small).error(),
              fails(Code::kInternal, "one size"));
}

TEST(ProfileCommand, ExchangesAreReadOffTheirRows) {
  const auto row = [](const std::string& what, const std::string& spec, int count, double micros) {
    return "{\"what\":\"" + what + "\",\"compressor\":\"" + spec +
           "\",\"elements\":16,\"count\":" + std::to_string(count) +
           ",\"time_us_p50\":" + std::to_string(micros) + "}\n";
  };
  const std::string exchanges = "a line of a log\n" + row("exchange", "qsgd:bits=4", 1, 80) +
                                row("tensors", "none", 32, 70) + row("buckets", "none", 8, 300);
  Profile profile;
  ASSERT_TRUE(exchanges_of_rows(
                  "tcp", exchanges + row("message", "", 1, 40) + row("send", "", 1, 10), profile)
                  .ok());
  ASSERT_EQ(profile.exchanges.size(), 2U);
  EXPECT_EQ(profile.exchanges[0].spec, "qsgd:bits=4");
  EXPECT_DOUBLE_EQ(profile.exchanges[0].seconds, 80e-6);
  EXPECT_EQ(profile.exchanges[1].buckets, 8);
  ASSERT_EQ(profile.messages.size(), 1U);
  EXPECT_DOUBLE_EQ(profile.messages[0].seconds, 40e-6);
  EXPECT_DOUBLE_EQ(profile.messages[0].send_seconds, 10e-6);
  EXPECT_THAT(exchanges_of_rows("shm", exchanges, profile),
              fails(Code::kInternal, "shm", "a message"));
}

}  // namespace
}  // namespace gradwire::testing::profile_command_test
