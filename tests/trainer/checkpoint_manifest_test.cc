// What a checkpoint's manifest says, and which ones are refused.
#include "trainer/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/fails.h"
#include "trainer/checkpoint/checksum.h"

namespace gradwire::checkpoint_manifest_test {
namespace {

using Json = nlohmann::ordered_json;

CheckpointManifest example() {
  CheckpointManifest manifest;
  manifest.position = {.step = 20,
                       .consumed_samples = 960,
                       .seed = 18446744073709551615U,
                       .mesh = {.pp = 1, .dp = 2, .tp = 3},
                       .learning_rate = 0.1,
                       .loss_scale = 65536};
  manifest.settings = {{"compressor", "topk:ratio=0.01,ef=ef14"}, {"model", "mlp"}};
  manifest.written_by = "gradwire 9.9";
  manifest.files = {{"rank-0.safetensors", 100, 1},
                    {"rank-1.safetensors", 200, 0xabc, {.pp = 0, .dp = 1, .tp = 2}}};
  const auto whole = [](const Shape& shape) { return TensorBox::of(shape).at; };
  const Shape matrix = Shape::matrix(2, 3);
  manifest.tensors["w"] = {DType::kF32,
                           matrix,
                           matrix,
                           {{whole(matrix), 0, 4, 0, "w[0:4]", 0x0123456789abcdef},
                            {whole(matrix), 4, 6, 1, "w[4:6]", 7}}};
  manifest.tensors["none"] = {DType::kU8,
                              Shape::vector(0),
                              Shape::vector(0),
                              {{whole(Shape::vector(0)), 0, 0, 1, "none", 8}}};
  // Heads of queries, keys and values: the second rank's part is in two slices.
  const TensorBox heads = TensorBox::of(Shape::matrix(12, 2), {{3, 4, 2, 1}, 3});
  manifest.tensors["qkv"] = {
      DType::kF32,
      heads.whole,
      heads.grid,
      {{heads.cut(1, {0, 1}).at, 0, 6, 0, "qkv[0:3, 0:1, 0:2]", 9},
       {heads.cut(1, {1, 4}).at, 0, 10, 1, "qkv[0:3, 1:4, 0:2][0:10]", 10},
       {heads.cut(1, {1, 4}).at, 10, 18, 1, "qkv[0:3, 1:4, 0:2][10:18]", 11}}};
  return manifest;
}

// The checkpoint of example() with a right checksum, after `change`.
template <typename Change>
std::string changed(const Change& change) {
  Json json = Json::parse(write_manifest(example()));
  change(json["checkpoint"]);
  json["xxh3"] = checksum_text(checksum_of(json["checkpoint"].dump()));
  return json.dump();
}

TEST(Manifest, SaysWhatItWasToldTo) {
  const auto read = read_manifest(write_manifest(example()));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  const CheckpointManifest& m = read.value();
  EXPECT_EQ(m.position.step, 20);
  EXPECT_EQ(m.position.consumed_samples, 960);
  EXPECT_EQ(m.position.seed, 18446744073709551615U);
  EXPECT_EQ(m.version, 2);
  EXPECT_EQ(m.position.mesh, (MeshSizes{.pp = 1, .dp = 2, .tp = 3}));
  EXPECT_EQ(m.position.learning_rate, 0.1);
  EXPECT_EQ(m.position.loss_scale, 65536);
  EXPECT_EQ(m.settings, example().settings);
  EXPECT_EQ(m.written_by, "gradwire 9.9");
  ASSERT_EQ(m.files.size(), 2U);
  EXPECT_EQ(m.files[1].name, "rank-1.safetensors");
  EXPECT_EQ(m.files[1].bytes, 200U);
  EXPECT_EQ(m.files[1].header_xxh3, 0xabcU);
  EXPECT_EQ(m.files[1].at, (MeshCoordinates{.pp = 0, .dp = 1, .tp = 2}));
  ASSERT_EQ(m.tensors.size(), 3U);
  const CheckpointTensor& w = m.tensors.at("w");
  EXPECT_EQ(w.dtype, DType::kF32);
  EXPECT_EQ(w.shape, Shape::matrix(2, 3));
  ASSERT_EQ(w.slices.size(), 2U);
  EXPECT_EQ(w.slices[0].entry, "w[0:4]");
  EXPECT_EQ(w.slices[0].xxh3, 0x0123456789abcdefU);
  EXPECT_EQ(w.slices[1].begin, 4);
  EXPECT_EQ(w.slices[1].end, 6);
  EXPECT_EQ(w.slices[1].file, 1);
  const CheckpointTensor& qkv = m.tensors.at("qkv");
  EXPECT_EQ(to_string(qkv.box_of(qkv.slices[2])), "(12, 2) as (3, 4, 2)[0:3, 1:4, 0:2]");
  EXPECT_EQ(qkv.slices[2].begin, 10);
}

// What the first version said: its ranks are replicas, and the names of their files say which.
TEST(Manifest, VersionOneIsRead) {
  const auto read = read_manifest(changed([](Json& c) {
    c["version"] = 1;
    c.erase("mesh");
    c["ranks"] = 5;
    for (Json& file : c["files"]) file.erase("at");
    c["tensors"].erase("qkv");
  }));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read.value().version, 1);
  EXPECT_EQ(read.value().position.mesh, (MeshSizes{.pp = 1, .dp = 5, .tp = 1}));
  EXPECT_EQ(read.value().files[1].at, (MeshCoordinates{.pp = 0, .dp = 1, .tp = 0}));
  EXPECT_EQ(read.value().tensors.at("w").slices[1].begin, 4);
}

TEST(Manifest, IsJsonThatPeopleRead) {
  const Json json = Json::parse(write_manifest(example()));
  EXPECT_EQ(json["checkpoint"]["tensors"]["w"]["slices"][0]["xxh3"], "0123456789abcdef");
  EXPECT_EQ(json["checkpoint"]["tensors"]["w"]["shape"], Json::parse("[2,3]"));
  EXPECT_EQ(json["checkpoint"]["tensors"]["w"]["dtype"], "F32");
  EXPECT_EQ(json["checkpoint"]["seed"], 18446744073709551615U);
}

TEST(Manifest, ABlankIsNoDamage) {
  EXPECT_TRUE(read_manifest(Json::parse(write_manifest(example())).dump(3)).has_value());
}

TEST(Manifest, TextThatIsNoUtf8DoesNotLoseACheckpoint) {
  CheckpointManifest manifest = example();
  manifest.settings["data-dir"] = "caf\xe9";
  const auto read = read_manifest(write_manifest(manifest));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read.value().settings.at("data-dir"), "caf\xef\xbf\xbd");
}

