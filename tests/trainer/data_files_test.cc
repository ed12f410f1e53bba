// Readers on small files, whole and damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"
#include "trainer/data/catalog.h"
#include "trainer/data/cifar10.h"
#include "trainer/data/digits.h"
#include "trainer/data/file_bytes.h"
#include "trainer/data/idx.h"

namespace gradwire::data_files_test {
namespace {

using ::testing::ElementsAre;
using Bytes = std::vector<std::uint8_t>;

// An own folder per test, gone with it.
class DataFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = temporary_.path();
    ASSERT_FALSE(folder_.empty());
  }

  std::string put(const std::string& name, const Bytes& bytes) {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path.string();
  }
  std::string put(const std::string& name, const std::string& text) {
    return put(name, Bytes(text.begin(), text.end()));
  }

  TemporaryFolder temporary_;
  std::filesystem::path folder_;
};

template <typename T, typename... Words>
void expect_error(const Result<T>& result, Code code, const Words&... words) {
  ASSERT_FALSE(result.has_value());
  EXPECT_THAT(result.error(), fails(code, words...));
}

// Three images of 2x2: pixels 10 to 21.
const Bytes kImages{0, 0, 8,  3,  0,  0,  0,  3,  0,  0,  0,  2,  0,  0,
                    0, 2, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21};
// The same, as Python's gzip module writes it.
const Bytes kImagesGz{0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x63,
                      0x60, 0xe0, 0x60, 0x66, 0x60, 0x60, 0x00, 0x61, 0x26, 0x10, 0xe6,
                      0xe2, 0xe6, 0xe1, 0xe5, 0xe3, 0x17, 0x10, 0x14, 0x12, 0x16, 0x11,
                      0x05, 0x00, 0x64, 0x4c, 0x38, 0x17, 0x1c, 0x00, 0x00, 0x00};
const Bytes kLabels{0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9};

TEST_F(DataFiles, GzipAndPlainReadAlike) {
  EXPECT_EQ(read_file_bytes(put("a.gz", kImagesGz), 100).value(), kImages);
  EXPECT_EQ(read_file_bytes(put("a", kImages), 100).value(), kImages);
  EXPECT_EQ(read_file_bytes(put("named_gz_but_plain.gz", kImages), 28).value(), kImages);
  EXPECT_TRUE(read_file_bytes(put("empty", Bytes{}), 0).value().empty());
}

TEST_F(DataFiles, EveryTruncationOfGzipIsAnError) {
  for (std::size_t length = 2; length < kImagesGz.size(); ++length) {
    const Bytes part(kImagesGz.begin(), kImagesGz.begin() + static_cast<std::ptrdiff_t>(length));
    const auto read = read_idx(put("t.gz", part), put("l", kLabels), 10);
    ASSERT_FALSE(read.has_value()) << length;
    EXPECT_EQ(read.error().code(), Code::kCorruptPayload) << length;
  }
}

TEST_F(DataFiles, DamagedGzipTooLongAndMissingFiles) {
  Bytes damaged = kImagesGz;
  damaged[35] ^= 1;  // in the checksum
  expect_error(read_file_bytes(put("d.gz", damaged), 100), Code::kCorruptPayload, "d.gz");
  expect_error(read_file_bytes(put("a.gz", kImagesGz), 27), Code::kCorruptPayload, "27");
  expect_error(read_file_bytes((folder_ / "none").string(), 9), Code::kInvalidArgument, "none");
}

TEST_F(DataFiles, IdxByHand) {
  const auto read = read_idx(put("i.gz", kImagesGz), put("l", kLabels), 10);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read.value().shape, (SampleShape{1, 2, 2}));
  EXPECT_THAT(read.value().samples.labels, ElementsAre(7, 0, 9));
  EXPECT_EQ(read.value().samples.pixels, Bytes(kImages.begin() + 16, kImages.end()));
}

TEST_F(DataFiles, IdxRefusesWhatContradictsItself) {
  const auto with = [](Bytes bytes, std::size_t at, std::uint8_t value) {
    bytes[at] = value;
    return bytes;
  };
  const auto images = [&](const Bytes& bytes) {
    return read_idx(put("i", bytes), put("l", kLabels), 10);
  };
  const auto labels = [&](const Bytes& bytes) {
    return read_idx(put("i", kImages), put("l", bytes), 10);
  };
  expect_error(images({}), Code::kCorruptPayload, "0 bytes", "16");
  expect_error(images(kLabels), Code::kCorruptPayload, "11 bytes", "16");
  expect_error(images(with(kImages, 3, 1)), Code::kCorruptPayload, "magic 2049", "2051");
  expect_error(images(with(kImages, 7, 4)), Code::kCorruptPayload, "12 bytes", "16");
  expect_error(images(with(kImages, 11, 0)), Code::kCorruptPayload, "dimension 1", "0");
  Bytes huge = kImages;
  for (std::size_t i = 4; i < 16; ++i) huge[i] = 255;  // the product overflows 64 bits
  expect_error(images(huge), Code::kCorruptPayload, "12 bytes");
  expect_error(images(with(with(kImages, 7, 1), 11, 6)), Code::kCorruptPayload, "3 labels", "1");
  expect_error(labels(kImages), Code::kCorruptPayload, "magic 2051", "2049");
  expect_error(labels(with(kLabels, 9, 10)), Code::kCorruptPayload, "label 10", "0", "9");
  expect_error(labels(Bytes(kLabels.begin(), kLabels.end() - 1)), Code::kCorruptPayload, "2 bytes",
               "3");
}

