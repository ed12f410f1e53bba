#include "trainer/checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.h"
#include "trainer/checkpoint/checksum.h"
#include "trainer/checkpoint/manifest_json.h"
#include "trainer/corrupt_payload.h"

namespace gradwire {
namespace {

using Json = ManifestJson;

constexpr std::string_view kFormat = "gradwire checkpoint";

Json json_of_checkpoint(const CheckpointManifest& manifest) {
  const CheckpointPosition& at = manifest.position;
  Json json = {{"format", kFormat},
               {"version", kCheckpointVersion},
               {"written_by", manifest.written_by},
               {"step", at.step},
               {"consumed_samples", at.consumed_samples},
               {"seed", at.seed},
               {"mesh", json_of(at.mesh)},
               {"learning_rate", at.learning_rate},
               {"loss_scale", at.loss_scale},
               {"settings", Json::object()},
               {"files", Json::array()},
               {"tensors", Json::object()}};
  for (const auto& [name, text] : manifest.settings) json["settings"][name] = text;
  for (const CheckpointFile& file : manifest.files) json["files"].push_back(json_of(file));
  for (const auto& [name, tensor] : manifest.tensors) json["tensors"][name] = json_of(tensor);
  return json;
}

// Version 1 knew replicas alone.
Result<MeshSizes> read_mesh(const JsonMembers& members, int version) {
  if (version > 1) {
    GW_ASSIGN(const Json* mesh, members.object("mesh"));
    return read_mesh_json(*mesh);
  }
  GW_ASSIGN(const std::int64_t ranks, members.whole("ranks", 1, kMostRanks));
  return MeshSizes{1, static_cast<int>(ranks), 1};
}

Result<CheckpointPosition> read_position(const JsonMembers& members, int version) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CheckpointPosition at;
  GW_ASSIGN(at.step, members.whole("step", 0, kMost));
  GW_ASSIGN(at.consumed_samples, members.whole("consumed_samples", 0, kMost));
  GW_ASSIGN(at.seed, members.word("seed"));
  GW_ASSIGN(at.mesh, read_mesh(members, version));
  GW_ASSIGN(at.learning_rate, members.number("learning_rate"));
  GW_ASSIGN(at.loss_scale, members.number("loss_scale"));
  return at;
}

Result<int> read_version(const JsonMembers& members) {
  GW_ASSIGN(const std::string kind, members.text("format"));
  if (kind != kFormat) {
    return corrupt_payload("format '" + kind + "' (expected '" + std::string(kFormat) + "')");
  }
  GW_ASSIGN(const std::uint64_t version, members.word("version"));
  if (version == 1 || version == kCheckpointVersion) return static_cast<int>(version);
  return Status(Code::kUnsupported,
                format("version %llu of the format; this program reads versions 1 and %d",
                       static_cast<unsigned long long>(version), kCheckpointVersion));
}

Status check_place(const CheckpointFile& file, const MeshSizes& mesh) {
  const MeshCoordinates& at = file.at;
  if (at.pp < mesh.pp && at.dp < mesh.dp && at.tp < mesh.tp) return {};
  return corrupt_payload(format("file '%s': its place is pp=%d, dp=%d, tp=%d (expected one of %s)",
                                file.name.c_str(), at.pp, at.dp, at.tp, to_string(mesh).c_str()));
}

Result<CheckpointManifest> read_checkpoint(const Json& object) {
  const JsonMembers members(object);
  CheckpointManifest manifest;
  GW_ASSIGN(manifest.version, read_version(members));
  GW_ASSIGN(manifest.position, read_position(members, manifest.version));
  GW_ASSIGN(manifest.written_by, members.text("written_by"));
  GW_ASSIGN(const Json* settings, members.object("settings"));
  for (const auto& [name, value] : settings->items()) {
    if (!value.is_string()) return corrupt_payload("setting '" + name + "' is no text");
    manifest.settings[name] = value.get<std::string>();
  }
  GW_ASSIGN(const Json* files, members.array("files"));
  for (const Json& item : *files) {
    GW_ASSIGN(CheckpointFile file, read_file_json(item, manifest.version));
    if (manifest.version > 1) GW_TRY(check_place(file, manifest.position.mesh));
    manifest.files.push_back(std::move(file));
  }
  GW_ASSIGN(const Json* tensors, members.object("tensors"));
  for (const auto& [name, value] : tensors->items()) {
    auto tensor = read_tensor_json(value, manifest.files.size());
    if (!tensor.has_value()) return tensor.error().with_context("tensor '" + name + "'");
    GW_TRY(check_slices(name, tensor.value()));
    manifest.tensors.emplace(name, std::move(tensor).value());
  }
  return manifest;
}

}  // namespace

