// Checkpoints on a disk: written in any cut, read in any other; damage is named; what is not
// complete is not there.
#include "trainer/checkpoint/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "base/elements.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"
#include "trainer/checkpoint/reader.h"

namespace gradwire::checkpoint_store_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class Checkpoint : public ::testing::Test {
 protected:
  Checkpoint() : weight_(24), counter_{-5, 1LL << 40}, codes_{1, -2, 3} {
    std::iota(weight_.begin(), weight_.end(), 100.0F);
    int part = 0;
    for (const TensorBox& box : {heads({0, 1}), heads({1, 3})}) {
      for (std::int64_t i = 0; i < box.elems(); ++i) {
        heads_[static_cast<std::size_t>(part)].push_back(static_cast<float>(box.element(i)));
      }
      ++part;
    }
  }

  // Heads of queries, keys and values, of one row each; element e is e.
  static TensorBox heads(Range of) {
    return TensorBox::of(Shape::matrix(9, 2), {{3, 3, 2, 1}, 3}).cut(1, of);
  }

  ConstTensorView weight(std::int64_t begin, std::int64_t end) const {
    return const_view_of(std::span(weight_)).slice(begin, end - begin);
  }
  // Two files: elements 0 to 9 and 20 to 23 of the weight in the first, the rest in the other one.
  CheckpointManifest write(std::int64_t step) {
    const auto part = store_.begin(step, 7);
    EXPECT_TRUE(part.has_value()) << part.error().message();
    const Shape shape = Shape::matrix(4, 6);
    const std::vector<TensorPart> first{
        {"fc.weight", TensorBox::of(shape), 20, weight(20, 24)},
        {"fc.weight", TensorBox::of(shape), 0, weight(0, 10)},
        {"qkv", heads({0, 1}), 0, const_view_of(std::span<const float>(heads_[0]))},
        whole_tensor("counter", const_view_of(std::span<const std::int64_t>(counter_)))};
    const std::vector<TensorPart> second{
        {"fc.weight", TensorBox::of(shape), 10, weight(10, 20)},
        {"qkv", heads({1, 3}), 5, const_view_of(std::span<const float>(heads_[1])).slice(5, 7)},
        {"qkv", heads({1, 3}), 0, const_view_of(std::span<const float>(heads_[1])).slice(0, 5)},
        whole_tensor("codes", const_view_of(std::span<const std::int8_t>(codes_)))};
    CheckpointManifest manifest;
    manifest.position.step = step;
    manifest.position.mesh.tp = 2;
    int index = 0;
    for (const auto& parts : {first, second}) {
      const std::string name = "rank-" + std::to_string(index) + ".safetensors";
      auto written = write_tensor_file(part.value(), name, {0, 0, index}, parts, {});
      EXPECT_TRUE(written.has_value()) << written.error().message();
      auto told = read_part_list(write_part_list(written.value()));
      EXPECT_TRUE(told.has_value()) << told.error().message();
      EXPECT_TRUE(add_file(manifest, told.value()).ok());
      ++index;
    }
    put(part.value() + "/" + std::string(kManifestName), write_manifest(manifest));
    const Status committed = store_.commit(part.value(), step);
    EXPECT_TRUE(committed.ok()) << committed.message();
    return manifest;
  }
  std::vector<std::int64_t> complete() {
    auto steps = store_.complete();
    EXPECT_TRUE(steps.has_value()) << steps.error().message();
    return steps.has_value() ? steps.value() : std::vector<std::int64_t>();
  }

  TemporaryFolder folder_;
  CheckpointStore store_{folder_.path() + "/run/checkpoints"};
  std::vector<float> weight_;
  std::vector<std::int64_t> counter_;
  std::vector<std::int8_t> codes_;
  std::vector<float> heads_[2];
};

TEST_F(Checkpoint, IsReadInAnyCut) {
  write(20);
  auto reader = CheckpointReader::open(store_.path_of(20));
  ASSERT_TRUE(reader.has_value()) << reader.error().message();
  const Shape shape = Shape::matrix(4, 6);
  for (std::int64_t begin = 0; begin <= 24; ++begin) {
    for (std::int64_t end = begin; end <= 24; ++end) {
      std::vector<float> read(static_cast<std::size_t>(end - begin), -1);
      const Status status =
          reader.value().read("fc.weight", shape, begin, view_of(std::span(read)));
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(read, std::vector<float>(weight_.begin() + begin, weight_.begin() + end));
    }
  }
  std::vector<std::int64_t> counter(2);
  ASSERT_TRUE(reader.value().read("counter", view_of(std::span(counter))).ok());
  EXPECT_EQ(counter, counter_);
  std::vector<std::int8_t> codes(3);
  ASSERT_TRUE(reader.value().read("codes", view_of(std::span(codes))).ok());
  EXPECT_EQ(codes, codes_);
  EXPECT_TRUE(reader.value().verify().ok());
}