TEST(Manifest, EveryTruncationAndEveryChangedDigitIsNoticed) {
  const std::string text = write_manifest(example());
  for (std::size_t size = 0; size + 2 < text.size(); ++size) {
    ASSERT_FALSE(read_manifest(text.substr(0, size)).has_value()) << size;
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string other = text;
    other[at] = static_cast<char>(other[at] ^ 1);
    const auto read = read_manifest(other);
    const bool blank = text[at] == ' ' || text[at] == '\n';
    if (!blank) {
      EXPECT_FALSE(read.has_value()) << "changed at " << at;
    }
  }
}

template <typename... Words>
void expect_refused(const std::string& text, Code code, const Words&... words) {
  const auto read = read_manifest(text);
  ASSERT_FALSE(read.has_value()) << text;
  EXPECT_THAT(read.error(), fails(code, words...));
}

TEST(Manifest, WhatItContradictsItselfInIsNamed) {
  expect_refused("[]", Code::kCorruptPayload, "JSON");
  expect_refused(R"({"checkpoint": {}})", Code::kCorruptPayload, "xxh3");
  expect_refused(changed([](Json& c) { c["version"] = 3; }), Code::kUnsupported, "version 3",
                 "1 and 2");
  const auto refuse = [](const auto& change, const auto&... words) {
    expect_refused(changed(change), Code::kCorruptPayload, words...);
  };
  refuse([](Json& c) { c["format"] = "other"; }, "format", "other");
  refuse([](Json& c) { c["step"] = -1; }, "step");
  refuse([](Json& c) { c.erase("consumed_samples"); }, "consumed_samples");
  refuse([](Json& c) { c.erase("mesh"); }, "mesh");
  refuse([](Json& c) { c["mesh"]["dp"] = 0; }, "dp", "1");
  refuse([](Json& c) { c["mesh"] = {{"pp", 1024}, {"dp", 1024}, {"tp", 2}}; }, "1048576");
  refuse([](Json& c) { c["files"][1].erase("at"); }, "at");
  refuse([](Json& c) { c["files"][1]["at"]["tp"] = 3; }, "rank-1.safetensors", "tp=3", "tp=3");
  refuse([](Json& c) { c["learning_rate"] = "x"; }, "learning_rate");
  refuse([](Json& c) { c["settings"]["model"] = 3; }, "setting", "model");
  refuse([](Json& c) { c["files"] = 3; }, "files");
  for (const char* name : {"../x", "", ".", "..", "/etc/passwd", "a/b", ".hidden", "a\\b"}) {
    refuse([&](Json& c) { c["files"][0]["name"] = name; }, "name", "file");
  }
}

