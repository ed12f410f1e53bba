// Parameter files: what is written, what reads it, what is refused.
#include "trainer/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base/elements.h"
#include "gradwire/tensor.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::safetensors_test {
namespace {

using ::testing::ElementsAre;

NamedTensor named(const std::string& name, std::vector<float>& data, Shape shape) {
  return {name, TensorView(reinterpret_cast<std::byte*>(data.data()), shape, DType::kF32)};
}

class Safetensors : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = folder_.path() + "/" + info->name() + ".safetensors";
    weight_ = {1, -2, 3.5f, 0, std::numeric_limits<float>::infinity(), 1e-40f};
    bias_ = {7, 8};
    tensors_ = {named("fc.weight", weight_, Shape::matrix(2, 3)),
                named("fc.bias", bias_, Shape::vector(2))};
  }

  std::string contents() {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void put(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  // Header and `data_bytes` zeros, with a right length field.
  void put(const std::string& header, std::size_t data_bytes) {
    const std::uint64_t length = header.size();
    std::string bytes(sizeof(length), '\0');
    std::memcpy(bytes.data(), &length, sizeof(length));
    put(bytes + header + std::string(data_bytes, '\0'));
  }
  template <typename... Words>
  void expect_refused(Code code, const Words&... words) {
    EXPECT_THAT(load_safetensors(path_, tensors_), fails(code, path_, words...));
    EXPECT_EQ(weight_[0], 1) << "changed by a refused file";
    EXPECT_THAT(bias_, ElementsAre(7, 8));
  }

  TemporaryFolder folder_;
  std::string path_;
  std::vector<float> weight_;
  std::vector<float> bias_;
  std::vector<NamedTensor> tensors_;
};

TEST_F(Safetensors, ALinkKeepsPointingWhereItDid) {
  const std::string link = path_ + ".link";
  put("old");
  std::filesystem::create_symlink(path_, link);
  ASSERT_TRUE(save_safetensors(link, tensors_).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(load_safetensors(path_, tensors_).ok());
  std::filesystem::remove(link);
}

// What is no regular file is written to, not replaced by one.
TEST_F(Safetensors, ADeviceStaysADevice) {
  EXPECT_TRUE(save_safetensors("/dev/null", tensors_).ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_THAT(save_safetensors("/dev/full", tensors_),
              fails(Code::kInvalidArgument, "/dev/full", "No space left on device"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(Safetensors, APlaceIsLookedAtWithoutLeavingAnything) {
  EXPECT_TRUE(check_save_path(path_).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
  EXPECT_THAT(check_save_path(path_ + "/no/such"),
              fails(Code::kInvalidArgument, path_ + "/no/such", "No such file or directory"));
  EXPECT_THAT(check_save_path(::testing::TempDir()),
              fails(Code::kInvalidArgument, ::testing::TempDir(), "Is a directory"));
}

TEST_F(Safetensors, BytesByHand) {
  ASSERT_TRUE(save_safetensors(path_, tensors_).ok());
  const std::string bytes = contents();
  std::string header = R"({"fc.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                       R"("fc.bias":{"dtype":"F32","shape":[2],"data_offsets":[24,32]}})";
  while (header.size() % 8 != 0) header += ' ';
  ASSERT_EQ(bytes.size(), 8 + header.size() + 32);
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]), header.size());
  EXPECT_EQ(bytes.substr(1, 7), std::string(7, '\0'));
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  EXPECT_EQ(bytes.substr(8 + header.size() + 24), std::string("\0\0\xE0\x40\0\0\0\x41", 8));
}

TEST_F(Safetensors, RoundTripInAnyOrder) {
  ASSERT_TRUE(save_safetensors(path_, tensors_).ok());
  const std::string first = contents();
  const std::vector<float> weight = weight_;
  weight_.assign(6, 0);
  bias_.assign(2, 0);
  std::swap(tensors_[0], tensors_[1]);
  const Status status = load_safetensors(path_, tensors_);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(weight_, weight);
  EXPECT_THAT(bias_, ElementsAre(7, 8));
  std::swap(tensors_[0], tensors_[1]);
  ASSERT_TRUE(save_safetensors(path_, tensors_).ok());
  EXPECT_EQ(contents(), first);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
}

TEST_F(Safetensors, AnotherProgramReadsIt) {
  ASSERT_TRUE(save_safetensors(path_, tensors_).ok());
  const std::string command = std::string(GW_PYTHON) + " " + GW_READER + " " + path_ +
                              " 'fc.weight (2, 3) 1.0 -2.0 3.5 0.0 inf 9.99994610111476e-41'" +
                              " 'fc.bias (2,) 7.0 8.0'";
  EXPECT_EQ(std::system(command.c_str()), 0);  // NOLINT(cert-env33-c)
}

TEST_F(Safetensors, MetadataOfOthersIsIgnored) {
  put(R"({"__metadata__":{"format":"pt"},"fc.bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("fc.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]}})",
      32);
  const Status status = load_safetensors(path_, tensors_);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(bias_, ElementsAre(0, 0));
}

TEST_F(Safetensors, RefusesBrokenLengthsAndHeaders) {
  expect_refused(Code::kInvalidArgument, "No such file or directory");
  put("1234567");
  expect_refused(Code::kCorruptPayload, "7 bytes", "8");
  put(std::string(8, '\xff') + "{}");
  expect_refused(Code::kCorruptPayload, "header", "18446744073709551615 bytes", "2");
  put("{\"a\":", 0);
  expect_refused(Code::kCorruptPayload, "JSON");
  put("[]", 0);
  expect_refused(Code::kCorruptPayload, "JSON");
  put(std::string(100000, '['), 0);
  expect_refused(Code::kCorruptPayload, "JSON");
}

TEST_F(Safetensors, EveryTruncationIsAnError) {
  ASSERT_TRUE(save_safetensors(path_, tensors_).ok());
  const std::string whole = contents();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(whole.substr(0, length));
    expect_refused(Code::kCorruptPayload);
  }
  put(whole + "x");
  expect_refused(Code::kCorruptPayload, "33 bytes", "32");
}

TEST_F(Safetensors, RefusesWrongEntries) {
  const auto with = [&](const std::string& bias, std::size_t data) {
    put(R"({"fc.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"fc.bias":)" + bias +
            "}",
        data);
  };
  with("7", 24);
  expect_refused(Code::kCorruptPayload, "fc.bias", "object");
  with(R"({"dtype":3,"shape":[2],"data_offsets":[24,32]})", 32);
  expect_refused(Code::kCorruptPayload, "fc.bias", "dtype");
  with(R"({"dtype":"F16","shape":[2],"data_offsets":[24,28]})", 28);
  expect_refused(Code::kInvalidArgument, "fc.bias", "dtype F16", "F32");
  with(R"({"dtype":"F32","shape":[-2],"data_offsets":[24,32]})", 32);
  expect_refused(Code::kCorruptPayload, "fc.bias", "shape");
  with(R"({"dtype":"F32","shape":[2],"data_offsets":[32,24]})", 32);
  expect_refused(Code::kCorruptPayload, "fc.bias", "data_offsets");
  with(R"({"dtype":"F32","shape":[2],"data_offsets":[20,28]})", 28);
  expect_refused(Code::kCorruptPayload, "data_offsets", "20", "24");
  with(R"({"dtype":"F32","shape":[2],"data_offsets":[28,36]})", 36);
  expect_refused(Code::kCorruptPayload, "data_offsets", "28", "24");
  with(R"({"dtype":"F32","shape":[2],"data_offsets":[24,18446744073709551608]})", 8);
  expect_refused(Code::kCorruptPayload, "8 bytes", "18446744073709551608");
  with(R"({"dtype":"F32","shape":[2],"data_offsets":[24,36]})", 36);
  expect_refused(Code::kCorruptPayload, "fc.bias", "12 bytes", "8");
  with(R"({"dtype":"F32","shape":[1,2],"data_offsets":[24,32]})", 32);
  expect_refused(Code::kInvalidArgument, "fc.bias", "(1, 2)", "(2)");
}

TEST_F(Safetensors, RefusesMissingAndForeignNames) {
  const std::string weight = R"("fc.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})";
  put("{" + weight + "}", 24);
  expect_refused(Code::kInvalidArgument, "fc.bias");
  put("{" + weight + R"(,"fc.bias":{"dtype":"F32","shape":[2],"data_offsets":[24,32]},)" +
          R"("zz":{"dtype":"F32","shape":[0],"data_offsets":[32,32]}})",
      32);
  expect_refused(Code::kInvalidArgument, "zz");
}

TEST_F(Safetensors, SayWhyTheyCannotBeWritten) {
  EXPECT_THAT(
      save_safetensors("/nonexistent/x.safetensors", tensors_),
      fails(Code::kInvalidArgument, "/nonexistent/x.safetensors", "No such file or directory"));
}

}  // namespace
}  // namespace gradwire::safetensors_test
