// A checkpoint's manifest and a rank's list of parts, as somebody's file or message.
#include <string>
#include <string_view>

#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/checkpoint/checksum.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/manifest_json.h"
#include "trainer/checkpoint/part_list.h"
#include "trainer/checkpoint/safetensors_header.h"

namespace gradwire::fuzz {
namespace {

CheckpointManifest example() {
  CheckpointManifest manifest;
  manifest.settings = {{"compressor", "topk:ratio=0.01,ef=ef14"}};
  manifest.written_by = "gradwire";
  manifest.files = {{"rank-0.safetensors", 100, 1}, {"rank-1.safetensors", 200, 2}};
  manifest.position.mesh.tp = 2;
  manifest.files[1].at.tp = 1;
  const Shape none = Shape::vector(0);
  const TensorBox w = TensorBox::of(Shape::matrix(2, 3));
  manifest.tensors["w"] = {
      DType::kF32,
      w.whole,
      w.grid,
      {{w.at, 0, 4, 0, "w[0:4]", 0x0123456789abcdef}, {w.at, 4, 6, 1, "w[4:6]", 7}}};
  manifest.tensors["none"] = {
      DType::kU8, none, none, {{TensorBox::of(none).at, 0, 0, 1, "none", 8}}};
  const TensorBox qkv = TensorBox::of(Shape::matrix(6, 3), {{3, 2, 3, 1}, 3});
  manifest.tensors["qkv"] = {DType::kBF16,
                             qkv.whole,
                             qkv.grid,
                             {{qkv.cut(1, {0, 1}).at, 0, 9, 0, "qkv[0:3, 0:1, 0:3]", 1},
                              {qkv.cut(1, {1, 2}).at, 0, 9, 1, "qkv[0:3, 1:2, 0:3]", 2}}};
  return manifest;
}

CheckpointTensor facts(const TensorBox& box, Range elems, const std::string& entry) {
  return {DType::kF32, box.whole, box.grid, {{box.at, elems.begin, elems.end, 0, entry, 1}}};
}

PartList parts() {
  return {{"rank-0.safetensors", 100, 1},
          {{"w", facts(TensorBox::of(Shape::vector(4)), {0, 4}, "w")},
           {"v", facts(TensorBox::of(Shape::matrix(2, 2)), {1, 3}, "v[1:3]")},
           {"q", facts(TensorBox::of(Shape::matrix(2, 2)).cut(1, {1, 2}), {0, 2}, "q[0:2, 1:2]")}}};
}

// What was read keeps its promises and is written as it was read.
void check_manifest(std::string_view text) {
  const auto manifest = read_manifest(text);
  if (!manifest.has_value()) return;
  for (const auto& [name, tensor] : manifest.value().tensors) {
    GW_CHECK(check_slices(name, tensor).ok());
    for (const CheckpointSlice& slice : tensor.slices) {
      GW_CHECK(slice.file >= 0);
      GW_CHECK(static_cast<std::size_t>(slice.file) < manifest.value().files.size());
    }
  }
  for (const CheckpointFile& file : manifest.value().files) {
    GW_CHECK(file.name.find('/') == std::string::npos && file.name != "..");
  }
  const std::string again = write_manifest(manifest.value());
  const auto reread = read_manifest(again);
  GW_CHECK(reread.has_value());
  GW_CHECK(write_manifest(reread.value()) == again);
}

void check_parts(std::string_view text) {
  const auto list = read_part_list(text);
  if (!list.has_value()) return;
  CheckpointManifest manifest = example();
  if (!add_file(manifest, list.value()).ok()) return;
  for (const auto& [name, tensor] : manifest.tensors) (void)check_slices(name, tensor);
}

Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

}  // namespace

std::vector<Bytes> seeds() {
  const std::string manifest = write_manifest(example());
  const auto json = ManifestJson::parse(manifest);
  return {bytes_of(manifest), bytes_of(print_json(json["checkpoint"], -1)),
          bytes_of(write_part_list(parts())),
          bytes_of(R"({"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}})"),
          bytes_of(R"([[[[[[[[]]]]]]]])")};
}

}  // namespace gradwire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gradwire;
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::check_manifest(text);
  fuzz::check_parts(text);
  (void)read_safetensors_header(text, 12);
  // With a checksum that fits, so that what it guards is reached.
  const auto json = ManifestJson::parse(text, nullptr, false);
  if (json.is_object()) {
    fuzz::check_manifest("{\"checkpoint\":" + print_json(json, -1) + ",\"xxh3\":\"" +
                         checksum_text(checksum_of(print_json(json, -1))) + "\"}");
  }
  return 0;
}
