// A policy whose groups know nothing of each other: a table of logits, [group][device].
#pragma once

#include <vector>

#include "planner/search/policy/adam_ascent.h"
#include "planner/search/policy/placement_policy.h"
#include "planner/search/policy/softmax.h"

namespace gradwire {

class TablePolicy final : public PlacementPolicy {
 public:
  TablePolicy(std::size_t groups, int devices)
      : devices_(static_cast<std::size_t>(devices)),
        logits_(groups * devices_),
        gradient_(logits_.size()),
        adam_(logits_.size(), kStepSize) {}

  std::vector<int> draw(SearchDraws& draws) override {
    std::vector<int> devices;
    for (std::size_t group = 0; group < logits_.size() / devices_; ++group) {
      devices.push_back(draw_one(probabilities(group), draws));
    }
    return devices;
  }
  void add(const std::vector<int>& devices, double weight, double entropy) override {
    for (std::size_t group = 0; group < devices.size(); ++group) {
      const std::vector<double> along =
          logit_gradient(probabilities(group), devices[group], weight, entropy);
      for (std::size_t device = 0; device < devices_; ++device) {
        gradient_[group * devices_ + device] += along[device];
      }
    }
  }
  void step() override { adam_.step(logits_, gradient_); }

 private:
  static constexpr double kStepSize = 0.15;

  std::vector<double> probabilities(std::size_t group) const {
    const auto begin = logits_.begin() + static_cast<std::ptrdiff_t>(group * devices_);
    std::vector<double> all(begin, begin + static_cast<std::ptrdiff_t>(devices_));
    softmax(all);
    return all;
  }

  std::size_t devices_;
  std::vector<double> logits_;
  std::vector<double> gradient_;
  AdamAscent adam_;
};

}  // namespace gradwire
