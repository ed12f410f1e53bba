// A complete checkpoint, read in any cut: what n ranks wrote, any other number may load.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/tensor_file.h"

namespace gradwire {

// Not for several threads at once.
class CheckpointReader {
 public:
  // `path`: the folder of one checkpoint. Errors name the file, and kCorruptPayload what is damaged
  // in it.
  static Result<CheckpointReader> open(const std::string& path);

  const CheckpointManifest& manifest() const { return manifest_; }
  const std::string& path() const { return path_; }
  // Its tensors under other names or cut otherwise; the files are the same.
  void describe_as(CheckpointManifest manifest) { manifest_ = std::move(manifest); }

  // Elements [begin, begin + out.elems()) of the row of all elements of a box of the tensor,
  // however it was cut when it was written. Bytes are compared with their checksums.
  // kInvalidArgument: no such tensor, another type or shape than the box's, another grid where
  // neither is all of the tensor. On an error `out` is unspecified.
  Status read(const std::string& tensor, const TensorBox& box, std::int64_t begin, TensorView out);
  // Of all of the tensor.
  Status read(const std::string& tensor, const Shape& shape, std::int64_t begin, TensorView out) {
    return read(tensor, TensorBox::of(shape), begin, out);
  }
  // All of it.
  Status read(const std::string& tensor, TensorView out);
  // Every byte of it read and compared.
  Status verify();

 private:
  CheckpointReader(std::string path, CheckpointManifest manifest)
      : path_(std::move(path)), manifest_(std::move(manifest)) {}
  Result<const TensorFile*> file(int index);
  Result<const CheckpointTensor*> find(const std::string& tensor) const;
  // Of the slice, what is within elements `wanted` of the box, to its place in `out`, which holds
  // these.
  Status read_slice(const CheckpointTensor& saved, const CheckpointSlice& slice,
                    const TensorBox& box, Range wanted, ByteSpan out);

  std::string path_;
  CheckpointManifest manifest_;
  std::map<int, TensorFile> open_;  // by index, as they are needed
};

}  // namespace gradwire
