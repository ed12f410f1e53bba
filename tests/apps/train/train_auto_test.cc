// `gradwire train --parallel auto`: the bits of the flags that it stands for, and refusals. The
// profile is written here: nothing is measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/profile/profile.h"
#include "apps/train/train.h"
#include "apps/whole_file.h"
#include "planner/profile/profile_file.h"
#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_auto_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Code kBad = Code::kInvalidArgument;

class TrainAuto : public ::testing::Test {
 protected:
  TrainAuto() { write(profile(1e9, 1e-6)); }

  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  static Profile profile(double bytes_per_second, double latency) {
    Profile made{.conditions = conditions_here()};
    made.products = {{.rows = 32, .in = 128, .out = 128, .seconds = 1e-4}};
    made.optimizers = {{.name = "sgd", .elements = 65536, .seconds = 1e-5}};
    made.links = {{.transport = "shm",
                   .latency_seconds = latency,
                   .bytes_per_second = bytes_per_second,
                   .cpu_seconds_per_byte = 1e-10}};
    return made;
  }
  void write(const Profile& made) const {
    EXPECT_TRUE(write_whole_file(file("p.json"), profile_text(made)).ok());
  }

  Words automatic(Words more) const {
    more.insert(more.end(), {"--parallel", "auto", "--profile", file("p.json")});
    return more;
  }

  // What --parallel auto says that it has chosen: "dp=2,pp=2/1f1b 4x8 recompute=full".
  std::string chosen(const Words& flags) const {
    Words words = automatic(flags);
    words.insert(words.end(), {"--steps", "1"});
    ::testing::internal::CaptureStdout();
    const auto done = train_command(words);
    const std::string said = ::testing::internal::GetCapturedStdout();
    EXPECT_TRUE(done.has_value()) << done.error().message();
    const std::string head = "parallel auto: ";
    const std::size_t at = said.find(head);
    const std::size_t end = said.find(": ", at + head.size());
    EXPECT_TRUE(at != said.npos && end != said.npos) << said;
    EXPECT_THAT(said, HasSubstr("a step by " + file("p.json")));
    return end == said.npos ? "" : said.substr(at + head.size(), end - at - head.size());
  }

  // The same as flags.
  static Words flags_of(const std::string& mesh) {
    const std::size_t space = mesh.find(' ');
    Words flags{"--parallel", mesh.substr(0, space), "--accumulate",
                mesh.substr(space + 1, mesh.find('x', space) - space - 1)};
    const std::string recompute = "recompute=";
    if (const std::size_t at = mesh.find(recompute); at != mesh.npos) {
      const std::size_t begin = at + recompute.size();
      flags.push_back("--recompute");
      flags.push_back(mesh.substr(begin, mesh.find(' ', begin) - begin));
    }
    return flags;
  }

  std::string hash(Words words) const {
    words.insert(words.end(), {"--steps", "3", "--seed", "4", "--metrics", file("m.jsonl")});
    EXPECT_EQ(train(words), "ok");
    const auto lines = json_lines(file("m.jsonl"));
    return lines.empty() ? "none" : lines.back()["params_hash"].dump();
  }

  TemporaryFolder folder_;
};

TEST_F(TrainAuto, HasTheBitsOfTheFlagsThatItStandsFor) {
  const std::vector<Words> runs{{"--model", "mlp", "--batch", "64", "--inproc", "4"},
                                {"--model", "cnn", "--batch", "16", "--inproc", "2"},
                                {"--model", "gpt", "--data", "grammar", "--batch", "8", "--layers",
                                 "2", "--width", "16", "--heads", "2", "--inproc", "4"}};
  for (const Words& run : runs) {
    const std::string mesh = chosen(run);
    Words with_flags = flags_of(mesh);
    for (std::size_t i = 0; i < run.size(); ++i) {
      if (run[i] != "--inproc") {
        with_flags.push_back(run[i]);
      } else {
        ++i;  // --parallel says how many
      }
    }
    EXPECT_EQ(hash(automatic(run)), hash(with_flags)) << mesh;
  }
}

// A link that takes a second a message leaves replicas, which meet once a step; without one the
// choice is another.
TEST_F(TrainAuto, ChoosesByTheProfile) {
  const Words run{"--model", "mlp", "--batch", "64", "--inproc", "2"};
  write(profile(1e9, 1));
  EXPECT_THAT(chosen(run), ::testing::AllOf(HasSubstr("dp=2"), HasSubstr("1x32")));
  write(profile(1, 1e-9));  // a byte takes a second: messages of one micro-batch have fewest
  EXPECT_THAT(chosen(run), Not(HasSubstr("dp=2")));
}

TEST_F(TrainAuto, FlagsThatAreGivenStay) {
  const std::string mesh = chosen({"--model", "mlp", "--batch", "64", "--inproc", "2", "--zero",
                                   "1", "--accumulate", "4", "--recompute", "full"});
  EXPECT_THAT(mesh, HasSubstr("zero=1 4x8 recompute=full"));
}

TEST_F(TrainAuto, RefusalsSayWhatIsMissing) {
  const Words ranks{"--inproc", "2"};
  Profile elsewhere = profile(1e9, 1e-6);
  elsewhere.conditions.host = "another";
  write(elsewhere);
  EXPECT_THAT(refusal(automatic(ranks)),
              fails(kBad, "--parallel auto", "host 'another'", "gradwire profile"));
  write(profile(1e9, 1e-6));
  EXPECT_THAT(refusal({"--parallel", "auto", "--inproc", "2", "--profile", file("none.json")}),
              fails(kBad, "--parallel auto", "none.json", "gradwire profile"));
  EXPECT_THAT(refusal(automatic({})), fails(kBad, "no ranks to divide", "gradwire run -n N"));
  EXPECT_THAT(refusal(automatic({"--inproc", "2", "--optimizer", "onebit_adam"})),
              fails(kBad, "--optimizer onebit_adam", "adamw"));
  EXPECT_THAT(refusal({"--profile", file("p.json")}), fails(kBad, "--profile", "alone"));
  // Replicas alone have something to shard, and the batch does not divide among them.
  EXPECT_THAT(refusal(automatic({"--inproc", "2", "--batch", "31", "--zero", "3"})),
              fails(kBad, "--parallel auto", "no mesh", "--batch"));
  Profile bare = profile(1e9, 1e-6);
  bare.links.clear();
  write(bare);
  EXPECT_THAT(refusal(automatic(ranks)), fails(kBad, "no link 'shm'", "--no-links"));
}

}  // namespace
}  // namespace gradwire::train_auto_test
