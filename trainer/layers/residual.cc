#include "trainer/layers/residual.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "trainer/layers/block_part.h"

namespace gradwire {
namespace {

ParameterTable joined(ParameterTable branch, const ParameterTable& shortcut) {
  append_table(branch, "shortcut", shortcut);
  return branch;
}

template <typename T>
void add_to(LayerKernels<T>* device, std::span<T> sum, std::span<const T> values) {
  if (device != nullptr) return device->add(values, sum);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
}

}  // namespace

template <typename T>
Residual<T>::Residual(SampleShape in, std::unique_ptr<Layer<T>> branch,
                      std::unique_ptr<Layer<T>> shortcut)
    : in_(in),
      branch_(std::move(branch)),
      shortcut_(std::move(shortcut)),
      params_(parameter_elems(branch_->parameters())),
      buffers_(parameter_elems(branch_->buffers())) {
  GW_CHECK(branch_->output().elems() == (shortcut_ ? shortcut_->output().elems() : in_.elems()));
}

template <typename T>
ParameterTable Residual<T>::parameters() const {
  return shortcut_ ? joined(branch_->parameters(), shortcut_->parameters()) : branch_->parameters();
}

template <typename T>
ParameterTable Residual<T>::buffers() const {
  return shortcut_ ? joined(branch_->buffers(), shortcut_->buffers()) : branch_->buffers();
}

template <typename T>
std::int64_t Residual<T>::statistics_elems() const {
  return branch_->statistics_elems() + (shortcut_ ? shortcut_->statistics_elems() : 0);
}

template <typename T>
std::int64_t Residual<T>::inner_scratch(std::int64_t rows, MemorySpace where) const {
  const std::int64_t other = shortcut_ ? shortcut_->scratch_elems(rows, where) : 0;
  return whole_lines<T>(std::max(branch_->scratch_elems(rows, where), other));
}

template <typename T>
std::int64_t Residual<T>::scratch_elems(std::int64_t rows, MemorySpace where) const {
  if (!shortcut_) return inner_scratch(rows, where);
  return inner_scratch(rows, where) + rows * std::max(in_.elems(), output().elems());
}

template <typename T>
std::int64_t Residual<T>::saved_elems(std::int64_t rows) const {
  return whole_lines<T>(branch_->saved_elems(rows)) +
         (shortcut_ ? shortcut_->saved_elems(rows) : 0);
}

template <typename T>
std::int64_t Residual<T>::stash_elems(std::int64_t rows) const {
  return whole_lines<T>(branch_->stash_elems(rows)) +
         (shortcut_ ? shortcut_->stash_elems(rows) : 0);
}

template <typename T>
LayerCost Residual<T>::cost() const {
  LayerCost sum = branch_->cost();
  if (shortcut_) sum += shortcut_->cost();
  return sum;
}

template <typename T>
std::vector<LayerPart<T>> Residual<T>::parts() const {
  std::vector<LayerPart<T>> parts{{"", branch_.get(), in_}};
  if (shortcut_) parts.push_back({"shortcut", shortcut_.get(), in_});
  return parts;
}

// What flows around the branch is added to what it makes: both lie alike.
template <typename T>
Result<Placement> Residual<T>::placement(const Placement& x,
                                         std::span<const ParameterInfo> parameters) const {
  const std::size_t count = branch_->parameters().size();
  GW_ASSIGN(const Placement branch, branch_->placement(x, parameters.first(count)));
  Placement around = x;
  if (shortcut_) {
    GW_ASSIGN(around, shortcut_->placement(x, parameters.subspan(count)));
  }
  if (branch == around) return branch;
  return Status(Code::kInvalidArgument, "its branch gives " + to_string(branch) + " (expected " +
                                            to_string(around) + ", as what it is added to)");
}

template <typename T>
LayerPass<T> Residual<T>::of_branch(const LayerPass<T>& pass) const {
  LayerPass<T> own = pass;
  own.params = part_of(pass.params, 0, params_);
  own.buffers = part_of(pass.buffers, 0, buffers_);
  own.statistics = part_of(pass.statistics, 0, branch_->statistics_elems());
  own.saved = part_of(pass.saved, 0, branch_->saved_elems(pass.rows));
  own.stash = part_of(pass.stash, 0, branch_->stash_elems(pass.rows));
  return own;
}

template <typename T>
LayerPass<T> Residual<T>::of_shortcut(const LayerPass<T>& pass) const {
  const auto behind = [](const auto& all, std::int64_t offset) {
    return all.empty() ? all : all.subspan(static_cast<std::size_t>(offset));
  };
  LayerPass<T> own = pass;
  own.params = behind(pass.params, params_);
  own.buffers = behind(pass.buffers, buffers_);
  own.statistics = behind(pass.statistics, branch_->statistics_elems());
  own.saved = behind(pass.saved, whole_lines<T>(branch_->saved_elems(pass.rows)));
  own.stash = behind(pass.stash, whole_lines<T>(branch_->stash_elems(pass.rows)));
  return own;
}

template <typename T>
std::span<T> Residual<T>::addend(const LayerPass<T>& pass, std::int64_t elems) const {
  const MemorySpace where = pass.device != nullptr ? MemorySpace::kCuda : MemorySpace::kHost;
  return part_of(pass.scratch, inner_scratch(pass.rows, where), elems);
}

template <typename T>
void Residual<T>::forward(const LayerPass<T>& pass) const {
  branch_->forward(of_branch(pass));
  if (!shortcut_) return add_to<T>(pass.device, pass.y, pass.x);
  LayerPass<T> own = of_shortcut(pass);
  own.y = addend(pass, static_cast<std::int64_t>(pass.y.size()));
  shortcut_->forward(own);
  add_to<T>(pass.device, pass.y, own.y);
}

// A shortcut's derivative is added here, where its room is this call's.
template <typename T>
void Residual<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                 std::span<T> dx) const {
  branch_->backward_input(of_branch(pass), dy, dx);
  if (!shortcut_) return;
  branch_->finish_input(of_branch(pass), dy, dx);
  const std::span<T> other = addend(pass, static_cast<std::int64_t>(dx.size()));
  const LayerPass<T> own = of_shortcut(pass);
  shortcut_->backward_input(own, dy, other);
  shortcut_->finish_input(own, dy, other);
  add_to<T>(pass.device, dx, other);
}

