// What a sweep's run is known by, and the command that it is started with.
#include "apps/sweep/run_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace gradwire::run_spec_test {
namespace {

StudyCase cell(const std::string& transport) {
  return {.setting = "s",
          .row = "top-k 1 %",
          .compressor = "topk:ratio=0.01",
          .flags = {{"lr", "0.1"}, {"allow-unsafe", "false"}},
          .ranks = 4,
          .transport = transport,
          .lab = {}};
}

TEST(RunSpec, CommandsAreWhatAUserTypes) {
  EXPECT_EQ(shell_text(command_of(cell("inproc"), 7)),
            "gradwire train --inproc 4 --lr 0.1 --compressor topk:ratio=0.01 --seed 7");
  EXPECT_EQ(shell_text(command_of(cell("tcp"), 7)),
            "GRADWIRE_TRANSPORT=tcp gradwire run -n 4 -- gradwire train --lr 0.1 --compressor "
            "topk:ratio=0.01 --seed 7");
  StudyCase shaped = cell("tcp");
  shaped.lab = "2x100mbit";
  EXPECT_EQ(shell_text(command_of(shaped, 7)),
            "GRADWIRE_TRANSPORT=tcp bench/lab 2 100mbit --ranks 2 -- gradwire train --lr 0.1 "
            "--compressor topk:ratio=0.01 --seed 7");
  EXPECT_EQ(shell_text({"a b", "", "it's", "*=x"}), "'a b' '' 'it'\\''s' '*=x'");
}

TEST(RunSpec, ModesWithoutCompressionAreNotAskedForIt) {
  StudyCase one = cell("inproc");
  one.compressor = "none";
  one.flags = {{"mode", "hogwild"}};
  EXPECT_EQ(shell_text(command_of(one, 7)), "gradwire train --inproc 4 --mode hogwild --seed 7");
}

TEST(RunSpec, NamesFollowWhatDecidesTheNumbers) {
  const StudyCase one = cell("tcp");
  const std::string name = run_name(one, 7, spec_of(one, 7));
  EXPECT_THAT(name, ::testing::MatchesRegex("top-k-1-s-s7-[0-9a-f]{10}"));
  StudyCase renamed = one;
  renamed.row = "other";
  EXPECT_EQ(spec_of(renamed, 7), spec_of(one, 7));
  StudyCase changed = one;
  changed.flags["lr"] = "0.2";
  EXPECT_NE(run_name(changed, 7, spec_of(changed, 7)), name);
  EXPECT_NE(run_name(one, 8, spec_of(one, 8)), name);
  EXPECT_NE(spec_of(cell("ucx"), 7), spec_of(one, 7));
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/params";
  std::ofstream(file) << "abc";
  changed.flags["load-params"] = file;
  const auto before = spec_of(changed, 7);
  std::ofstream(file) << "abcd";
  EXPECT_NE(spec_of(changed, 7), before);
}

TEST(RunSpec, LabsAreHostsAndARate) {
  const auto lab = parse_lab("4x1gbit");
  ASSERT_TRUE(lab.has_value());
  EXPECT_EQ(lab.value().hosts, 4);
  EXPECT_EQ(lab.value().rate, "1gbit");
  EXPECT_EQ(lab_bits("4x1gbit"), 1e9);
  EXPECT_EQ(lab_bits("2x2.5mbit"), 2.5e6);
  EXPECT_EQ(lab_bits("2xnone"), 0);
  for (const char* bad :
       {"", "4", "x1gbit", "1x1gbit", "4x", "4x1", "4xgbit", "4x0gbit", "4x1parsec"})
    EXPECT_FALSE(parse_lab(bad).has_value()) << bad;
}

}  // namespace
}  // namespace gradwire::run_spec_test