TEST_F(DataFiles, Cifar10ByHand) {
  Bytes record(3073, 5);
  record[0] = 9;
  record[1] = 200;     // first red
  record[1025] = 100;  // first green
  Bytes two = record;
  two.insert(two.end(), record.begin(), record.end());
  two[3073] = 0;
  const auto read = read_cifar10(put("c.bin", two));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_THAT(read.value().labels, ElementsAre(9, 0));
  EXPECT_EQ(read.value().pixels.size(), 2u * 3072);
  EXPECT_EQ(read.value().pixels[0], 200);
  EXPECT_EQ(read.value().pixels[3072 + 1024], 100);
  two.pop_back();
  expect_error(read_cifar10(put("c.bin", two)), Code::kCorruptPayload, "6145 bytes");
  expect_error(read_cifar10(put("c.bin", Bytes{})), Code::kCorruptPayload, "0 bytes");
  record[0] = 10;
  expect_error(read_cifar10(put("c.bin", record)), Code::kCorruptPayload, "label 10", "record 0");
}

std::string digit_line(const std::string& first, const std::string& label) {
  std::string line = first;
  for (int i = 1; i < 64; ++i) line += ",0";
  return line + "," + label;
}

TEST_F(DataFiles, DigitsByHand) {
  const std::string good = digit_line("16", "9");
  const auto read = read_digits(put("d", good + "\r\n" + digit_line("0", "0")));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_THAT(read.value().labels, ElementsAre(9, 0));
  EXPECT_EQ(read.value().pixels[0], 16);
  const auto refused = [&](const std::string& line, const auto&... words) {
    expect_error(read_digits(put("d", good + "\n" + line + "\n")), Code::kCorruptPayload, "line 2",
                 words...);
  };
  refused(digit_line("17", "9"), "17", "column 1", "0", "16");
  refused(digit_line("-1", "9"), "-1", "column 1");
  refused(digit_line("x", "9"), "x", "column 1");
  refused(digit_line("0", "10"), "10", "column 65", "0", "9");
  refused("1,2,3", "3 values", "65");
  refused("", "0 values", "65");
  refused(good + ",1", "65 values");
}

TEST_F(DataFiles, CarriedDigitsAreComplete) {
  const auto loaded = load_data_set("digits", {});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
  const DataSet& digits = loaded.value();
  EXPECT_EQ(digits.train().count(), 1437);
  EXPECT_EQ(digits.test().count(), 360);
  EXPECT_EQ(digits.shape(), (SampleShape{1, 8, 8}));
  std::vector<int> test_count(10);
  for (const std::uint8_t label : digits.test().labels) ++test_count[label];
  EXPECT_THAT(test_count, ElementsAre(35, 36, 35, 37, 37, 37, 37, 36, 33, 37));
  std::uint64_t sum = 0;
  for (const Samples* part : {&digits.train(), &digits.test()}) {
    for (const std::uint8_t pixel : part->pixels) sum += pixel;
  }
  EXPECT_EQ(sum, 561718u);
  EXPECT_EQ(digits.train().labels[0], 0);
  EXPECT_EQ(digits.test().labels[0], 2);
  EXPECT_EQ(digits.test().labels[359], 8);
}

TEST_F(DataFiles, SetsAreFoundInTheirFolderOrItsParent) {
  const Bytes labels = kLabels;
  for (const char* part : {"train", "t10k"}) {
    put(std::string("fashion-mnist/") + part + "-images-idx3-ubyte.gz", kImagesGz);
    put(std::string("fashion-mnist/") + part + "-labels-idx1-ubyte", labels);
  }
  const std::string own = (folder_ / "fashion-mnist").string();
  EXPECT_EQ(find_data_set("fashion-mnist", {own, ""}).value(), own);
  EXPECT_EQ(find_data_set("fashion-mnist", {folder_.string(), ""}).value(), own);
  std::filesystem::create_directory(folder_ / "other");
  const std::string other = (folder_ / "other").string();
  EXPECT_EQ(find_data_set("fashion-mnist", {other, folder_.string()}).value(), own);
  const auto nowhere = find_data_set("digits", {other + "/no", folder_.string()});
  EXPECT_THAT(nowhere.error(), fails(Code::kInvalidArgument, other + "/no"));
  const auto loaded = load_data_set("fashion-mnist", {own, ""});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
  EXPECT_EQ(loaded.value().train().count(), 3);
  std::filesystem::remove(folder_ / "fashion-mnist" / "t10k-labels-idx1-ubyte");
  expect_error(find_data_set("fashion-mnist", {own, ""}), Code::kInvalidArgument, own);
  expect_error(find_data_set("mnist", {}), Code::kInvalidArgument, "mnist", "digits",
               "fashion-mnist", "cifar10-subset");
}

}  // namespace
}  // namespace gradwire::data_files_test
