// Which of a micro-batch's samples a rank has, where the ranks of Scope::kTensor divide them.
#pragma once

#include <cstdint>

namespace gradwire {

// What a layer makes of the samples of its input. Each rank's part is equal_part() of them: a
// training's micro-batch is a multiple of the ranks, and parts do not overlap. The last pass of an
// evaluation may have any number; then two ranks compute the same samples.
enum class SampleRows : std::uint8_t {
  kAsInput,  // y has the samples that x has
  kOwn,      // x has all samples of the micro-batch, y this rank's
  kAll,      // x has this rank's, y all of them
};

}  // namespace gradwire
