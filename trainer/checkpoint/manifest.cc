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
constexpr std::int64_t kMostRanks = 1 << 20;

Json json_of_checkpoint(const CheckpointManifest& manifest) {
  const CheckpointPosition& at = manifest.position;
  Json json = {{"format", kFormat},
               {"version", kCheckpointVersion},
               {"written_by", manifest.written_by},
               {"step", at.step},
               {"consumed_samples", at.consumed_samples},
               {"seed", at.seed},
               {"ranks", at.ranks},
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

Result<CheckpointPosition> read_position(const JsonMembers& members) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CheckpointPosition at;
  GW_ASSIGN(at.step, members.whole("step", 0, kMost));
  GW_ASSIGN(at.consumed_samples, members.whole("consumed_samples", 0, kMost));
  GW_ASSIGN(at.seed, members.word("seed"));
  GW_ASSIGN(const std::int64_t ranks, members.whole("ranks", 1, kMostRanks));
  at.ranks = static_cast<int>(ranks);
  GW_ASSIGN(at.learning_rate, members.number("learning_rate"));
  GW_ASSIGN(at.loss_scale, members.number("loss_scale"));
  return at;
}

Status read_version(const JsonMembers& members) {
  GW_ASSIGN(const std::string kind, members.text("format"));
  if (kind != kFormat) {
    return corrupt_payload("format '" + kind + "' (expected '" + std::string(kFormat) + "')");
  }
  GW_ASSIGN(const std::uint64_t version, members.word("version"));
  if (version == kCheckpointVersion) return {};
  return {Code::kUnsupported, format("version %llu of the format; this program reads version %d",
                                     static_cast<unsigned long long>(version), kCheckpointVersion)};
}

Result<CheckpointManifest> read_checkpoint(const Json& object) {
  const JsonMembers members(object);
  GW_TRY(read_version(members));
  CheckpointManifest manifest;
  GW_ASSIGN(manifest.position, read_position(members));
  GW_ASSIGN(manifest.written_by, members.text("written_by"));
  GW_ASSIGN(const Json* settings, members.object("settings"));
  for (const auto& [name, value] : settings->items()) {
    if (!value.is_string()) return corrupt_payload("setting '" + name + "' is no text");
    manifest.settings[name] = value.get<std::string>();
  }
  GW_ASSIGN(const Json* files, members.array("files"));
  for (const Json& item : *files) {
    GW_ASSIGN(CheckpointFile file, read_file_json(item));
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

Status check_slices(const std::string& name, const CheckpointTensor& tensor) {
  const std::string context = "tensor '" + name + "'";
  std::int64_t covered = 0;
  for (const CheckpointSlice& slice : tensor.slices) {
    if (slice.begin != covered) {
      return corrupt_payload(format("%s: a slice begins at %lld (expected %lld)", context.c_str(),
                                    static_cast<long long>(slice.begin),
                                    static_cast<long long>(covered)));
    }
    covered = slice.end;
  }
  if (covered == tensor.shape.elems()) return {};
  return corrupt_payload(format(
      "%s: its slices hold %lld elements (expected %lld, as its shape says)", context.c_str(),
      static_cast<long long>(covered), static_cast<long long>(tensor.shape.elems())));
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