template <typename T>
void Residual<T>::finish_input(const LayerPass<T>& pass, std::span<const T> dy,
                               std::span<T> dx) const {
  if (shortcut_) return;
  branch_->finish_input(of_branch(pass), dy, dx);
  add_to<T>(pass.device, dx, dy);
}

template <typename T>
void Residual<T>::backward(const LayerPass<T>& pass, std::span<const T> dy, std::span<T> dx,
                           std::span<T> grads) const {
  const LayerPass<T> branch = of_branch(pass);
  branch_->backward(branch, dy, dx, grads.first(branch.params.size()));
  if (!shortcut_) return add_to<T>(pass.device, dx, dy);
  const std::span<T> other = addend(pass, static_cast<std::int64_t>(dx.size()));
  shortcut_->backward(of_shortcut(pass), dy, other, grads.subspan(branch.params.size()));
  add_to<T>(pass.device, dx, other);
}

template <typename T>
void Residual<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                  std::span<T> grads) const {
  const LayerPass<T> branch = of_branch(pass);
  branch_->backward_params(branch, dy, grads.first(branch.params.size()));
  if (!shortcut_) return;
  shortcut_->backward_params(of_shortcut(pass), dy, grads.subspan(branch.params.size()));
}

template <typename T>
void Residual<T>::commit(std::span<const double> statistics, std::span<T> buffers) const {
  const auto sums = static_cast<std::size_t>(branch_->statistics_elems());
  const auto values = static_cast<std::size_t>(buffers_);
  branch_->commit(statistics.first(sums), buffers.first(values));
  if (shortcut_) shortcut_->commit(statistics.subspan(sums), buffers.subspan(values));
}

template class Residual<float>;
template class Residual<double>;

}  // namespace gradwire
