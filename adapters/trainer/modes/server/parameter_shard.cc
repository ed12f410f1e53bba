#include "adapters/trainer/modes/server/parameter_shard.h"

#include <algorithm>
#include <utility>

#include "adapters/trainer/modes/last_entries.h"
#include "adapters/trainer/modes/server/server_layout.h"
#include "base/check.h"
#include "base/elements.h"

namespace gradwire {

ParameterShard::ParameterShard(std::vector<KeyBlock> blocks, std::span<float> values,
                               const ShardOptions& options)
    : blocks_(std::move(blocks)),
      values_(values),
      damped_(options.damped),
      log_most_(options.log_most) {
  for (std::size_t b = 0; b < blocks_.size(); ++b) guards_.push_back(std::make_unique<Guarded>());
}

Result<std::unique_ptr<ParameterShard>> ParameterShard::create(const ParameterTable& table,
                                                               std::vector<KeyBlock> blocks,
                                                               std::span<float> values,
                                                               const ShardOptions& options) {
  std::unique_ptr<ParameterShard> shard(new ParameterShard(std::move(blocks), values, options));
  for (std::size_t b = 0; b < shard->blocks_.size(); ++b) {
    const KeyBlock& block = shard->blocks_[b];
    GW_ASSIGN(shard->guards_[b]->optimizer,
              optimizer_within(table, {block.offset, block.shape.elems()}, options.optimizer));
  }
  return shard;
}

void ParameterShard::read(std::span<float> out, std::span<std::int64_t> versions) {
  GW_CHECK(out.size() == values_.size() && versions.size() == blocks_.size());
  const std::int64_t origin = blocks_.front().offset;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const std::lock_guard lock(guards_[b]->mutex);
    std::ranges::copy(part_of(values_, blocks_[b], origin),
                      part_of(out, blocks_[b], origin).begin());
    versions[b] = guards_[b]->version;
  }
}

Status ParameterShard::apply(Application push, std::span<const float> gradient, double lr) {
  GW_CHECK(gradient.size() == values_.size() && push.base.size() == blocks_.size());
  const std::lock_guard order(order_);
  if (inside_.fetch_add(1) > 0) ++overlaps_;
  push.staleness = counts_.pushes - *std::ranges::min_element(push.base);
  push.rate = damped_ ? lr / static_cast<double>(std::max<std::int64_t>(push.staleness, 1)) : lr;

  const std::int64_t origin = blocks_.front().offset;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const std::lock_guard lock(guards_[b]->mutex);
    const std::span<float> x = part_of(values_, blocks_[b], origin);
    const std::span<const float> g = part_of(gradient, blocks_[b], origin);
    GW_TRY(guards_[b]->optimizer->step(x, g, push.rate));
    ++guards_[b]->version;
  }
  note(std::move(push));
  inside_.fetch_sub(1);
  return {};
}

void ParameterShard::note(Application push) {
  ++counts_.pushes;
  counts_.staleness += static_cast<double>(push.staleness);
  counts_.most_staleness = std::max(counts_.most_staleness, push.staleness);
  counts_.most_lead = std::max(counts_.most_lead, push.lead);
  keep_last(log_, log_most_, std::move(push));
}

std::vector<NamedTensor> ParameterShard::state() {
  std::vector<NamedTensor> all;
  saved_steps_.resize(guards_.size());
  for (std::size_t b = 0; b < guards_.size(); ++b) {
    saved_steps_[b] = guards_[b]->optimizer->steps();
    for (NamedTensor& entry : guards_[b]->optimizer->state()) {
      all.push_back({std::to_string(b) + "/" + entry.name, entry.tensor});
    }
  }
  all.push_back({"steps", view_of(std::span(saved_steps_))});
  return all;
}

void ParameterShard::adopt_state() {
  for (std::size_t b = 0; b < saved_steps_.size(); ++b) {
    guards_[b]->optimizer->set_steps(saved_steps_[b]);
  }
}

}  // namespace gradwire
