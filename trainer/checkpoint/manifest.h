// What a checkpoint holds and where: the contents of its manifest.json.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mesh.h"
#include "gradwire/schedule.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/tensor_box.h"

namespace gradwire {

// Where the elements [begin, end) of a box of a tensor, taken as one row of the box's elements,
// are.
struct CheckpointSlice {
  std::array<Range, 4> at;  // of the tensor's grid: the box
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int file = 0;            // index into CheckpointManifest::files
  std::string entry;       // what that file calls them
  std::uint64_t xxh3 = 0;  // XXH3 (64 bits) of their bytes
};

// A tensor as the whole job sees it. Its boxes have no element in common and cover it; slices come
// box by box, boxes in ascending order of where they begin, and cover their box in ascending order
// without gap or overlap.
struct CheckpointTensor {
  DType dtype = DType::kF32;
  Shape shape;
  Shape grid;  // as of TensorBox; the shape where no slice is of a box
  std::vector<CheckpointSlice> slices;

  TensorBox box_of(const CheckpointSlice& slice) const { return {shape, grid, slice.at}; }
};

struct CheckpointFile {
  std::string name;  // in the checkpoint's folder
  std::uint64_t bytes = 0;
  std::uint64_t header_xxh3 = 0;  // of its length field and header; slices have their own
  MeshCoordinates at = {};        // of the rank that wrote it
};

// Where the training stands, in numbers. What is drawn at random is a function of the seed and of
// these, so that no generator has a state of its own.
struct CheckpointPosition {
  std::int64_t step = 0;              // steps done
  std::int64_t consumed_samples = 0;  // of the data's order, by all ranks
  std::uint64_t seed = 0;
  MeshSizes mesh;            // of the ranks that wrote it
  double learning_rate = 0;  // of the last step
  double loss_scale = 1;
};

struct CheckpointManifest {
  int version = 0;  // of the format that it was read from; what is written has the present one
  CheckpointPosition position;
  // What the run was asked for ("compressor", "model", "batch", ...), as text.
  std::map<std::string, std::string> settings;
  std::string written_by;  // "gradwire 0.1.0"
  std::vector<CheckpointFile> files;
  std::map<std::string, CheckpointTensor> tensors;  // by name
};

inline constexpr int kCheckpointVersion = 2;
inline constexpr std::string_view kManifestName = "manifest.json";

// manifest   := {"checkpoint": CHECKPOINT, "xxh3": HASH}
//               HASH: 16 hexadecimal digits, XXH3 of CHECKPOINT printed without blanks
// CHECKPOINT := {"format": "gradwire checkpoint", "version": 2, "written_by": TEXT,
//                "step": N, "consumed_samples": N, "seed": N, "mesh": PLACE, "learning_rate": X,
//                "loss_scale": X, "settings": {NAME: TEXT, ...},
//                "files": [{"name": TEXT, "bytes": N, "header_xxh3": HASH, "at": PLACE}, ...],
//                "tensors": {NAME: {"dtype": "F32", "shape": [N, ...], "grid": [N, ...],
//                                   "slices": [SLICE, ...]}}}
//               "grid" is left out where it is the shape
// PLACE      := {"pp": N, "dp": N, "tp": N}: sizes of the mesh, or a rank's coordinates
// SLICE      := {"box": [[N, N], ...], "begin": N, "end": N, "file": N, "entry": TEXT,
//                "xxh3": HASH}
//               "box": [begin, end) of each of the grid's dimensions, left out where it is all;
//               "begin" and "end" are of the row of the box's elements
// Version 1, which is read, has the number of ranks ("ranks": N) in place of the mesh, no
// coordinates, and no boxes: its ranks are replicas.
std::string write_manifest(const CheckpointManifest& manifest);

// The order of boxes among a tensor's slices: by where they begin, the outermost dimension first.
bool boxes_ascend(const std::array<Range, 4>& a, const std::array<Range, 4>& b);

// kCorruptPayload, naming the tensor, unless its slices cover it in the order that
// CheckpointTensor says.
Status check_slices(const std::string& name, const CheckpointTensor& tensor);

// Takes any bytes. kCorruptPayload names what is damaged, missing or contradicts itself (slices
// that do not cover their tensor, a file's name that leaves the folder, ...); kUnsupported: another
// version's.
Result<CheckpointManifest> read_manifest(std::string_view text);

}  // namespace gradwire
