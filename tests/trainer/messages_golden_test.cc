// The whole sentences of three families of errors: data files, options of a training, checkpoints.
// All other tests judge an error by its code and by what it names.
#include <gtest/gtest.h>

#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/training_problems.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/catalog.h"
#include "trainer/data/cifar10.h"
#include "trainer/data/digits.h"
#include "trainer/data/idx.h"
#include "trainer/training.h"

namespace gradwire::messages_golden_test {
namespace {

struct Golden {
  Status error;
  Code code;
  std::string text;
};

void expect_all(const std::vector<Golden>& errors) {
  for (const Golden& one : errors) {
    EXPECT_EQ(one.error.code(), one.code) << one.text;
    EXPECT_EQ(one.error.message(), one.text);
  }
}

class Messages : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

 private:
  TemporaryFolder folder_;
};

TEST_F(Messages, OfDataFiles) {
  const std::string images({0, 0, 8, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1});
  const std::string one = "1";
  expect_all({
      {read_idx(put("i", images), put("l", ""), 10).error(), Code::kCorruptPayload,
       path("i") + ": IDX magic 2049 (expected 2051)"},
      {read_cifar10(put("c", one)).error(), Code::kCorruptPayload,
       path("c") + ": 1 bytes (expected a positive multiple of the record's 3073)"},
      {read_digits(put("d", one)).error(), Code::kCorruptPayload,
       path("d") + ": line 1: 1 values (expected 65)"},
      {find_data_set("digits", {path("no"), ""}).error(), Code::kInvalidArgument,
       "data-dir " + path("no") + " is no folder (expected a data set's folder or its parent)"},
  });
}

TEST_F(Messages, OfOptions) {
  const auto refused = [](auto change) {
    TrainingOptions options;
    change(options);
    const auto made = Trainer::create(mlp(), digits(), options);
    return made.has_value() ? Status() : made.error();
  };
  using O = TrainingOptions;
  const Code invalid = Code::kInvalidArgument;
  expect_all({
      {refused([](O& o) { o.batch = 100, o.ranks = 4, o.accumulate = 2; }), invalid,
       "batch 100 (expected a positive multiple of 8 (4 ranks x 2 micro-batches))"},
      {refused([](O& o) { o.batch = 100, o.accumulate = 3; }), invalid,
       "batch 100 (expected a positive multiple of 3 (1 rank x 3 micro-batches))"},
      {refused([](O& o) { o.batch = 0; }), invalid,
       "batch 0 (expected a positive multiple of 1 (1 rank x 1 micro-batch))"},
      {refused([](O& o) { o.batch = 1438; }), invalid,
       "batch 1438 (expected at most 1437, the samples of digits)"},
      {refused([](O& o) { o.momentum = 1; }), invalid, "momentum 1 (expected 0 <= momentum < 1)"},
      {refused([](O& o) { o.clip = -1; }), invalid, "clip -1 (expected a finite number >= 0)"},
  });
}

TEST_F(Messages, OfCheckpoints) {
  std::vector<float> values{1, 2};
  std::vector<NamedTensor> tensors{{"w", TensorView(reinterpret_cast<std::byte*>(values.data()),
                                                    Shape::vector(2), DType::kF32)}};
  const std::string file = path("p.safetensors");
  ASSERT_TRUE(save_safetensors(file, tensors).ok());
  tensors[0].name = "v";
  const std::string folder = path("none");
  expect_all({
      {load_safetensors(file, tensors), Code::kInvalidArgument, file + ": it has no tensor v"},
      {load_safetensors(put("short", "1234567"), tensors), Code::kCorruptPayload,
       path("short") + ": 7 bytes (expected at least 8)"},
      {read_manifest("[]").error(), Code::kCorruptPayload,
       "not a JSON object with a member \"checkpoint\""},
      {CheckpointReader::open(folder).error(), Code::kInvalidArgument,
       "cannot read " + folder + "/manifest.json: No such file or directory"},
  });
}

}  // namespace
}  // namespace gradwire::messages_golden_test
