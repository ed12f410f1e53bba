// Some values become 0, the others larger, so that the mean stays.
// Source: Srivastava et al., "Dropout", JMLR 2014, section 4 (scaled while training).
#pragma once

#include <optional>
#include <string_view>

#include "trainer/layers/layer.h"
#include "trainer/tensor_share.h"

namespace gradwire {

// Each value is 0 with probability p, else times 1 / (1 - p); unchanged in kEvaluate. Which ones is
// a pure function of (seed, name, step, place of the sample in the step's global batch, element):
// the same for any number of ranks, and again when forward is computed again. Nothing is kept.
template <typename T>
class Dropout final : public Layer<T> {
 public:
  // `name` tells this layer's draws from another's. Requires 0 <= p < 1. `share`: of a sample whose
  // positions ranks divide, `shape` being the rank's part of it; elements are drawn as those of the
  // whole sample.
  Dropout(SampleShape shape, double p, std::string_view name, const TensorShare& share = {});
  // Likewise of a vector of `all` features, of which `here` are this rank's.
  Dropout(Range here, std::int64_t all, double p, std::string_view name);

  SampleShape output() const override { return shape_; }
  // Elements of a part are drawn as those of the whole where it knows which part it is; whole
  // samples know their places.
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    if (!part_) {
      GW_TRY(check_reads(x, {Placement::invariant(), Placement::by_samples()}));
      return x;
    }
    GW_TRY(check_reads(x, {Placement{Placement::Kind::kVarying, part_->axis}}));
    return x;
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  void apply(const LayerPass<T>& pass, std::span<const T> from, std::span<T> to) const;
  // Elements from `first` on of the step's global batch.
  void draw(const LayerPass<T>& pass, std::uint64_t first, std::span<const T> from,
            std::span<T> to) const;

  // Of whole samples of `all` elements, those from `begin` on.
  struct SamplePart {
    std::int64_t all;
    std::int64_t begin;
    Placement::Axis axis;
  };

  SampleShape shape_;
  std::optional<SamplePart> part_;  // none: samples are here as a whole
  std::uint64_t name_;
  std::uint32_t dropped_;  // words below it are dropped
  T scale_;
};

}  // namespace gradwire
