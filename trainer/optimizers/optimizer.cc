#include "trainer/optimizers/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "trainer/optimizers/adamw.h"
#include "trainer/optimizers/lamb.h"
#include "trainer/optimizers/sgd.h"

namespace gradwire {
namespace {

Status bad(const std::string& name, const char* option, double seen, const char* wanted) {
  return Status(Code::kInvalidArgument,
                format("optimizer %s: %s %g (expected %s)", name.c_str(), option, seen, wanted));
}

bool below_one(double value) { return value >= 0 && value < 1; }

Status check(const OptimizerOptions& o) {
  if (!below_one(o.momentum)) return bad(o.name, "momentum", o.momentum, "0 <= momentum < 1");
  if (!below_one(o.beta1)) return bad(o.name, "beta1", o.beta1, "0 <= beta1 < 1");
  if (!below_one(o.beta2)) return bad(o.name, "beta2", o.beta2, "0 <= beta2 < 1");
  if (!(o.epsilon > 0) || !std::isfinite(o.epsilon)) {
    return bad(o.name, "epsilon", o.epsilon, "a finite number > 0");
  }
  if (!(o.weight_decay >= 0) || !std::isfinite(o.weight_decay)) {
    return bad(o.name, "weight_decay", o.weight_decay, "a finite number >= 0");
  }
  return {};
}

}  // namespace

SliceTable whole_slices(const ParameterTable& table) {
  SliceTable slices;
  for (const ParameterInfo& info : table) {
    slices.push_back({info.name, 0, info.shape.elems(), info.offset, whole_shape(info).rank > 1});
  }
  return slices;
}

SliceTable slices_within(const SliceTable& whole, std::int64_t begin, std::int64_t end) {
  SliceTable cut;
  for (const TensorSlice& slice : whole) {
    const std::int64_t first = std::clamp(begin, slice.offset, slice.offset + slice.elems);
    const std::int64_t last = std::clamp(end, first, slice.offset + slice.elems);
    cut.push_back({slice.name, slice.begin + first - slice.offset, last - first,
                   last > first ? first - begin : 0, slice.decays});
  }
  return cut;
}

std::int64_t slice_elems(const SliceTable& slices) {
  std::int64_t elems = 0;
  for (const TensorSlice& slice : slices) elems = std::max(elems, slice.offset + slice.elems);
  return elems;
}

Status Optimizer::step(std::span<float> parameters, std::span<const float> gradients, double lr) {
  GW_TRY(begin_step(lr));
  GW_TRY(step_part(parameters, gradients, 0));
  if (!two_passes()) return {};
  GW_TRY(end_pass());
  return end_part(parameters, 0);
}

Result<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerOptions& options,
                                                  SliceTable slices, SumOverShards sum,
                                                  const MemoryArena& arena) {
  GW_TRY(check(options));
  if (options.name == "sgd") return make_sgd(options, std::move(slices), arena);
  if (options.name == "nesterov") return make_nesterov(options, std::move(slices), arena);
  if (options.name == "adamw") return make_adamw(options, std::move(slices), arena);
  if (options.name == "lamb") return make_lamb(options, std::move(slices), std::move(sum), arena);
  return Status(Code::kInvalidArgument,
                format("unknown optimizer '%s' (expected sgd, nesterov, adamw or lamb)",
                       options.name.c_str()));
}

}  // namespace gradwire
