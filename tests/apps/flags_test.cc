#include "apps/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "apps/train/train_options.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::flags_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;
// Parses as `gradwire train` does.
Status error_of(const std::vector<std::string>& args, TrainOptions& options) {
  Flags flags("train", "test");
  add_train_flags(flags, options);
  flags.config_file();
  const auto outcome = flags.parse(args);
  return outcome.has_value() ? check_train_options(flags, options) : outcome.error();
}
Status error_of(const std::vector<std::string>& args) {
  TrainOptions options;
  return error_of(args, options);
}

TEST(Flags, ValuesArrive) {
  TrainOptions o;
  const Status parsed =
      error_of({"--steps", "0", "--batch=96", "--lr", "1e-3", "--hidden", "32,16", "--model", "mlp",
                "--bucket-bytes", "64K", "--threads", "3", "--allow-unsafe", "--lr-schedule",
                "step:0.5:0.25", "--compressor", "*.bias=none;*=cast:bf16"},
               o);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  EXPECT_EQ(o.steps, 0);
  EXPECT_EQ(o.batch, 96);
  EXPECT_EQ(o.lr, 1e-3);
  EXPECT_EQ(o.hidden, (std::vector<std::int64_t>{32, 16}));
  EXPECT_EQ(o.bucket_bytes, 65536);
  EXPECT_EQ(o.threads, 3);
  EXPECT_TRUE(o.allow_unsafe);
  EXPECT_EQ(o.lr_schedule.text(), "step:0.5:0.25");
  EXPECT_EQ(o.compressor, "*.bias=none;*=cast:bf16");
}

struct Refusal {
  std::vector<std::string> args;
  std::string message;
};

// The whole sentences of this family.
class FlagRefusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(FlagRefusals, NameTheFlagTheValueAndWhatIsAllowed) {
  const Status refused = error_of(GetParam().args);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.message(), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Golden, FlagRefusals,
    ::testing::Values(
        Refusal{{"--steps", "many"},
                "train: --steps must be a whole number of at least 0 (got 'many')"},
        Refusal{{"--steps", "-1"},
                "train: --steps must be a whole number of at least 0 (got '-1')"},
        Refusal{{"--momentum", "1.5"},
                "train: --momentum must be a number from 0 to 1 (got '1.5')"},
        Refusal{{"--lr", "nan"}, "train: --lr must be a number from 0 to 1e+06 (got 'nan')"},
        Refusal{{"--model", "vgg"},
                "train: --model must be one of mlp, cnn, logistic, linear, resnet8, resnet20, "
                "alexnet, gpt (got 'vgg')"},
        Refusal{{"--model", "mpl"},
                "train: --model must be one of mlp, cnn, logistic, linear, resnet8, resnet20, "
                "alexnet, gpt (got 'mpl'; did you mean 'mlp'?)"},
        Refusal{{"--algorithm", "treee"},
                "train: --algorithm must be one of auto, ring, canonical, direct, "
                "recursive_doubling, halving_doubling, double_tree, tree, knomial, "
                "parameter_server, two_level, blueconnect (got 'treee'; did you mean 'tree'?)"},
        Refusal{{"--hidden", "128,,64"},
                "train: --hidden must be whole numbers from 1 to 65536 separated by commas (got "
                "'128,,64')"},
        Refusal{{"--bucket-bytes", "4Q"},
                "train: --bucket-bytes must be a number of bytes such as 4096, 64K, 25M or 1G (got "
                "'4Q')"},
        Refusal{
            {"--lr-schedule", "step:2:0.1"},
            "train: --lr-schedule: learning rate schedule 'step:2:0.1' (expected constant, "
            "or warmup:STEPS, cosine:FRACTION and step:FRACTION:FACTOR between commas with STEPS "
            ">= 1, 0 <= FRACTION <= 1 and FACTOR >= 0)"},
        Refusal{
            {"--stepz", "3"},
            "train: unknown flag '--stepz'; did you mean '--steps'? (see gradwire train --help)"},
        Refusal{{"--zzzzzzzz"}, "train: unknown flag '--zzzzzzzz' (see gradwire train --help)"},
        Refusal{{"surplus"}, "train: unexpected argument 'surplus' (see gradwire train --help)"},
        Refusal{{"--steps", "3", "--steps", "4"},
                "train: --steps is given 2 times (expected once)"},
        Refusal{{"--steps", "3", "--epochs", "4"},
                "train: --steps and --epochs exclude each other (got both)"},
        Refusal{{"--inproc", "3", "--accumulate", "4", "--batch", "30"},
                "train: --batch must be a multiple of 12 (3 ranks x 4 micro-batches) (got 30)"},
        Refusal{{"--accumulate", "3", "--batch", "64"},
                "train: --batch must be a multiple of 3 (1 rank x 3 micro-batches) (got 64)"},
        Refusal{{"--momentum", "1"}, "train: --momentum must be below 1 (got 1)"},
        Refusal{{"--steps"}, "train: --steps has no value (expected --steps N)"},
        Refusal{{"--inproc", "3", "--batch", "64"},
                "train: --batch must be a multiple of 3 (got 64)"},
        Refusal{{"--model", "cnn", "--hidden", "8"},
                "train: --hidden requires --model mlp (got --model cnn)"}));