// Of what two tensor-parallel ranks wrote, any other number of them reads its heads, and a replica
// all rows.
TEST_F(Checkpoint, BoxesAreReadInAnyOtherBoxes) {
  write(20);
  auto reader = CheckpointReader::open(store_.path_of(20));
  ASSERT_TRUE(reader.has_value()) << reader.error().message();
  std::vector<TensorBox> wanted{TensorBox::of(Shape::matrix(9, 2)), heads({0, 3}),
                                heads({0, 2}).cut(2, {1, 2}), heads({1, 1})};
  for (std::int64_t head = 0; head < 3; ++head) wanted.push_back(heads({head, head + 1}));
  for (const TensorBox& box : wanted) {
    for (std::int64_t begin = 0; begin <= box.elems(); ++begin) {
      std::vector<float> read(static_cast<std::size_t>(box.elems() - begin), -1);
      const Status status = reader.value().read("qkv", box, begin, view_of(std::span(read)));
      ASSERT_TRUE(status.ok()) << status.message();
      for (std::size_t i = 0; i < read.size(); ++i) {
        const std::int64_t element = box.element(begin + static_cast<std::int64_t>(i));
        ASSERT_EQ(read[i], static_cast<float>(element)) << to_string(box);
      }
    }
  }
  std::vector<float> rows(2);
  const TensorBox row = TensorBox::of(Shape::matrix(9, 2)).cut(0, {0, 1});
  EXPECT_THAT(reader.value().read("qkv", row, 0, view_of(std::span(rows))),
              fails(kInvalid, "qkv", "(3, 3, 2)", "(9, 2)[0:1, 0:2]"));
}

TEST_F(Checkpoint, WhatDoesNotFitIsRefusedByName) {
  write(20);
  auto reader = CheckpointReader::open(store_.path_of(20));
  ASSERT_TRUE(reader.has_value());
  std::vector<float> out(24);
  const auto refusal = [&](const std::string& name, const Shape& shape, std::int64_t begin) {
    return reader.value().read(name, shape, begin, view_of(std::span(out)));
  };
  EXPECT_THAT(refusal("fc.bias", Shape::vector(24), 0), fails(kInvalid, "fc.bias"));
  EXPECT_THAT(refusal("fc.weight", Shape::vector(24), 0),
              fails(kInvalid, "fc.weight", "(4, 6)", "(24)"));
  EXPECT_THAT(refusal("fc.weight", Shape::matrix(4, 6), 1),
              fails(kInvalid, "fc.weight", "[1, 25)"));
  EXPECT_THAT(refusal("counter", Shape::vector(2), 0), fails(kInvalid, "counter", "i64", "f32"));
}

TEST_F(Checkpoint, EveryFlippedBitIsNamedWithItsFile) {
  write(20);
  const std::string folder = store_.path_of(20);
  for (const char* name : {"rank-0.safetensors", "rank-1.safetensors"}) {
    const std::string path = folder + "/" + name;
    const std::string whole = contents(path);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      std::string other = whole;
      other[at] = static_cast<char>(other[at] ^ (1 << (at % 7)));
      put(path, other);
      auto reader = CheckpointReader::open(folder);
      const Status seen = reader.has_value() ? reader.value().verify() : reader.error();
      ASSERT_FALSE(seen.ok()) << path << " at " << at;
      ASSERT_TRUE(names(seen.message(), name)) << seen.message() << " at " << at;
    }
    put(path, whole);
  }
}

TEST_F(Checkpoint, EveryTruncatedFileIsNamed) {
  write(20);
  const std::string path = store_.path_of(20) + "/rank-1.safetensors";
  const std::string whole = contents(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(path, whole.substr(0, size));
    auto reader = CheckpointReader::open(store_.path_of(20));
    ASSERT_TRUE(reader.has_value());
    const Status seen = reader.value().verify();
    ASSERT_THAT(seen, fails(Code::kCorruptPayload, "rank-1.safetensors"));
  }
  fs::remove(path);
  auto reader = CheckpointReader::open(store_.path_of(20));
  ASSERT_TRUE(reader.has_value());
  EXPECT_THAT(reader.value().verify(), fails(kInvalid, path, "No such file or directory"));
}

