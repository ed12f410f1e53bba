// What a checkpoint holds and where: the contents of its manifest.json.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Where the elements [begin, end) of a tensor, taken as one row of all its elements, are.
struct CheckpointSlice {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int file = 0;            // index into CheckpointManifest::files
  std::string entry;       // what that file calls them
  std::uint64_t xxh3 = 0;  // XXH3 (64 bits) of their bytes
};

// A tensor as the whole job sees it. Its slices, in ascending order, cover it without gap or
// overlap.
struct CheckpointTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<CheckpointSlice> slices;
};

struct CheckpointFile {
  std::string name;  // in the checkpoint's folder
  std::uint64_t bytes = 0;
  std::uint64_t header_xxh3 = 0;  // of its length field and header; slices have their own
};

// Where the training stands, in numbers. What is drawn at random is a function of the seed and of
// these, so that no generator has a state of its own.
struct CheckpointPosition {
  std::int64_t step = 0;              // steps done
  std::int64_t consumed_samples = 0;  // of the data's order, by all ranks
  std::uint64_t seed = 0;
  int ranks = 1;
  double learning_rate = 0;  // of the last step
  double loss_scale = 1;
};

struct CheckpointManifest {
  CheckpointPosition position;
  // What the run was asked for ("compressor", "model", "batch", ...), as text.
  std::map<std::string, std::string> settings;
  std::string written_by;  // "gradwire 0.1.0"
  std::vector<CheckpointFile> files;
  std::map<std::string, CheckpointTensor> tensors;  // by name
};

inline constexpr int kCheckpointVersion = 1;
inline constexpr std::string_view kManifestName = "manifest.json";

// manifest   := {"checkpoint": CHECKPOINT, "xxh3": HASH}
//               HASH: 16 hexadecimal digits, XXH3 of CHECKPOINT printed without blanks
// CHECKPOINT := {"format": "gradwire checkpoint", "version": 1, "written_by": TEXT,
//                "step": N, "consumed_samples": N, "seed": N, "ranks": N, "learning_rate": X,
//                "loss_scale": X, "settings": {NAME: TEXT, ...},
//                "files": [{"name": TEXT, "bytes": N, "header_xxh3": HASH}, ...],
//                "tensors": {NAME: {"dtype": "F32", "shape": [N, ...], "slices": [SLICE, ...]}}}
// SLICE      := {"begin": N, "end": N, "file": N, "entry": TEXT, "xxh3": HASH}
std::string write_manifest(const CheckpointManifest& manifest);

// kCorruptPayload, naming the tensor, unless its slices cover it in ascending order.
Status check_slices(const std::string& name, const CheckpointTensor& tensor);

// Takes any bytes. kCorruptPayload names what is damaged, missing or contradicts itself (slices
// that do not cover their tensor, a file's name that leaves the folder, ...); kUnsupported: another
// version's.
Result<CheckpointManifest> read_manifest(std::string_view text);

}  // namespace gradwire
