#include "trainer/checkpoint/manifest_json.h"

#include <string_view>
#include <utility>

#include "base/text.h"
#include "trainer/checkpoint/checksum.h"
#include "trainer/checkpoint/safetensors_header.h"
#include "trainer/corrupt_payload.h"

namespace gradwire {
namespace {

using Json = ManifestJson;

constexpr std::int64_t kMostElems = std::int64_t{1} << 48;
constexpr std::int64_t kMostFiles = 1 << 20;

Status wrong(const char* key, const std::string& wanted) {
  return corrupt_payload(std::string("its ") + key + " is missing or malformed (expected " +
                         wanted + ")");
}

Json json_of(const CheckpointSlice& slice, const TensorBox& box) {
  Json json = Json::object();
  if (!box.is_whole()) {
    json["box"] = Json::array();
    for (int d = 0; d < box.grid.rank; ++d) {
      const Range& range = slice.at[static_cast<std::size_t>(d)];
      json["box"].push_back({range.begin, range.end});
    }
  }
  json["begin"] = slice.begin;
  json["end"] = slice.end;
  json["file"] = slice.file;
  json["entry"] = slice.entry;
  json["xxh3"] = checksum_text(slice.xxh3);
  return json;
}

Json json_of_place(int pp, int dp, int tp) { return {{"pp", pp}, {"dp", dp}, {"tp", tp}}; }

// Three numbers from `least` on.
Result<MeshSizes> read_place(const Json& object, std::int64_t least) {
  const JsonMembers members(object);
  GW_ASSIGN(const std::int64_t pp, members.whole("pp", least, kMostRanks));
  GW_ASSIGN(const std::int64_t dp, members.whole("dp", least, kMostRanks));
  GW_ASSIGN(const std::int64_t tp, members.whole("tp", least, kMostRanks));
  return MeshSizes{static_cast<int>(pp), static_cast<int>(dp), static_cast<int>(tp)};
}

// Version 1 says it in the name.
MeshCoordinates place_in_name(const std::string& name) {
  constexpr std::string_view kBegin = "rank-";
  if (!name.starts_with(kBegin)) return {};
  const auto rank =
      to_int(std::string_view(name).substr(kBegin.size(), name.find('.') - kBegin.size()));
  if (!rank || *rank < 0 || *rank >= kMostRanks) return {};
  return {0, static_cast<int>(*rank), 0};
}

Result<Shape> read_shape(const Json& array) {
  Shape shape;
  if (array.empty() || array.size() > shape.dim.size()) {
    return corrupt_payload(format("its shape has %zu dimensions (expected 1 to 4)", array.size()));
  }
  shape.rank = static_cast<int>(array.size());
  std::int64_t elems = 1;
  for (std::size_t i = 0; i < array.size(); ++i) {
    const bool whole = array[i].is_number_unsigned() &&
                       array[i].get<std::uint64_t>() <= static_cast<std::uint64_t>(kMostElems);
    if (!whole)
      return corrupt_payload("its shape is malformed (expected whole numbers up to 2^48)");
    shape.dim[i] = array[i].get<std::int64_t>();
    if (shape.dim[i] > 0 && elems > kMostElems / shape.dim[i]) {
      return corrupt_payload("its shape has more than 2^48 elements");
    }
    elems *= shape.dim[i];
  }
  return shape;
}

Result<TensorBox> read_box(const Json& array, const CheckpointTensor& tensor) {
  TensorBox box = TensorBox::of(tensor.shape, tensor.grid);
  if (array.size() != static_cast<std::size_t>(tensor.grid.rank)) {
    return corrupt_payload(
        format("a box of %zu ranges (expected %d)", array.size(), tensor.grid.rank));
  }
  for (std::size_t d = 0; d < array.size(); ++d) {
    const bool pair = array[d].is_array() && array[d].size() == 2 &&
                      array[d][0].is_number_unsigned() && array[d][1].is_number_unsigned();
    const Range range =
        pair ? Range{array[d][0].get<std::int64_t>(), array[d][1].get<std::int64_t>()}
             : Range{-1, -1};
    if (range.begin < 0 || range.begin > range.end || range.end > tensor.grid.dim[d]) {
      return corrupt_payload("a box's range is malformed or not within " + to_string(tensor.grid));
    }
    box.at[d] = range;
  }
  return box;
}

Result<CheckpointSlice> read_slice(const Json& object, const CheckpointTensor& tensor,
                                   std::size_t files) {
  const JsonMembers members(object);
  TensorBox box = TensorBox::of(tensor.shape, tensor.grid);
  if (object.is_object() && object.contains("box")) {
    GW_ASSIGN(const Json* ranges, members.array("box"));
    GW_ASSIGN(box, read_box(*ranges, tensor));
  }
  const std::int64_t elems = box.elems();
  CheckpointSlice slice;
  slice.at = box.at;
  GW_ASSIGN(slice.begin, members.whole("begin", 0, elems));
  GW_ASSIGN(slice.end, members.whole("end", slice.begin, elems));
  GW_ASSIGN(const std::int64_t file, members.whole("file", 0, kMostFiles));
  if (static_cast<std::size_t>(file) >= files) {
    return corrupt_payload(format("a slice is in file %lld (expected below %zu)",
                                  static_cast<long long>(file), files));
  }
  slice.file = static_cast<int>(file);
  GW_ASSIGN(slice.entry, members.text("entry"));
  GW_ASSIGN(slice.xxh3, members.checksum("xxh3"));
  return slice;
}

}  // namespace

std::string print_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

const Json* JsonMembers::find(const char* key) const {
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

Result<std::int64_t> JsonMembers::whole(const char* key, std::int64_t least,
                                        std::int64_t most) const {
  const Json* found = find(key);
  if (found != nullptr && found->is_number_unsigned()) {
    const auto value = found->get<std::uint64_t>();
    if (value <= static_cast<std::uint64_t>(most) && static_cast<std::int64_t>(value) >= least) {
      return static_cast<std::int64_t>(value);
    }
  }
  return wrong(key, format("a whole number from %lld to %lld", static_cast<long long>(least),
                           static_cast<long long>(most)));
}

Result<std::uint64_t> JsonMembers::word(const char* key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_number_unsigned()) return wrong(key, "a whole number");
  return found->get<std::uint64_t>();
}

Result<double> JsonMembers::number(const char* key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_number()) return wrong(key, "a number");
  return found->get<double>();
}

