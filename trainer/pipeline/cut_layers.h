// Which layers are a stage's: a model's layers cut into consecutive runs of nearly equal cost.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// The layers of each stage, in order: none of them empty, all layers in exactly one. The dearest
// stage costs as little as it can, since it sets the pace of a pipeline: m micro-batches take at
// least m times as long as it does. Of the ways to have that, the one whose first stages are
// longest. `costs`: of each layer, in any unit, 0 or more, below 2^62 together.
// kInvalidArgument: fewer layers than stages, no stage, costs out of range.
Result<std::vector<Range>> cut_layers(std::span<const std::int64_t> costs, int stages);

// Stages of so many layers each, one behind the other, as a user says them. kInvalidArgument, with
// the numbers: they do not add up to `layers`, or one of them is below 1.
Result<std::vector<Range>> cut_by_counts(std::span<const int> counts, std::int64_t layers);

// Numbers of layers as a user writes them: "3+4+4+1". nullopt: another text, or a number that is
// not from 1 to 65,536.
std::optional<std::vector<int>> parse_layer_counts(std::string_view text);
std::string layer_counts_text(std::span<const int> counts);

}  // namespace gradwire
