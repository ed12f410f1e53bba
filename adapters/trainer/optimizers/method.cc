#include "adapters/trainer/optimizers/method.h"

#include <algorithm>
#include <cstring>

#include "adapters/trainer/optimizers/demo.h"
#include "adapters/trainer/optimizers/diloco.h"
#include "adapters/trainer/optimizers/onebit_adam.h"
#include "adapters/trainer/optimizers/onebit_lamb.h"
#include "adapters/trainer/optimizers/zero_one_adam.h"
#include "base/elements.h"
#include "base/text.h"

namespace gradwire {
namespace {

const NamedTensor* find(const std::vector<NamedTensor>& tensors, const std::string& name) {
  for (const NamedTensor& named : tensors) {
    if (named.name == name) return &named;
  }
  return nullptr;
}

// The entry `wanted` of one old rank's state, of the same type and size.
Result<ConstTensorView> entry_of(const std::vector<NamedTensor>& tensors,
                                 const NamedTensor& wanted) {
  const NamedTensor* found = find(tensors, wanted.name);
  if (found == nullptr) {
    return Status(Code::kInvalidArgument, "state: '" + wanted.name + "' is missing");
  }
  const ConstTensorView tensor = found->tensor;
  if (tensor.dtype() != wanted.tensor.dtype() || tensor.elems() != wanted.tensor.elems()) {
    return Status(Code::kInvalidArgument,
                  "state: '" + wanted.name + "' is " + to_string(tensor.shape()) + " of " +
                      std::string(to_string(tensor.dtype())) + " (expected " +
                      to_string(wanted.tensor.shape()) + " of " +
                      std::string(to_string(wanted.tensor.dtype())) + ")");
  }
  return tensor;
}

void copy_into(const TensorView& to, const ConstTensorView& from) {
  const auto bytes = from.bytes();
  if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
}

Status bad(const MethodOptions& o, const char* option, double seen, const char* wanted) {
  return Status(Code::kInvalidArgument,
                format("optimizer %s: %s %g (expected %s)", o.name.c_str(), option, seen, wanted));
}

struct CountRule {
  const char* name;
  std::int64_t MethodOptions::*value;
  std::int64_t least;
  std::int64_t most;
  const char* wanted;
};

Status check(const MethodOptions& o) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  static constexpr CountRule kRules[] = {
      {"freeze", &MethodOptions::freeze, 1, kMany, "at least 1 step"},
      {"variance_doubles", &MethodOptions::variance_doubles, 1, kMany, "at least 1"},
      {"local_doubles", &MethodOptions::local_doubles, 1, kMany, "at least 1"},
      {"local_most", &MethodOptions::local_most, 1, kMany, "at least 1 step"},
      {"chunk", &MethodOptions::chunk, 1, 64, "1 to 64"},
      {"topk", &MethodOptions::topk, 1, 4096, "1 to 4096"},
      {"inner_steps", &MethodOptions::inner_steps, 1, kMany, "at least 1 step"}};
  for (const CountRule& rule : kRules) {
    const std::int64_t value = o.*rule.value;
    if (value < rule.least || value > rule.most) {
      return bad(o, rule.name, static_cast<double>(value), rule.wanted);
    }
  }
  if (!(o.outer_lr >= 0 && o.outer_lr < 1e6)) return bad(o, "outer_lr", o.outer_lr, "0 to 1e6");
  // The checks of names and ranges that all optimizers share.
  OptimizerOptions shared = o.optimizer;
  shared.name = "adamw";
  const auto probe = make_optimizer(shared, {});
  return probe.has_value() ? Status() : probe.error().with_context(o.name);
}

}  // namespace

const std::vector<std::string>& method_names() {
  static const std::vector<std::string> names{"onebit_adam", "zero_one_adam", "onebit_lamb", "demo",
                                              "diloco"};
  return names;
}

Method::Method(Parts parts)
    : communicator_(parts.communicator),
      options_(std::move(parts.options)),
      slices_(std::move(parts.slices)),
      tensors_(std::move(parts.gradients)),
      parameters_(parts.parameters),
      exact_(std::move(parts.exact)) {
  if (!tensors_.empty()) {
    gradients_ = {reinterpret_cast<float*>(tensors_[0].tensor.data()),
                  static_cast<std::size_t>(slice_elems(slices_))};
  }
}

// Momenta and updates are exchanged, which nobody but the method can step from.
Demands Method::demands_of(const MethodOptions& options) {
  Demands demands = DataParallelStrategy::demands_of(options.parallel);
  demands.own_optimizer = true;
  demands.takes_narrow = false;
  demands.tells_arrival = false;
  return demands;
}

AggregateStats Method::stats() const {
  AggregateStats all = exact_->stats();
  for (const auto& [name, aggregator] : exchanges_) {
    all = all + aggregator->stats();
  }
  return all;
}

TrafficBytes Method::traffic_bytes() const {
  TrafficBytes sent = exact_->traffic_bytes();
  for (const auto& [name, aggregator] : exchanges_) {
    bytes_of(sent, TrafficClass::kOptimizer) += aggregator->stats().wire_bytes;
  }
  return sent;
}

std::vector<std::string> Method::warnings() const {
  std::vector<std::string> all = exact_->warnings();
  for (const auto& [name, aggregator] : exchanges_) {
    for (std::string& warning : aggregator->warnings()) all.push_back(name + ": " + warning);
  }
  return all;
}

