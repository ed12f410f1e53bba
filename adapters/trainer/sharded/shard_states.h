// What sharded training keeps between steps, taken from as many old ranks as there were.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

using OldStates = std::span<const std::vector<NamedTensor>>;  // by old rank

// `own` becomes the entry of its name; kInvalidArgument where there is none of its type and size.
Status copy_entry(const NamedTensor& own, const std::vector<NamedTensor>& old);
// The old ranks' slices, one after another, are the tensor; `own` becomes piece `rank` of `size` of
// it. As many ranks as before: their slices, however they are cut.
Status join_slices(const NamedTensor& own, OldStates old, int rank, int size);
// The entries whose names begin with `prefix`, without it.
std::vector<std::vector<NamedTensor>> behind(const std::string& prefix, OldStates states);

}  // namespace gradwire
