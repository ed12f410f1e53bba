// The parts that manifests and lists of parts are made of, as JSON. Readers take any bytes and name
// what is missing or malformed (kCorruptPayload).
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "gradwire/status.h"
#include "trainer/checkpoint/manifest.h"

namespace gradwire {

using ManifestJson = nlohmann::ordered_json;

// Bytes that are no UTF-8 (a path in a setting) are replaced: a checkpoint is not lost over them.
std::string print_json(const ManifestJson& value, int indent);

// An object's members by name.
class JsonMembers {
 public:
  // Borrowed. Anything but an object has no members.
  explicit JsonMembers(const ManifestJson& object) : object_(object) {}

  Result<std::int64_t> whole(const char* key, std::int64_t least, std::int64_t most) const;
  Result<std::uint64_t> word(const char* key) const;
  Result<double> number(const char* key) const;
  Result<std::string> text(const char* key) const;
  Result<std::uint64_t> checksum(const char* key) const;
  // Of the object's life.
  Result<const ManifestJson*> object(const char* key) const;
  Result<const ManifestJson*> array(const char* key) const;

 private:
  const ManifestJson* find(const char* key) const;
  const ManifestJson& object_;
};

inline constexpr std::int64_t kMostRanks = 1 << 20;
ManifestJson json_of(const MeshSizes& sizes);
// At most kMostRanks ranks.
Result<MeshSizes> read_mesh_json(const ManifestJson& object);

ManifestJson json_of(const CheckpointFile& file);
// Of a manifest of that version. The name must be one of a file in the folder that it is read in.
// The place is not compared with a mesh.
Result<CheckpointFile> read_file_json(const ManifestJson& object, int version);

ManifestJson json_of(const CheckpointTensor& tensor);
// Slices lie within their box, that within the grid, and in files below `files`; whether they cover
// it is not looked at.
Result<CheckpointTensor> read_tensor_json(const ManifestJson& object, std::size_t files);

}  // namespace gradwire
