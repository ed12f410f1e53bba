// One rank's tensors of a checkpoint, as a safetensors file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/checkpoint/disk.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/part_list.h"
#include "trainer/checkpoint/safetensors_header.h"

namespace gradwire {

// What a rank has of a tensor: elements [begin, begin + values.elems()) of a box of it, in the
// box's row-major order. Views, wherever they lie, are read during the call that they are given to.
struct TensorPart {
  std::string tensor;  // the name that the whole job knows it by
  TensorBox box;       // with the tensor's shape
  std::int64_t begin = 0;
  ConstTensorView values;
};
// All of a tensor.
TensorPart whole_tensor(std::string name, ConstTensorView values);

// Told of every place where a writer may die ("file begun", ...), for tests of exactly that. Empty:
// nobody is told.
using WriteObserver = std::function<void(std::string_view place)>;

// Writes the new file of the rank at `at` into `folder` and syncs it. Parts of equal tensors must
// not overlap. kInvalidArgument for what cannot be written, with the system's reason.
Result<PartList> write_tensor_file(const std::string& folder, const std::string& name,
                                   const MeshCoordinates& at, std::span<const TensorPart> parts,
                                   const WriteObserver& observer);

class TensorFile {
 public:
  // Reads the header of the file in `folder`. kCorruptPayload unless its size and header are those
  // that the manifest says.
  static Result<TensorFile> open(const std::string& folder, const CheckpointFile& facts);
  // The bytes of a slice's entry. kCorruptPayload unless it is there with this type, as many
  // elements as the slice and its checksum.
  Status read(const CheckpointSlice& slice, DType dtype, std::vector<std::byte>& out) const;

 private:
  TensorFile(DiskFile file, std::uint64_t data_offset)
      : file_(std::move(file)), data_offset_(data_offset) {}
  DiskFile file_;
  std::uint64_t data_offset_;
  std::map<std::string, SafetensorsEntry> entries_;
};

}  // namespace gradwire
