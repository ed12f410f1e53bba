#include "trainer/checkpoint/part_list.h"

#include <algorithm>
#include <utility>

#include "trainer/checkpoint/manifest_json.h"

namespace gradwire {
namespace {

using Json = ManifestJson;

void insert(CheckpointTensor& tensor, CheckpointSlice slice) {
  const bool empty = slice.begin == slice.end;
  if (empty && !tensor.slices.empty()) return;
  std::erase_if(tensor.slices, [](const CheckpointSlice& s) { return s.begin == s.end; });
  const auto after =
      std::upper_bound(tensor.slices.begin(), tensor.slices.end(), slice,
                       [](const CheckpointSlice& a, const CheckpointSlice& b) {
                         return a.at == b.at ? a.begin < b.begin : boxes_ascend(a.at, b.at);
                       });
  tensor.slices.insert(after, std::move(slice));
}

}  // namespace

std::string write_part_list(const PartList& list) {
  Json json = {{"file", json_of(list.file)}, {"parts", Json::array()}};
  for (const WrittenPart& part : list.parts) {
    json["parts"].push_back({{"tensor", part.tensor}, {"facts", json_of(part.facts)}});
  }
  return print_json(json, -1);
}

Result<PartList> read_part_list(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  const JsonMembers members(json);
  PartList list;
  GW_ASSIGN(const Json* file, members.object("file"));
  GW_ASSIGN(list.file, read_file_json(*file, kCheckpointVersion));
  GW_ASSIGN(const Json* parts, members.array("parts"));
  for (const Json& item : *parts) {
    const JsonMembers of_part(item);
    WrittenPart part;
    GW_ASSIGN(part.tensor, of_part.text("tensor"));
    GW_ASSIGN(const Json* facts, of_part.object("facts"));
    GW_ASSIGN(part.facts, read_tensor_json(*facts, 1));
    if (part.facts.slices.size() != 1) {
      return Status(Code::kCorruptPayload, "part of '" + part.tensor + "' (expected one slice)");
    }
    list.parts.push_back(std::move(part));
  }
  return list;
}

Status add_file(CheckpointManifest& manifest, const PartList& list) {
  const int index = static_cast<int>(manifest.files.size());
  manifest.files.push_back(list.file);
  for (const WrittenPart& part : list.parts) {
    const auto [at, fresh] = manifest.tensors.try_emplace(part.tensor);
    CheckpointTensor& tensor = at->second;
    if (fresh) tensor = {part.facts.dtype, part.facts.shape, part.facts.grid, {}};
    if (tensor.dtype != part.facts.dtype || tensor.shape != part.facts.shape ||
        tensor.grid != part.facts.grid) {
      const auto text = [](const CheckpointTensor& facts) {
        return to_string(TensorBox::of(facts.shape, facts.grid)) + " of " +
               std::string(to_string(facts.dtype));
      };
      return {Code::kRankMismatch, list.file.name + ": tensor '" + part.tensor + "' is " +
                                       text(part.facts) + " (expected " + text(tensor) +
                                       ", as another rank has it)"};
    }
    CheckpointSlice slice = part.facts.slices[0];
    slice.file = index;
    insert(tensor, std::move(slice));
  }
  return {};
}

}  // namespace gradwire
