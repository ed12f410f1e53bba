// Parameters as files that other programs read: the safetensors format.
#pragma once

#include <span>
#include <string>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// file   := header_bytes header data
// header_bytes : u64 little-endian, length of header
// header : JSON {"NAME": {"dtype": "F32", "shape": [...], "data_offsets": [BEGIN, END]}, ...},
//          filled up with blanks to a multiple of 8; offsets count from the start of data
// data   : the tensors' elements, little-endian, row-major, without gaps
// Source: Hugging Face, safetensors README, "Format".

// kF32 host tensors, in the order given. The file depends on names, shapes and values alone. It
// appears under `path` when it is complete, or not at all; a link there keeps pointing where it
// did, and a device or pipe is written to as it is.
Status save_safetensors(const std::string& path, std::span<const NamedTensor> tensors);
// What save_safetensors() would say of `path` now, without leaving anything there.
Status check_save_path(const std::string& path);

// Fills the given tensors from the file, by name. The file must hold exactly these names, each F32
// with the shape wanted, and its data must be covered without gap or overlap (another layout is
// kCorruptPayload). On any error nothing is changed. "__metadata__" is ignored.
Status load_safetensors(const std::string& path, std::span<const NamedTensor> tensors);

}  // namespace gradwire
