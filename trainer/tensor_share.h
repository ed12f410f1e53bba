// How the ranks of Scope::kTensor share the tensors of a model, as one of them sees it.
#pragma once

#include <cstdint>

#include "base/mesh.h"
#include "gradwire/schedule.h"

namespace gradwire {

struct TensorShare {
  enum class Layout : std::uint8_t {
    kFeatures,  // every layer by its outputs or inputs
    // Images: convolutions, and what stands between them, by samples of the micro-batch; linear
    // layers by features.
    // Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
    // arXiv 1404.5997, 2014, section 4.
    kSamples,
    // Images: by tiles of a grid; what follows the convolutions is the same on all ranks.
    // Source: Gholami, Azad, Jin, Keutzer, Buluc, "Integrated model, batch, and domain parallelism
    // in training neural networks", SPAA 2018 (domain parallelism).
    kTiles,
  };

  int ranks = 1;
  int rank = 0;
  // What stands between the shared layers (norms, dropout, sums) is divided by positions: each rank
  // has a part of every sequence.
  // Source: Korthikanti et al., "Reducing activation recomputation in large transformer models",
  // MLSys 2023, section 4.2.2.
  bool sequence = false;
  Layout layout = Layout::kFeatures;
  // kTiles: rank r has tile (r / columns, r % columns) of rows x columns = ranks.
  int tile_rows = 1;
  int tile_columns = 1;

  bool divides() const { return ranks > 1; }
  bool by_samples() const { return divides() && layout == Layout::kSamples; }
  bool by_tiles() const { return divides() && layout == Layout::kTiles; }
  // This rank's of so many columns, heads or classes.
  Range part(std::int64_t count) const { return even_part(count, ranks, rank); }
  // Of the positions of a sequence, what stands between the shared layers here.
  Range stream(std::int64_t positions) const {
    return sequence ? part(positions) : Range{0, positions};
  }
};

}  // namespace gradwire
