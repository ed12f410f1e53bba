// What compression keeps of a parameter of which the ranks of a replica hold boxes: how it is
// called, and residuals joined from boxes and cut for others.
//
// An aggregator knows the box alone, by the parameter's name. In a checkpoint, entries that have
// the parameter's shape (residuals, moving averages) are parts of one tensor of that shape; all
// others, which fit no other box, are called by theirs: "fc1.weight[0:8, 0:64].ef21.h".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/parameters.h"

namespace gradwire {

// Names of a checkpoint's parameters begin so.
inline constexpr std::string_view kParameterNames = "parameters/";

// "fc1.weight[0:8, 0:64].ef21.h": a parameter of the table, its box as text, and the kind. Without
// parameter: none of the table's.
struct BoxedName {
  const ParameterInfo* info = nullptr;
  std::string_view box = {};   // "[0:8, 0:64]"; "" of all of the tensor
  std::string_view kind = {};  // "ef21.h"
};
BoxedName boxed_name(const ParameterTable& table, std::string_view name);

// Whether entries of this kind have the parameter's shape, an element for each of its elements.
// Codes of int8 are not among them: blocks of the box share a scale.
bool has_parameter_shape(std::string_view kind, DType dtype);

// The boxes in which the checkpoint has the parameter; none where it has it not.
std::vector<TensorBox> saved_boxes(const CheckpointManifest& manifest, const std::string& name);

// What old replica `replica` left over of the elements of `info`'s box, of whatever boxes its ranks
// had: its residual, and, at its own elements, what it owes of the sum that it owned there.
// `prefix`: what the names of the replica's entries begin with. An element for each of the box.
// kInvalidArgument where an entry does not fit its box.
Result<std::vector<double>> joined_residual(CheckpointReader& reader, const std::string& prefix,
                                            const ParameterInfo& info, int replica);

}  // namespace gradwire
