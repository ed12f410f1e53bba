// What one rank wrote, told to the rank that writes the manifest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"
#include "trainer/checkpoint/manifest.h"

namespace gradwire {

// A part of a tensor in a rank's file.
struct WrittenPart {
  std::string tensor;
  CheckpointTensor facts;  // type and shape of the whole tensor; one slice, in file 0
};

struct PartList {
  CheckpointFile file;
  std::vector<WrittenPart> parts;
};

// Text that another rank reads, which takes any bytes (kCorruptPayload).
std::string write_part_list(const PartList& list);
Result<PartList> read_part_list(std::string_view text);

// The file and its parts become part of the manifest. Slices come in ascending order; parts without
// elements go where the tensor has others. kRankMismatch: another file wrote of the tensor another
// type or shape. Call check_slices() on all tensors after the last file.
Status add_file(CheckpointManifest& manifest, const PartList& list);

}  // namespace gradwire
