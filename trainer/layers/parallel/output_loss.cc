#include "trainer/layers/parallel/output_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace gradwire {

template <typename T>
OutputLoss<T>::OutputLoss(Loss loss, std::optional<ClassShare> share, LayerPeers* peers,
                          std::int64_t most_rows)
    : loss_(loss), share_(share), peers_(peers) {
  if (!share_) return;
  GW_CHECK(loss == Loss::kCrossEntropy);
  maxima_.resize(static_cast<std::size_t>(most_rows));
  sums_.resize(2 * static_cast<std::size_t>(most_rows));
}

template <typename T>
std::optional<std::size_t> OutputLoss<T>::place_of(std::uint32_t label) const {
  const auto number = static_cast<std::int64_t>(label);
  if (number < share_->here.begin || number >= share_->here.end) return std::nullopt;
  return static_cast<std::size_t>(number - share_->here.begin);
}

template <typename T>
double OutputLoss<T>::mean(std::span<const T> outputs, std::span<const std::uint32_t> labels,
                           std::span<T> doutputs) {
  if (!share_) return mean_loss<T>(loss_, outputs, labels, doutputs);
  return cross_entropy_mean(outputs, labels, doutputs);
}

// Of each row over all classes.
template <typename T>
void OutputLoss<T>::find_maxima(std::span<const T> outputs, std::size_t rows) {
  const std::size_t classes = classes_here();
  for (std::size_t r = 0; r < rows; ++r) {
    const std::span<const T> row = outputs.subspan(r * classes, classes);
    maxima_[r] = row.empty() ? -std::numeric_limits<T>::infinity()
                             : *std::max_element(row.begin(), row.end());
  }
  peers_->start_max(std::span(maxima_).first(rows));
  peers_->await();
}

template <typename T>
double OutputLoss<T>::cross_entropy_mean(std::span<const T> outputs,
                                         std::span<const std::uint32_t> labels,
                                         std::span<T> doutputs) {
  const std::size_t rows = labels.size();
  const std::size_t classes = classes_here();
  find_maxima(outputs, rows);
  const std::span<double> sums = std::span(sums_).first(2 * rows);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::span<const T> row = outputs.subspan(r * classes, classes);
    const auto top = static_cast<double>(maxima_[r]);
    double sum = 0;
    for (const T logit : row) sum += std::exp(static_cast<double>(logit) - top);
    const std::optional<std::size_t> right = place_of(labels[r]);
    sums[r] = sum;
    sums[rows + r] = right ? static_cast<double>(row[*right]) : 0;
  }
  peers_->start_sum(sums);
  peers_->await();
  double total = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto top = static_cast<double>(maxima_[r]);
    total += std::log(sums[r]) + top - sums[rows + r];
    if (doutputs.empty()) continue;
    const std::optional<std::size_t> right = place_of(labels[r]);
    for (std::size_t c = 0; c < classes; ++c) {
      const double logit = static_cast<double>(outputs[r * classes + c]);
      const double probability = std::exp(logit - top) / sums[r];
      const double target = right == c ? 1 : 0;
      doutputs[r * classes + c] =
          static_cast<T>((probability - target) / static_cast<double>(rows));
    }
  }
  return total / static_cast<double>(rows);
}

// The first of the largest outputs of a row is what the row says, as count_correct() has it: of
// the places of those that are as large as any, the lowest.
template <typename T>
std::int64_t OutputLoss<T>::count_correct(std::span<const T> outputs,
                                          std::span<const std::uint32_t> labels) {
  if (!share_) return gradwire::count_correct<T>(outputs, labels);
  const std::size_t rows = labels.size();
  const std::size_t classes = classes_here();
  find_maxima(outputs, rows);
  const std::span<double> said = std::span(sums_).first(rows);  // the place, negative
  for (std::size_t r = 0; r < rows; ++r) {
    const std::span<const T> row = outputs.subspan(r * classes, classes);
    const auto first = std::find(row.begin(), row.end(), maxima_[r]);
    const std::int64_t place =
        first == row.end() ? share_->all : share_->here.begin + (first - row.begin());
    said[r] = -static_cast<double>(place);
  }
  peers_->start_max(said);
  peers_->await();
  std::int64_t correct = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    // Nobody has the maximum where one output is no number: such a row says class 0.
    const double place = -said[r] == static_cast<double>(share_->all) ? 0 : -said[r];
    if (place == static_cast<double>(labels[r])) ++correct;
  }
  return correct;
}

template class OutputLoss<float>;
template class OutputLoss<double>;

}  // namespace gradwire
