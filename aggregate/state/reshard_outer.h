// State of the level between nodes, carried over to other nodes and owners.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Does the entry belong to a two-level exchange: "<parameter>.outer.<what>"?
bool is_outer_state(std::string_view name);
// The parameter of such an entry.
std::string_view outer_parameter(std::string_view name);

// Whether an old rank owned all that this rank, whose state is `all`, owns of the parameter of
// entry `name`, and nothing else.
bool has_outer_owner(std::string_view name, std::span<const NamedTensor> all,
                     std::span<const std::vector<NamedTensor>> old);

// Fills `own`, an entry of `all` on this rank of `size`, from what the old ranks kept of the
// elements that this rank owns now ("<parameter>.outer.range" says who owned what):
//   the same place on the same number of ranks and nodes   bit for bit
//   ".error", ".ef21.h", ".ef21.v", ".ef21.mean", ".coder.residual*"   their average over nodes
//   ".error2"         joined and cut anew, times the new number of nodes over the old
//   ".ef21.average"   joined and cut anew
//   anything else     equal on all owners of a range, and fits no other: from the first that owned
//                     this one; as it is where none did
// Only checks unless `write`. kInvalidArgument names what is missing or does not fit.
Status carry_outer_state(const NamedTensor& own, std::span<const NamedTensor> all,
                         std::span<const std::vector<NamedTensor>> old, int rank, int size,
                         bool write);

}  // namespace gradwire
