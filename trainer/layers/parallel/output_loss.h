// What a model's outputs are worth: their loss, its derivative, and how many are right, also where
// every rank has the outputs of some classes.
// Source: Shoeybi et al., "Megatron-LM", arXiv 1909.08053, 2019, section 3 (the logits are not
// gathered).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gradwire/schedule.h"
#include "trainer/layer_peers.h"
#include "trainer/layers/loss.h"

namespace gradwire {

// Which of the classes that a model tells apart its outputs on this rank are.
struct ClassShare {
  Range here;
  std::int64_t all = 0;
};

// Of one rank, from the thread that trains. Without a share, as mean_loss() and count_correct().
// With one, outputs are (rows, classes here), and the results are those of all classes, equal on
// all peers, which make the same calls. Per loss: one maximum of `rows` values and one sum of 2 x
// rows in double; per count: one maximum and one more of the places. A share is of cross entropy's.
template <typename T>
class OutputLoss {
 public:
  OutputLoss() = default;
  // `peers` is borrowed and may be null without a share. Takes memory for calls of at most
  // `most_rows` rows.
  OutputLoss(Loss loss, std::optional<ClassShare> share, LayerPeers* peers, std::int64_t most_rows);

  // As mean_loss() has it. A part may be without classes.
  double mean(std::span<const T> outputs, std::span<const std::uint32_t> labels,
              std::span<T> doutputs);
  std::int64_t count_correct(std::span<const T> outputs, std::span<const std::uint32_t> labels);

 private:
  std::size_t classes_here() const { return static_cast<std::size_t>(share_->here.size()); }
  // Place of a label among this rank's classes; none: it is another's.
  std::optional<std::size_t> place_of(std::uint32_t label) const;
  void find_maxima(std::span<const T> outputs, std::size_t rows);
  double cross_entropy_mean(std::span<const T> outputs, std::span<const std::uint32_t> labels,
                            std::span<T> doutputs);

  Loss loss_ = Loss::kCrossEntropy;
  std::optional<ClassShare> share_;
  LayerPeers* peers_ = nullptr;
  std::vector<T> maxima_;     // of each row
  std::vector<double> sums_;  // of exponentials of each row, then each row's output for its label
};

}  // namespace gradwire