Result<Aggregator*> Method::open_exchange(const std::string& name, const std::string& compressor,
                                          bool as_one) {
  AggregatorOptions options = options_.parallel.aggregator;
  options.compressor = compressor;
  options.traffic = TrafficClass::kOptimizer;
  auto made = Aggregator::create(*communicator_, Registry::builtin(), options);
  if (!made.has_value()) return made.error().with_context(options_.name + ": " + name);
  std::unique_ptr<Aggregator> aggregator = std::move(made).value();
  if (as_one) {
    GW_TRY(aggregator->add("all", view_of(gradients_)));
  } else {
    for (const NamedTensor& named : tensors_) GW_TRY(aggregator->add(named.name, named.tensor));
  }
  exchanges_.emplace_back(name, std::move(aggregator));
  return exchanges_.back().second.get();
}

Status Method::exchange_all(Aggregator& through, int tensors) {
  for (int index = tensors; index-- > 0;) GW_TRY(through.ready(index));
  return through.finish();
}

std::vector<NamedTensor> Method::state() {
  if (!replicas_equal()) return {};
  counters_[0] = steps();
  std::vector<NamedTensor> all;
  for (Kept& entry : kept()) all.push_back(std::move(entry.named));
  all.push_back({options_.name + ".counters", view_of(std::span(counters_))});
  const auto add = [&all](const std::string& prefix, Aggregator& aggregator) {
    for (NamedTensor& named : aggregator.state()) {
      all.push_back({prefix + named.name, named.tensor});
    }
  };
  add("exact/", exact_->aggregator());
  for (const auto& [name, aggregator] : exchanges_) add(name + "/", *aggregator);
  return all;
}

Status Method::load_kept(std::span<const std::vector<NamedTensor>> by_old_rank, const Kept& entry) {
  const bool as_many = by_old_rank.size() == static_cast<std::size_t>(communicator_->size());
  if (!entry.local || as_many) {
    const auto from = entry.local ? static_cast<std::size_t>(communicator_->rank()) : 0;
    GW_ASSIGN(const ConstTensorView tensor, entry_of(by_old_rank[from], entry.named));
    copy_into(entry.named.tensor, tensor);
    return {};
  }
  const auto to = elements<float>(entry.named.tensor);
  std::vector<double> sums(to.size());
  for (const std::vector<NamedTensor>& old : by_old_rank) {
    GW_ASSIGN(const ConstTensorView tensor, entry_of(old, entry.named));
    const auto from = elements<float>(tensor);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(from[i]);
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    to[i] = static_cast<float>(sums[i] / static_cast<double>(by_old_rank.size()));
  }
  return {};
}

Status Method::load_exchange(std::span<const std::vector<NamedTensor>> by_old_rank,
                             const std::string& prefix, Aggregator& aggregator) {
  std::vector<std::vector<NamedTensor>> own;
  for (const std::vector<NamedTensor>& old : by_old_rank) {
    own.emplace_back();
    for (const NamedTensor& named : old) {
      if (!named.name.starts_with(prefix)) continue;
      own.back().push_back({named.name.substr(prefix.size()), named.tensor});
    }
  }
  return aggregator.load_state(own).with_context(prefix);
}

Status Method::load_state(std::span<const std::vector<NamedTensor>> by_old_rank) {
  if (by_old_rank.empty()) {
    return Status(Code::kInvalidArgument, "state of no rank (expected at least one)");
  }
  for (const Kept& entry : kept()) GW_TRY(load_kept(by_old_rank, entry));
  GW_TRY(load_kept(by_old_rank, {{options_.name + ".counters", view_of(std::span(counters_))}}));
  GW_TRY(load_exchange(by_old_rank, "exact/", exact_->aggregator()));
  for (const auto& [name, aggregator] : exchanges_) {
    GW_TRY(load_exchange(by_old_rank, name + "/", *aggregator));
  }
  if (counters_[0] < 0) return bad(options_, "saved steps", -1, "0 or more");
  set_steps(counters_[0]);
  return loaded();
}

Result<std::unique_ptr<Method>> make_method(MeshGroups groups, const Registry& registry,
                                            const MethodOptions& options,
                                            const ParameterTable& table,
                                            std::vector<NamedTensor> parameters,
                                            const std::vector<NamedTensor>& gradients) {
  GW_TRY(check(options));
  if (!gradients.empty() && gradients[0].tensor.device().space == MemorySpace::kCuda) {
    return Status(
        Code::kUnsupported,
        "optimizer " + options.name + " with gradients on a CUDA device (expected on the host)");
  }
  if (options.parallel.reduce_each) {
    return Status(Code::kInvalidArgument,
                  "optimizer " + options.name +
                      ", which exchanges something else than gradients, with reduce-each (expected "
                      "sum-then-reduce)");
  }
  DataParallelOptions exact = options.parallel;
  exact.aggregator.compressor = "none";
  GW_ASSIGN(Communicator* const replicas, groups.group(MeshScope::kDp));
  Method::Parts parts{replicas, options, whole_slices(table), {}, gradients, nullptr};
  if (!parameters.empty()) {
    parts.parameters = {reinterpret_cast<float*>(parameters[0].tensor.data()),
                        static_cast<std::size_t>(slice_elems(parts.slices))};
  }
  GW_ASSIGN(parts.exact, DataParallelStrategy::create(std::move(groups), registry, exact,
                                                      std::move(parameters), gradients));
  if (options.name == "onebit_adam") return OnebitAdam::create(std::move(parts));
  if (options.name == "zero_one_adam") return ZeroOneAdam::create(std::move(parts));
  if (options.name == "onebit_lamb") return OnebitLamb::create(std::move(parts));
  if (options.name == "demo") return Demo::create(std::move(parts));
  if (options.name == "diloco") return DiLoCo::create(std::move(parts));
  return Status(Code::kInvalidArgument,
                "unknown optimizer '" + options.name +
                    "' (expected onebit_adam, zero_one_adam, onebit_lamb, demo or diloco)");
}

}  // namespace gradwire