TEST_F(Checkpoint, OnlyCompleteOnesCount) {
  EXPECT_THAT(complete(), IsEmpty());
  write(9);
  write(1234567);
  write(10);
  ASSERT_TRUE(store_.begin(40, 1).has_value());  // and then the power went
  fs::create_directory(store_.folder() + "/step-0000000050");
  fs::create_directory(store_.folder() + "/.step-0000000002.old");
  for (const char* other : {"step-60", "step-00000000070", "step--000000080", "steps", "x"}) {
    fs::create_directory(store_.folder() + "/" + other);
    put(store_.folder() + "/" + other + "/manifest.json", "{}");
  }
  EXPECT_THAT(complete(), ElementsAre(9, 10, 1234567));
}

TEST_F(Checkpoint, TheNextOneRemovesWhatCrashesLeft) {
  write(10);
  const auto dead = store_.begin(20, 1);
  ASSERT_TRUE(dead.has_value());
  put(dead.value() + "/rank-0.safetensors", "half");
  fs::create_directories(store_.folder() + "/.step-0000000005.old");
  put(store_.folder() + "/notes.txt", "somebody's");
  const auto next = store_.begin(20, 2);
  ASSERT_TRUE(next.has_value());
  EXPECT_FALSE(fs::exists(dead.value()));
  EXPECT_FALSE(fs::exists(store_.folder() + "/.step-0000000005.old"));
  EXPECT_TRUE(fs::exists(store_.folder() + "/notes.txt"));
  EXPECT_TRUE(fs::is_empty(next.value()));
  EXPECT_NE(next.value(), dead.value());
  store_.discard(next.value());
  EXPECT_FALSE(fs::exists(next.value()));
  EXPECT_THAT(complete(), ElementsAre(10));
}

TEST_F(Checkpoint, TheLastOnesAreKept) {
  for (const std::int64_t step : {10, 20, 30, 40}) write(step);
  ASSERT_TRUE(store_.prune(3).ok());
  EXPECT_THAT(complete(), ElementsAre(20, 30, 40));
  ASSERT_TRUE(store_.prune(1).ok());
  EXPECT_THAT(complete(), ElementsAre(40));
  ASSERT_TRUE(store_.prune(0).ok());
  EXPECT_THAT(complete(), ElementsAre(40));
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(store_.folder())) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, ElementsAre("step-0000000040"));
}

TEST_F(Checkpoint, OneOfThemIsKept) {
  for (const std::int64_t step : {10, 20, 30}) write(step);
  ASSERT_TRUE(store_.keep_only(20).ok());
  EXPECT_THAT(complete(), ElementsAre(20));
}

TEST_F(Checkpoint, NothingIsOverwritten) {
  write(10);
  const auto again = store_.begin(10, 3);
  EXPECT_THAT(again.error(), fails(kInvalid, "step-0000000010", "File exists"));
  put(folder_.path() + "/file", "x");
  const CheckpointStore below(folder_.path() + "/file/deep");
  EXPECT_THAT(below.begin(1, 1).error(), fails(kInvalid, folder_.path() + "/file"));
  EXPECT_FALSE(below.complete().has_value());
}

TEST_F(Checkpoint, APartOutsideItsTensorIsRefused) {
  const std::vector<TensorPart> parts{{"w", TensorBox::of(Shape::vector(12)), 4, weight(0, 10)}};
  EXPECT_THAT(write_tensor_file(folder_.path(), "x", {}, parts, {}).error(),
              fails(kInvalid, "w", "[4, 14)", "12"));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(Checkpoint, ThePythonOfTheManualReadsIt) {
  write(20);
  std::ifstream manual(GW_MANUAL);
  std::string line;
  std::string program;
  bool inside = false;
  int lines = 0;
  while (std::getline(manual, line)) {
    if (line == "```") inside = false;
    if (inside) program += line + "\n";
    if (inside) ++lines;
    if (line == "```python") inside = true;
  }
  ASSERT_GT(lines, 5);
  EXPECT_LE(lines, 20);
  program +=
      "shape, values = tensor(sys.argv[1], 'fc.weight')\n"
      "assert shape == [4, 6] and list(values) == [100.0 + i for i in range(24)], values\n"
      "shape, values = tensor(sys.argv[1], 'qkv')\n"
      "assert shape == [9, 2] and list(values) == list(range(18)), values\n"
      "assert list(tensor(sys.argv[1], 'counter')[1]) == [-5, 2**40]\n"
      "assert list(tensor(sys.argv[1], 'codes')[1]) == [1, -2, 3]\n";
  put(folder_.path() + "/read.py", program);
  const std::string command =
      std::string(GW_PYTHON) + " " + folder_.path() + "/read.py " + store_.path_of(20);
  EXPECT_EQ(std::system(command.c_str()), 0);  // NOLINT(cert-env33-c)
}

}  // namespace
}  // namespace gradwire::checkpoint_store_test