bool boxes_ascend(const std::array<Range, 4>& a, const std::array<Range, 4>& b) {
  return std::ranges::lexicographical_compare(a, b, {}, &Range::begin, &Range::begin);
}

Status check_slices(const std::string& name, const CheckpointTensor& tensor) {
  const std::string context = "tensor '" + name + "'";
  std::vector<TensorBox> boxes;
  std::int64_t covered = 0;
  const auto check_covered = [&]() -> Status {
    const std::int64_t elems = boxes.empty() ? tensor.shape.elems() : boxes.back().elems();
    if (covered == elems) return {};
    const bool whole = boxes.empty() || boxes.back().is_whole();
    return corrupt_payload(
        format("%s: its slices%s hold %lld elements (expected %lld, as its shape says)",
               context.c_str(), whole ? "" : (" of " + to_string(boxes.back())).c_str(),
               static_cast<long long>(covered), static_cast<long long>(elems)));
  };
  for (const CheckpointSlice& slice : tensor.slices) {
    const TensorBox box = tensor.box_of(slice);
    if (boxes.empty() || box != boxes.back()) {
      if (!boxes.empty()) GW_TRY(check_covered());
      boxes.push_back(box);
      covered = 0;
    }
    if (slice.begin != covered) {
      return corrupt_payload(format("%s: a slice begins at %lld (expected %lld)", context.c_str(),
                                    static_cast<long long>(slice.begin),
                                    static_cast<long long>(covered)));
    }
    covered = slice.end;
  }
  GW_TRY(check_covered());
  // A box that comes again is one too many: all of its elements were there.
  const auto order = [](const TensorBox& a, const TensorBox& b) {
    return boxes_ascend(a.at, b.at);
  };
  if (std::adjacent_find(boxes.begin(), boxes.end(), [&](const TensorBox& a, const TensorBox& b) {
        return !order(a, b);
      }) != boxes.end()) {
    return corrupt_payload(context + ": its boxes do not ascend");
  }
  const Status once = check_boxes(boxes);
  return once.ok() ? Status() : corrupt_payload(context + ": " + std::string(once.message()));
}

std::string write_manifest(const CheckpointManifest& manifest) {
  const Json checkpoint = json_of_checkpoint(manifest);
  const std::uint64_t xxh3 = checksum_of(print_json(checkpoint, -1));
  return "{\"checkpoint\": " + print_json(checkpoint, 1) + ",\n\"xxh3\": \"" + checksum_text(xxh3) +
         "\"}\n";
}

Result<CheckpointManifest> read_manifest(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("checkpoint")) {
    return corrupt_payload("not a JSON object with a member \"checkpoint\"");
  }
  GW_ASSIGN(const std::uint64_t wanted, JsonMembers(json).checksum("xxh3"));
  const std::uint64_t seen = checksum_of(print_json(json["checkpoint"], -1));
  if (seen != wanted) {
    return corrupt_payload("damaged: checksum " + checksum_text(seen) + " (expected " +
                           checksum_text(wanted) + ")");
  }
  return read_checkpoint(json["checkpoint"]);
}

}  // namespace gradwire
