// What every command says of itself: help, defaults, examples, completion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "apps/catalogue.h"
#include "apps/command.h"
#include "apps/completion/completion.h"
#include "apps/flags.h"
#include "apps/help_text.h"
#include "apps/variables.h"
#include "tests/support/fails.h"

namespace gradwire::commands_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<CommandEntry>& tree() {
  static const std::vector<CommandEntry> all = command_tree();
  return all;
}

bool is_leaf(const CommandEntry& entry) { return entry.parts.empty(); }

TEST(Commands, EveryOneHasAPurposeAndAnExampleOfItself) {
  for (const CommandEntry& entry : tree()) {
    if (!is_leaf(entry)) continue;
    EXPECT_EQ(entry.facts.command, entry.path);
    EXPECT_FALSE(entry.facts.purpose.empty()) << entry.path;
    ASSERT_FALSE(entry.facts.examples.empty()) << entry.path;
    for (const std::string& example : entry.facts.examples) {
      EXPECT_THAT(example, HasSubstr("gradwire " + entry.path)) << entry.path;
    }
  }
}

TEST(Commands, EveryFlagHasHelpAndADefault) {
  for (const CommandEntry& entry : tree()) {
    std::set<std::string> names;
    for (const FlagFacts& flag : entry.facts.flags) {
      const std::string where = entry.path + " " + flag.name;
      EXPECT_TRUE(names.insert(flag.name).second) << where;
      ASSERT_FALSE(flag.help.empty()) << where;
      EXPECT_NE(flag.help.back(), '.') << where << ": a noun phrase, no sentence";
      const bool handed_on = entry.path == "compare";  // train's flags
      EXPECT_TRUE(flag.is_positional || handed_on || !flag.default_text.empty()) << where;
      EXPECT_TRUE(flag.is_toggle || flag.is_positional || !flag.placeholder.empty()) << where;
    }
  }
}

TEST(Commands, OfJobsHaveTheFlagsOfOne) {
  const auto has_flag = [](const std::string& path, const std::string& name) {
    const auto entry = std::ranges::find(tree(), path, &CommandEntry::path);
    return entry != tree().end() && std::ranges::find(entry->facts.flags, name, &FlagFacts::name) !=
                                        entry->facts.flags.end();
  };
  EXPECT_TRUE(has_flag("train", "checkpoint-keep"));
  EXPECT_TRUE(has_flag("sim broadcast", "alpha"));
  EXPECT_TRUE(has_flag("inspect data", "json"));
  EXPECT_TRUE(has_flag("plan", "device-mem"));  // flags of its own, and one below it
  EXPECT_TRUE(has_flag("plan search", "method"));
  EXPECT_FALSE(has_flag("inspect data", "nonesuch"));
}

TEST(Commands, AreRefusedByTheNearestName) {
  EXPECT_THAT(run_program({"trian"}).error(),
              fails(Code::kInvalidArgument, "trian", "did you mean 'train'", "bench"));
  EXPECT_THAT(run_program({"inspect", "fligth"}).error(),
              fails(Code::kInvalidArgument, "fligth", "did you mean 'flight'"));
  EXPECT_THAT(run_program({"inspect"}).error(), fails(Code::kInvalidArgument, "TOPIC", "flight"));
}

TEST(HelpText, HasUsageGroupsDefaultsAndExamples) {
  std::int64_t count = 2;
  std::string mode = "a";
  std::string out;
  Flags flags("make", "Makes things.");
  flags.positional("WHAT", out, "thing to make");
  flags.group("Counts");
  flags.integer("checkpoint-keep", count, {1}, "number of most recent checkpoints to keep");
  flags.choice("mode", mode, {"a", "b"}, "mode");
  flags.example("gradwire make tea");
  EXPECT_EQ(help_text(flags.facts()),
            "usage: gradwire make WHAT [flags]\n\nMakes things.\n\n"
            "Arguments:\n"
            "  WHAT                        thing to make\n\n"
            "Counts:\n"
            "  --checkpoint-keep N         number of most recent checkpoints to keep [2]\n"
            "  --mode a|b                  mode [a]\n\n"
            "  --help                      print this help and exit\n\n"
            "Example:\n  gradwire make tea\n");
}

TEST(HelpText, IsBrokenAtBlanks) {
  EXPECT_EQ(wrapped("one two three", 0, 7), "one two\nthree");
  EXPECT_EQ(wrapped("one two", 2, 6), "one\n  two");
  EXPECT_EQ(wrapped("a\nb", 2, 80), "a\n  b");
  EXPECT_EQ(wrapped("incomprehensibilities x", 0, 5), "incomprehensibilities\nx");
}

TEST(Flags, ValuesOfJsonMayBeMissing) {
  const auto json_of = [](const std::vector<std::string>& words) {
    std::string json;
    bool quiet = false;
    Flags flags("make", "");
    flags.json_output(json);
    flags.toggle("quiet", quiet, "no progress");
    EXPECT_TRUE(flags.parse(words).has_value());
    return json;
  };
  EXPECT_EQ(json_of({}), "");
  EXPECT_EQ(json_of({"--json"}), "-");
  EXPECT_EQ(json_of({"--json", "--quiet"}), "-");
  EXPECT_EQ(json_of({"--json", "-"}), "-");
  EXPECT_EQ(json_of({"--json", "rows"}), "rows");
  EXPECT_EQ(json_of({"--json=rows"}), "rows");
}

TEST(Completion, HoldsCommandsFlagsAndValues) {
  for (const std::string& script : {bash_completion(tree()), zsh_completion(tree())}) {
    for (const char* word : {"reduce_scatter", "--checkpoint-keep", "resnet20", "powersgd", "@file",
                             "@folder", "fashion-mnist"}) {
      EXPECT_THAT(script, HasSubstr(word));
    }
    EXPECT_THAT(script, Not(HasSubstr("--methods"))) << "an earlier name";
  }
}

TEST(Catalogue, DescribesEveryModelAndDataSet) {
  for (const auto& entries : {model_catalogue(), data_catalogue()}) {
    for (const CatalogueEntry& entry : entries) EXPECT_FALSE(entry.help.empty()) << entry.name;
  }
}

TEST(Variables, UnknownOnesAreNamedOnceWithTheNearest) {
  using ::testing::ElementsAre;
  EXPECT_THAT(unknown_variable_lines({"GRADWIRE_LOG", "GRADWIRE_TEST_FULL", "PATH"}),
              ElementsAre());
  EXPECT_THAT(unknown_variable_lines({"GRADWIRE_LGO", "GRADWIRE_X"}),
              ElementsAre("unknown environment variable GRADWIRE_LGO; did you mean 'GRADWIRE_LOG'?",
                          "unknown environment variable GRADWIRE_X"));
}

}  // namespace
}  // namespace gradwire::commands_test
