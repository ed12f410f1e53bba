// Losses over labels: a number for each label, then one block that adds them up.
#include <cmath>

#include "trainer/cuda/cuda_layer_kernels.h"
#include "trainer/cuda/label_scans.h"
#include "trainer/cuda/ordered_sums.h"

namespace gradwire::cuda {
namespace {

// A warp to each label: eight to a block.
struct LabelWarps {
  static constexpr unsigned kThreads = 256;
  static constexpr unsigned kWarps = kThreads / 32;
  struct Shared {
    double sums[kWarps][32];
  };

  const float* outputs;
  const std::uint32_t* labels;
  std::int64_t count;
  std::int64_t classes;
  float* doutputs;   // null: not wanted
  double* by_label;  // losses, then hits

  // Whether the label is the first largest output; a row that begins with NaN says class 0.
  template <class Block>
  GW_DEVICE FirstLargest largest(Block& block, const float* row) const {
    FirstLargest best{-INFINITY, 0xffffffffU};
    for (std::int64_t c = block.lane(); c < classes; c += 32) {
      best.see(row[c], static_cast<std::uint32_t>(c));
    }
    best.share(block);
    return best;
  }
  GW_DEVICE void note(std::int64_t at, const FirstLargest& best, double loss) const {
    const bool lost = std::isnan(outputs[at * classes]) || best.index == 0xffffffffU;
    by_label[at] = loss;
    by_label[count + at] = (lost ? 0 : best.index) == labels[at] ? 1 : 0;
  }
};

struct CrossEntropyRows : LabelWarps {
  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t at = block.block() * kWarps + block.warp();
    if (at >= count) return;
    const float* row = outputs + at * classes;
    const FirstLargest best = largest(block, row);
    const auto top = static_cast<double>(best.value);
    double mine = 0;
    for (std::int64_t c = block.lane(); c < classes; c += 32) {
      mine += std::exp(static_cast<double>(row[c]) - top);
    }
    const double sum = sum_of_warp(block, shared.sums[block.warp()], mine);
    const std::uint32_t label = labels[at];
    if (block.lane() == 0) note(at, best, std::log(sum) + top - static_cast<double>(row[label]));
    for (std::int64_t c = block.lane(); doutputs != nullptr && c < classes; c += 32) {
      const double probability = std::exp(static_cast<double>(row[c]) - top) / sum;
      doutputs[at * classes + c] =
          static_cast<float>((probability - (c == label ? 1.0 : 0.0)) / static_cast<double>(count));
    }
  }
};

struct SquaredErrorRows : LabelWarps {
  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t at = block.block() * kWarps + block.warp();
    if (at >= count) return;
    const float* row = outputs + at * classes;
    const FirstLargest best = largest(block, row);
    double mine = 0;
    for (std::int64_t c = block.lane(); c < classes; c += 32) {
      const double off = static_cast<double>(row[c]) - (c == labels[at] ? 1.0 : 0.0);
      mine += off * off / 2;
      if (doutputs == nullptr) continue;
      doutputs[at * classes + c] = static_cast<float>(off / static_cast<double>(count));
    }
    const double sum = sum_of_warp(block, shared.sums[block.warp()], mine);
    if (block.lane() == 0) note(at, best, sum);
  }
};

template <class Rows>
Status judge(const char* name, const LabelWarps& what, double* found, const Stream& stream) {
  GW_TRY(launch(name, Rows{what}, blocks_for(what.count, LabelWarps::kWarps), stream));
  return launch("label_totals", LabelTotals{what.by_label, what.count, found}, 1, stream);
}

LabelWarps label_warps(std::span<const float> outputs, std::span<const std::uint32_t> labels,
                       std::span<float> doutputs, std::span<double> by_label) {
  const auto count = static_cast<std::int64_t>(labels.size());
  return {outputs.data(),  labels.data(),  count, count_of(outputs) / count,
          doutputs.data(), by_label.data()};
}

}  // namespace

void CudaLayerKernels::cross_entropy(In outputs, Labels labels, Out doutputs,
                                     std::span<double> by_label, std::span<double> found) {
  enqueue([&] {
    return judge<CrossEntropyRows>(
        "cross_entropy", label_warps(outputs, labels, doutputs, by_label), found.data(), stream_);
  });
}

void CudaLayerKernels::squared_error(In outputs, Labels labels, Out doutputs,
                                     std::span<double> by_label, std::span<double> found) {
  enqueue([&] {
    return judge<SquaredErrorRows>(
        "squared_error", label_warps(outputs, labels, doutputs, by_label), found.data(), stream_);
  });
}

}  // namespace gradwire::cuda
