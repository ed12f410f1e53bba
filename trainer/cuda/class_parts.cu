// Cross entropy of outputs whose classes ranks divide: what a rank computes between exchanges.
#include <cmath>

#include "trainer/cuda/cuda_layer_kernels.h"
#include "trainer/cuda/label_scans.h"
#include "trainer/cuda/ordered_sums.h"

namespace gradwire::cuda {
namespace {

// A warp to each label: eight to a block. A row may be without classes.
struct PartWarps {
  static constexpr unsigned kThreads = 256;
  static constexpr unsigned kWarps = kThreads / 32;
  struct Shared {
    double sums[kWarps][32];
  };

  const float* outputs;
  const std::uint32_t* labels;
  std::int64_t count;
  std::int64_t classes;  // here
  std::int64_t first;
  std::int64_t all;

  template <class Block>
  GW_DEVICE std::int64_t label_of(const Block& block) const {
    return block.block() * kWarps + block.warp();
  }
  template <class Block>
  GW_DEVICE FirstLargest largest(Block& block, const float* row) const {
    FirstLargest best{-INFINITY, 0xffffffffU};
    for (std::int64_t c = block.lane(); c < classes; c += 32) {
      best.see(row[c], static_cast<std::uint32_t>(c));
    }
    best.share(block);
    return best;
  }
  // The place of a label among the classes that are here; -1: it is another rank's.
  GW_DEVICE std::int64_t place_of(std::uint32_t label) const {
    const std::int64_t place = static_cast<std::int64_t>(label) - first;
    return place < classes ? place : -1;
  }
};

// As the host has it: a row that begins with NaN has no other maximum.
struct PartMaxima : PartWarps {
  float* maxima;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t at = label_of(block);
    if (at >= count) return;
    const float* row = outputs + at * classes;
    const FirstLargest best = largest(block, row);
    if (block.lane() > 0) return;
    maxima[at] = classes > 0 && std::isnan(row[0]) ? row[0] : best.value;
  }
};

struct PartSums : PartWarps {
  const float* maxima;
  double* sums;  // of exponentials, then outputs for labels
  double* said;  // null: not wanted

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t at = label_of(block);
    if (at >= count) return;
    const float* row = outputs + at * classes;
    const auto top = static_cast<double>(maxima[at]);
    double mine = 0;
    for (std::int64_t c = block.lane(); c < classes; c += 32) {
      mine += std::exp(static_cast<double>(row[c]) - top);
    }
    const double sum = sum_of_warp(block, shared.sums[block.warp()], mine);
    const FirstLargest best = largest(block, row);
    if (block.lane() > 0) return;
    const std::int64_t place = place_of(labels[at]);
    sums[at] = sum;
    sums[count + at] = place < 0 ? 0 : static_cast<double>(row[place]);
    if (said == nullptr) return;
    const bool here = best.index != 0xffffffffU && best.value == maxima[at];
    said[at] = -static_cast<double>(here ? first + best.index : all);
  }
};

struct PartLosses : PartWarps {
  const float* maxima;
  const double* sums;
  const double* said;  // null: no hits
  float* doutputs;     // null: not wanted
  double* by_label;    // losses, then hits

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t at = label_of(block);
    if (at >= count) return;
    const auto top = static_cast<double>(maxima[at]);
    if (block.lane() == 0) {
      by_label[at] = std::log(sums[at]) + top - sums[count + at];
      by_label[count + at] = said != nullptr && class_said(at) == labels[at] ? 1 : 0;
    }
    const std::int64_t place = place_of(labels[at]);
    for (std::int64_t c = block.lane(); doutputs != nullptr && c < classes; c += 32) {
      const auto logit = static_cast<double>(outputs[at * classes + c]);
      const double probability = std::exp(logit - top) / sums[at];
      doutputs[at * classes + c] =
          static_cast<float>((probability - (c == place ? 1.0 : 0.0)) / static_cast<double>(count));
    }
  }
  // No rank has the maximum where one output is no number: such a row says class 0.
  GW_DEVICE std::uint32_t class_said(std::int64_t at) const {
    const double place = -said[at];
    return place == static_cast<double>(all) ? 0 : static_cast<std::uint32_t>(place);
  }
};

PartWarps warps_of(const ClassPart<float>& part) {
  const auto count = static_cast<std::int64_t>(part.labels.size());
  return {part.outputs.data(),
          part.labels.data(),
          count,
          count_of(part.outputs) / count,
          part.first,
          part.all};
}

template <class Rows>
Status over_labels(const char* name, const Rows& rows, const Stream& stream) {
  return launch(name, rows, blocks_for(rows.count, PartWarps::kWarps), stream);
}

}  // namespace

void CudaLayerKernels::class_maxima(const ClassPart<float>& part, Out maxima) {
  const PartMaxima rows{warps_of(part), maxima.data()};
  enqueue([&] { return over_labels("class_maxima", rows, stream_); });
}

void CudaLayerKernels::class_sums(const ClassPart<float>& part, In maxima, std::span<double> sums,
                                  std::span<double> said) {
  const PartSums rows{warps_of(part), maxima.data(), sums.data(), said.data()};
  enqueue([&] { return over_labels("class_sums", rows, stream_); });
}

void CudaLayerKernels::class_losses(const ClassPart<float>& part, In maxima,
                                    std::span<const double> sums, std::span<const double> said,
                                    Out doutputs, std::span<double> by_label,
                                    std::span<double> found) {
  const PartLosses rows{warps_of(part), maxima.data(),   sums.data(),
                        said.data(),    doutputs.data(), by_label.data()};
  const LabelTotals totals{by_label.data(), rows.count, found.data()};
  enqueue([&] {
    GW_TRY(over_labels("class_losses", rows, stream_));
    return launch("label_totals", totals, 1, stream_);
  });
}

}  // namespace gradwire::cuda