TEST(Flags, ABadSpecShowsWhere) {
  EXPECT_THAT(error_of({"--compressor", "topk:"}),
              fails(kInvalid, "train", "--compressor", "topk:"));
}

TEST(Flags, AMissingValueIsAnError) {
  EXPECT_THAT(error_of({"--steps"}), fails(kInvalid, "--steps"));
}

class ConfigFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/run.toml";
};

TEST_F(ConfigFile, EveryFlagMayStandInItAndFlagsWin) {
  TrainOptions o;
  write(
      "steps = 7\nbatch = 32\nlr = 0.125\nhidden = [8, 4]\nallow-unsafe = true\n"
      "momentum_at = \"worker\"\nbucket-bytes = \"2K\"\n");
  const Status parsed = error_of({"--config", path_, "--batch", "48"}, o);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  EXPECT_EQ(o.steps, 7);
  EXPECT_EQ(o.batch, 48);
  EXPECT_EQ(o.lr, 0.125);
  EXPECT_EQ(o.hidden, (std::vector<std::int64_t>{8, 4}));
  EXPECT_TRUE(o.allow_unsafe);
  EXPECT_EQ(o.momentum_at, "worker");
  EXPECT_EQ(o.bucket_bytes, 2048);
}

TEST_F(ConfigFile, ErrorsNameFileAndLine) {
  write("steps = 7\nlr = \"fast\"\n");
  EXPECT_THAT(error_of({"--config", path_}),
              fails(kInvalid, path_ + ":2", "lr", "fast", "0", "1e+06"));
  write("stepz = 7\n");
  EXPECT_THAT(error_of({"--config", path_}), fails(kInvalid, path_ + ":1", "stepz", "steps"));
  write("\n\nsteps = = 7\n");
  EXPECT_THAT(error_of({"--config", path_}), fails(kInvalid, path_ + ":3", "TOML"));
  write("[steps]\na = 1\n");
  EXPECT_THAT(error_of({"--config", path_}), fails(kInvalid, path_ + ":1", "steps", "array"));
}

TEST_F(ConfigFile, AMissingFileIsAnError) {
  EXPECT_THAT(error_of({"--config", path_}), fails(kInvalid, path_, "No such file or directory"));
}

TEST(Bytes, KMGArePowersOf1024) {
  EXPECT_EQ(parse_bytes("0").value(), 0);
  EXPECT_EQ(parse_bytes("17").value(), 17);
  EXPECT_EQ(parse_bytes("1K").value(), 1024);
  EXPECT_EQ(parse_bytes("25M").value(), 25LL * 1024 * 1024);
  EXPECT_EQ(parse_bytes("3G").value(), 3LL << 30);
  for (const char* bad : {"", "K", "1k", "-1", "1.5K", "1KB", "99999999999G"}) {
    EXPECT_FALSE(parse_bytes(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace gradwire::flags_test