TEST(Manifest, SlicesThatDoNotCoverTheirTensorAreNamed) {
  const auto refuse = [](const auto& change, const auto&... words) {
    expect_refused(changed([&](Json& c) { change(c["tensors"]["w"]); }), Code::kCorruptPayload, "w",
                   words...);
  };
  refuse([](Json& w) { w["dtype"] = "F8"; }, "dtype", "F8");
  refuse([](Json& w) { w["shape"] = Json::array(); }, "shape", "0 dimensions");
  refuse([](Json& w) { w["shape"] = {1, 1, 1, 2, 3}; }, "shape", "5 dimensions");
  refuse([](Json& w) { w["shape"] = {2, -3}; }, "shape");
  refuse([](Json& w) { w["shape"] = {1 << 30, 1 << 30}; }, "shape", "2^48");
  refuse([](Json& w) { w["shape"] = {7}; }, "slices", "6 elements", "7");
  refuse([](Json& w) { w["slices"][1]["begin"] = 5; }, "slice", "5", "4");
  refuse([](Json& w) { w["slices"][1]["begin"] = 3; }, "slice", "3", "4");
  refuse([](Json& w) { w["slices"][1]["end"] = 7; }, "end");
  refuse([](Json& w) { w["slices"][0]["end"] = -1; }, "end");
  refuse([](Json& w) { w["slices"][1]["file"] = 2; }, "slice", "file 2", "2");
  refuse([](Json& w) { w["slices"][1]["entry"] = 2; }, "entry");
  refuse([](Json& w) { w["slices"][1]["xxh3"] = "0123"; }, "xxh3");
  refuse([](Json& w) { w["slices"] = Json::array(); }, "slices", "0 elements");
  refuse([](Json& w) { w = 3; }, "dtype");
}

TEST(Manifest, BoxesThatDoNotCoverTheirTensorAreNamed) {
  const auto refuse = [](const auto& change, const auto&... words) {
    expect_refused(changed([&](Json& c) { change(c["tensors"]["qkv"]); }), Code::kCorruptPayload,
                   "qkv", words...);
  };
  refuse([](Json& t) { t["grid"] = {3, 4, 3}; }, "grid", "(3, 4, 3)", "(12, 2)");
  refuse([](Json& t) { t["grid"] = {3, 8}; }, "ranges", "3", "2");
  refuse([](Json& t) { t["slices"][0]["box"][1] = {0, 5}; }, "range", "(3, 4, 2)");
  refuse([](Json& t) { t["slices"][0]["box"][1] = {1, 0}; }, "range");
  refuse([](Json& t) { t["slices"][0]["box"][1] = 1; }, "range");
  refuse([](Json& t) { t["slices"][0]["box"] = 1; }, "box");
  refuse([](Json& t) { t["slices"][2]["end"] = 17; }, "[0:3, 1:4, 0:2]", "17 elements", "18");
  refuse([](Json& t) { t["slices"][2]["end"] = 19; }, "end", "18");
  refuse([](Json& t) { t["slices"].erase(0); }, "18", "all elements");
  refuse([](Json& t) { std::swap(t["slices"][0], t["slices"][2]); }, "begins at 10");
  refuse(
      [](Json& t) {
        const Json last = t["slices"][0];
        t["slices"].erase(0);
        t["slices"].push_back(last);
      },
      "ascend");
  refuse(
      [](Json& t) {
        t["slices"].push_back(t["slices"][0]);
        t["slices"][3]["box"] = {{2, 3}, {3, 4}, {0, 2}};
        t["slices"][3]["end"] = 2;
      },
      "2:3, 3:4, 0:2", "without its elements");
}

TEST(Checksum, IsXxh3AndItsTextIsHexadecimal) {
  // XXH3_64bits of no bytes and of "abc", as the reference implementation's xxhsum prints them.
  EXPECT_EQ(checksum_text(checksum_of(std::string_view())), "2d06800538d394c2");
  EXPECT_EQ(checksum_text(checksum_of(std::string_view("abc"))), "78af5f94892f3950");
  EXPECT_EQ(checksum_of_text("00000000000000ff"), 255U);
  for (const char* bad : {"", "ff", "00000000000000FF", "00000000000000f ", "-0000000000000ff"}) {
    EXPECT_FALSE(checksum_of_text(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace gradwire::checkpoint_manifest_test