Result<std::string> JsonMembers::text(const char* key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_string()) return wrong(key, "a text");
  return found->get<std::string>();
}

Result<std::uint64_t> JsonMembers::checksum(const char* key) const {
  const Json* found = find(key);
  if (found != nullptr && found->is_string()) {
    const auto value = checksum_of_text(found->get_ref<const std::string&>());
    if (value) return *value;
  }
  return wrong(key, "16 hexadecimal digits");
}

Result<const Json*> JsonMembers::object(const char* key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_object()) return wrong(key, "an object");
  return found;
}

Result<const Json*> JsonMembers::array(const char* key) const {
  const Json* found = find(key);
  if (found == nullptr || !found->is_array()) return wrong(key, "an array");
  return found;
}

Json json_of(const MeshSizes& sizes) { return json_of_place(sizes.pp, sizes.dp, sizes.tp); }

Result<MeshSizes> read_mesh_json(const Json& object) {
  GW_ASSIGN(const MeshSizes sizes, read_place(object, 1));
  if (sizes.pp <= kMostRanks / sizes.dp && sizes.ranks() <= kMostRanks) return sizes;
  return corrupt_payload(
      "a mesh " + to_string(sizes) +
      format(" (expected at most %lld ranks)", static_cast<long long>(kMostRanks)));
}

Json json_of(const CheckpointFile& file) {
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"header_xxh3", checksum_text(file.header_xxh3)},
          {"at", json_of_place(file.at.pp, file.at.dp, file.at.tp)}};
}

Result<CheckpointFile> read_file_json(const Json& object, int version) {
  const JsonMembers members(object);
  CheckpointFile file;
  GW_ASSIGN(file.name, members.text("name"));
  GW_ASSIGN(file.bytes, members.word("bytes"));
  GW_ASSIGN(file.header_xxh3, members.checksum("header_xxh3"));
  const bool plain = !file.name.empty() && file.name[0] != '.' &&
                     file.name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
  if (!plain) {
    return corrupt_payload("file '" + file.name + "' (expected the name of a file in its folder)");
  }
  file.at = place_in_name(file.name);
  if (version > 1) {
    GW_ASSIGN(const Json* at, members.object("at"));
    GW_ASSIGN(const MeshSizes place, read_place(*at, 0));
    file.at = {place.pp, place.dp, place.tp};
  }
  return file;
}

Json json_of(const CheckpointTensor& tensor) {
  Json json = {{"dtype", safetensors_name(tensor.dtype)},
               {"shape", safetensors_shape(tensor.shape)}};
  if (tensor.grid != tensor.shape) json["grid"] = safetensors_shape(tensor.grid);
  json["slices"] = Json::array();
  for (const CheckpointSlice& slice : tensor.slices) {
    json["slices"].push_back(json_of(slice, tensor.box_of(slice)));
  }
  return json;
}

Result<CheckpointTensor> read_tensor_json(const Json& object, std::size_t files) {
  const JsonMembers members(object);
  CheckpointTensor tensor;
  GW_ASSIGN(const std::string type, members.text("dtype"));
  const auto dtype = dtype_of_safetensors(type);
  if (!dtype)
    return corrupt_payload("dtype '" + type + "' (expected F64, F32, F16, BF16, I64, I32, I8, U8)");
  tensor.dtype = *dtype;
  GW_ASSIGN(const Json* shape, members.array("shape"));
  GW_ASSIGN(tensor.shape, read_shape(*shape));
  tensor.grid = tensor.shape;
  if (object.contains("grid")) {
    GW_ASSIGN(const Json* grid, members.array("grid"));
    GW_ASSIGN(tensor.grid, read_shape(*grid));
    if (tensor.grid.elems() != tensor.shape.elems()) {
      return corrupt_payload("its grid " + to_string(tensor.grid) +
                             " has other elements than its "
                             "shape " +
                             to_string(tensor.shape));
    }
  }
  GW_ASSIGN(const Json* slices, members.array("slices"));
  for (const Json& item : *slices) {
    GW_ASSIGN(CheckpointSlice slice, read_slice(item, tensor, files));
    tensor.slices.push_back(std::move(slice));
  }
  return tensor;
}

}  // namespace gradwire
