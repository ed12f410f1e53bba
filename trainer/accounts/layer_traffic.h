// What ranks send when they divide a layer among themselves: closed forms of the layer's sizes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gradwire {

// Ways of dividing a layer y = x W^T among ranks. A convolution divides alike, its features are
// channels.
enum class LayerDivision : std::uint8_t {
  kDataParallel,     // samples are divided: each rank has all weights, gradients are averaged
  kPartitionOutput,  // outputs are: x is gathered, its derivatives are reduced and scattered
  kColumnParallel,   // likewise, where every rank has x already: its derivatives are summed
  kReduceOutput,     // inputs are: y is the sum of what ranks make of theirs
};
inline constexpr std::array kLayerDivisions{
    LayerDivision::kDataParallel, LayerDivision::kPartitionOutput, LayerDivision::kColumnParallel,
    LayerDivision::kReduceOutput};
std::string_view to_string(LayerDivision division);  // "data parallel"

struct LayerSize {
  std::int64_t weights = 0;  // without biases
  std::int64_t inputs = 0;   // elements of a sample
  std::int64_t outputs = 0;
};

// Elements in the phases of a step. One of p ranks sends (p - 1) / p of them; of an all-reduce they
// are twice the tensor's, of a gather or a reduce-scatter once.
struct PhaseElems {
  std::int64_t forward = 0;
  std::int64_t backward = 0;  // derivatives by inputs
  std::int64_t gradients = 0;

  std::int64_t total() const { return forward + backward + gradients; }
  friend bool operator==(const PhaseElems&, const PhaseElems&) = default;
};

// Of `samples` samples, which all ranks go through together. With C_out C_in weights, and B samples
// of C_in inputs and C_out outputs:
//
//                      forward    backward   gradients
//   data parallel      0          0          2 C_out C_in
//   partition output   B C_in     B C_in     0
//   column parallel    0          2 B C_in   0
//   reduce output      2 B C_out  0          0
//
// Source: Shoeybi et al., "Megatron-LM", arXiv 1909.08053, 2019, section 3, for column parallel and
// reduce output (its row parallel); Korthikanti et al., MLSys 2023, section 4.2.2, for partition
// output of an input that is divided by positions.
PhaseElems layer_traffic(LayerDivision division, const LayerSize& size, std::int64_t samples);

// The division with the smallest total, the first of equal ones. It depends neither on the number
// of ranks nor on the width of an element, which are factors of all of them.
LayerDivision least_traffic(const LayerSize& size, std::int64_t samples);

// What one of `ranks` ranks sends of so many elements.
double sent_by_rank(std::int64_t elems, std::int64_t ranks);

}  // namespace gradwire
