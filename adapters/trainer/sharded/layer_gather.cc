#include "adapters/trainer/sharded/layer_gather.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "adapters/trainer/replicas.h"
#include "base/text.h"

namespace gradwire {

LayerGather::LayerGather(const TrainerMemory& memory, Prepare prepare)
    : memory_(memory), prepare_(std::move(prepare)), users_(memory.table.size(), 0) {}

Result<std::unique_ptr<LayerGather>> LayerGather::create(Communicator& communicator,
                                                         const Registry& registry,
                                                         AggregatorOptions options,
                                                         const TrainerMemory& memory,
                                                         Prepare prepare) {
  options.form = AggregateForm::kAllGather;
  options.traffic = TrafficClass::kParameters;
  options.bucket_bytes = 1;  // every tensor by itself, without memory to pack it in
  std::unique_ptr<LayerGather> made(new LayerGather(memory, std::move(prepare)));
  GW_ASSIGN(made->forward_, made->make_lane(communicator, registry, options, memory.forward));
  GW_ASSIGN(made->back_, made->make_lane(communicator, registry, options, memory.back));
  return made;
}

// Buckets travel from the last tensor added to the first: what is opened first is added last.
Result<LayerGather::Lane> LayerGather::make_lane(Communicator& communicator,
                                                 const Registry& registry,
                                                 const AggregatorOptions& options,
                                                 std::vector<LayerTensors> openings) {
  Lane lane;
  lane.openings = std::move(openings);
  std::vector<int> order;
  for (const LayerTensors& opening : lane.openings) {
    lane.entry.push_back(static_cast<int>(order.size()));
    for (int index = opening.first; index < opening.end; ++index) order.push_back(index);
  }
  lane.entries = static_cast<int>(order.size());
  GW_ASSIGN(lane.gather, Aggregator::create(communicator, registry, options));
  const std::vector<NamedTensor> tensors = memory_.parameters.named();
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    const NamedTensor& named = tensors[static_cast<std::size_t>(*at)];
    // A tied tensor travels once for every layer that reads it.
    const auto before = std::count(order.rbegin(), at, *at);
    const std::string again = before == 0 ? "" : "@" + std::to_string(before + 1);
    GW_TRY(lane.gather->add(named.name + again, named.tensor));
  }
  return lane;
}

// Sends for the next opening, and for the one after it that has tensors.
Status LayerGather::ask(Lane& lane) {
  const auto has_tensors = [](const LayerTensors& opening) { return opening.first < opening.end; };
  const auto ahead = [&] {
    const auto first = lane.openings.begin() + static_cast<std::ptrdiff_t>(lane.next) + 1;
    const auto end = lane.openings.begin() + static_cast<std::ptrdiff_t>(lane.asked);
    return first < end && std::any_of(first, end, has_tensors);
  };
  for (; lane.asked < lane.openings.size() && !ahead(); ++lane.asked) {
    const LayerTensors& opening = lane.openings[lane.asked];
    for (int index = opening.first; index < opening.end; ++index) {
      ++users_[static_cast<std::size_t>(index)];
      memory_.parameters.take(index);
      GW_TRY(prepare_(index));
      const int entry = lane.entry[lane.asked] + index - opening.first;
      GW_TRY(lane.gather->ready(lane.entries - 1 - entry, stream()));
    }
  }
  return {};
}

Status LayerGather::await(Lane& lane, std::size_t number) {
  const LayerTensors& opening = lane.openings[number];
  for (int index = opening.first; index < opening.end; ++index) {
    const int entry = lane.entry[number] + index - opening.first;
    GW_ASSIGN(const bool there, lane.gather->arrived(lane.entries - 1 - entry, true));
    if (there) continue;
    return {Code::kInternal, "a layer's parameters wait for another layer's"};
  }
  return {};
}

Status LayerGather::open(std::size_t layer, Way way) {
  whole_ = false;
  Lane& now = lane(way);
  if (now.next >= now.openings.size() || now.openings[now.next].layer != layer) {
    return {Code::kInternal, format("layer %zu is opened out of turn", layer)};
  }
  GW_TRY(ask(now));
  const auto start = std::chrono::steady_clock::now();
  const Status status = await(now, now.next++);
  waited_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return status;
}

Status LayerGather::close(std::size_t layer, Way way) {
  Lane& now = lane(way);
  const auto opening = std::find_if(now.openings.begin(), now.openings.end(),
                                    [layer](const LayerTensors& o) { return o.layer == layer; });
  if (opening == now.openings.end()) {
    return {Code::kInternal, format("layer %zu is closed and was not open", layer)};
  }
  for (int index = opening->first; index < opening->end; ++index) {
    if (--users_[static_cast<std::size_t>(index)] == 0) memory_.parameters.drop(index);
  }
  return ++now.closed == now.openings.size() ? end_pass(now) : Status();
}

Status LayerGather::end_pass(Lane& lane) {
  lane.next = lane.asked = lane.closed = 0;
  return lane.entries > 0 ? lane.gather->finish(stream()) : Status();
}

Status LayerGather::gather_all() {
  if (whole_) return {};
  for (const LayerTensors& opening : forward_.openings) {
    GW_TRY(open(opening.layer, Way::kForward));
  }
  std::ranges::fill(users_, 0);  // nobody gives them back
  whole_ = true;
  return end_pass(forward_);
}

Status LayerGather::visit(const std::function<Status(int index)>& visit) {
  for (const LayerTensors& opening : forward_.openings) {
    GW_TRY(open(opening.layer, Way::kForward));
    for (int index = opening.first; index < opening.end; ++index) GW_TRY(visit(index));
    GW_TRY(close(opening.layer, Way::kForward));
  }
  return {};
}

AggregateStats LayerGather::stats() const {
  AggregateStats both = forward_.gather->stats() + back_.gather->stats();
  both.exposed_seconds += waited_seconds_;
  return both;
}

}  // namespace gradwire
