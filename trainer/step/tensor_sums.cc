#include "trainer/step/tensor_sums.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace gradwire {

Result<TensorSums> TensorSums::create(const ParameterTable& here, const ModelShare* share) {
  TensorSums sums;
  sums.tensors_ = here.size();
  for (std::size_t i = 0; share == nullptr && i < here.size(); ++i) sums.places_.push_back({i});
  if (share == nullptr) return sums;
  GW_TRY(check_share(*share, here));
  sums.alone_ = false;
  sums.tensors_ = share->tensors.size();
  for (const ParameterInfo& info : here) {
    const auto at = std::ranges::find(share->tensors, info.name, &ModelShare::Tensor::name);
    sums.places_.push_back({static_cast<std::size_t>(at - share->tensors.begin()),
                            owner_of(at->held, share->rank) == share->rank});
  }
  return sums;
}

// all_ becomes what every tensor of the model has over the scope.
Status TensorSums::spread(std::span<const double> values, std::size_t each, Consensus& consensus,
                          Scope scope) {
  GW_CHECK(values.size() == each * places_.size());
  all_.assign(each * tensors_, 0.0);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!places_[i].counts) continue;
    std::copy_n(&values[each * i], each, &all_[each * places_[i].tensor]);
  }
  return consensus.sum(all_, scope);
}

Status TensorSums::add_up(std::span<double> values, std::size_t each, Consensus& consensus,
                          Scope scope) {
  GW_TRY(spread(values, each, consensus, scope));
  for (std::size_t i = 0; i < places_.size(); ++i) {
    std::copy_n(&all_[each * places_[i].tensor], each, &values[each * i]);
  }
  return {};
}

Result<double> TensorSums::total(std::span<const double> values, Consensus& consensus,
                                 Scope scope) {
  GW_TRY(spread(values, 1, consensus, scope));
  return std::accumulate(all_.begin(), all_.end(), 0.0);
}

}  // namespace gradwire
