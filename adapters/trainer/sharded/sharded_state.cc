// What sharded training keeps between steps, saved and loaded on any number of ranks.
#include <algorithm>
#include <cstring>
#include <string>

#include "adapters/trainer/sharded/sharded.h"
#include "base/elements.h"
#include "base/text.h"
#include "device/host_copy.h"

namespace gradwire {
namespace {

constexpr const char* kSteps = "sharded.steps";
constexpr const char* kReduce = "reduce/";
constexpr const char* kGather = "gather/";

using States = std::span<const std::vector<NamedTensor>>;

Result<ConstTensorView> find(const std::vector<NamedTensor>& state, const NamedTensor& own) {
  for (const NamedTensor& entry : state) {
    if (entry.name != own.name) continue;
    if (entry.tensor.elems() == 0 || entry.tensor.dtype() == own.tensor.dtype()) {
      return ConstTensorView(entry.tensor);
    }
  }
  return Status(Code::kInvalidArgument,
                "state '" + own.name + "' is missing on an old rank, or of another type");
}

Status too_few(const NamedTensor& own, std::int64_t seen) {
  return {Code::kInvalidArgument,
          format("state '%s': %lld elements (expected %lld)", own.name.c_str(),
                 static_cast<long long>(seen), static_cast<long long>(own.tensor.elems()))};
}

Status copy_whole(const NamedTensor& own, const std::vector<NamedTensor>& old) {
  GW_ASSIGN(const ConstTensorView from, find(old, own));
  if (from.elems() != own.tensor.elems()) return too_few(own, from.elems());
  return write_from_host(from.bytes(), own.tensor);
}

// The old ranks' slices, one after another, are the tensor; a new rank's is its piece of it.
Status join_slices(const NamedTensor& own, States old, int rank, int size) {
  if (old.size() == static_cast<std::size_t>(size)) {
    return copy_whole(own, old[static_cast<std::size_t>(rank)]);
  }
  std::vector<std::byte> all;
  for (const std::vector<NamedTensor>& state : old) {
    GW_ASSIGN(const ConstTensorView from, find(state, own));
    all.insert(all.end(), from.bytes().begin(), from.bytes().end());
  }
  const auto width = static_cast<std::int64_t>(size_of(own.tensor.dtype()));
  const Range mine = piece(static_cast<std::int64_t>(all.size()) / width, size, rank);
  if (mine.size() != own.tensor.elems()) return too_few(own, mine.size());
  const std::span<const std::byte> bytes(all);
  return write_from_host(bytes.subspan(static_cast<std::size_t>(mine.begin * width),
                                       static_cast<std::size_t>(mine.size() * width)),
                         own.tensor);
}

// The entries whose names begin with `prefix`, without it.
std::vector<std::vector<NamedTensor>> behind(const std::string& prefix, States states) {
  std::vector<std::vector<NamedTensor>> all;
  for (const std::vector<NamedTensor>& state : states) {
    all.emplace_back();
    for (const NamedTensor& entry : state) {
      if (!entry.name.starts_with(prefix)) continue;
      all.back().push_back({entry.name.substr(prefix.size()), entry.tensor});
    }
  }
  return all;
}

}  // namespace

// Elements of a shard as a tensor.
TensorView ShardedHook::view(std::span<float> of_shard, Device device) {
  const TensorView here = view_of(of_shard);
  return {here.data(), here.shape(), here.dtype(), device};
}

std::vector<NamedTensor> ShardedHook::own_slices() {
  std::vector<NamedTensor> all;
  for (int index = 0; index < layout_.tensors(); ++index) {
    const TensorSlice& slice = layout_.slices()[static_cast<std::size_t>(index)];
    all.push_back({slice.name + ".shard", view(layout_.in_shard(shard(), index), shard_.device())});
  }
  for (NamedTensor& named : inner_->state()) all.push_back(std::move(named));
  return all;
}

std::vector<NamedTensor> ShardedHook::state() {
  std::vector<NamedTensor> all = own_slices();
  saved_steps_ = inner_->steps();
  all.push_back({kSteps, view_of(std::span(&saved_steps_, 1))});
  for (NamedTensor& named : reduce_->state()) all.push_back({kReduce + named.name, named.tensor});
  if (gathers_layers()) {
    // What a gather of the other stages has: its steps and no scales. So they can go on from it.
    all.push_back({std::string(kGather) + "aggregator.step", view_of(std::span(&saved_steps_, 1))});
    all.push_back(
        {std::string(kGather) + "aggregator.scales", view_of(std::span<double>(no_scales_))});
    return all;
  }
  for (NamedTensor& named : gather_->state()) all.push_back({kGather + named.name, named.tensor});
  return all;
}

Result<std::optional<std::vector<TensorPart>>> ShardedHook::own_parameters() {
  std::optional<std::vector<TensorPart>> parts;
  if (!gathers_layers()) return parts;
  std::span<float> own = shard();
  Device lies = shard_.device();
  if (options_.parameters != "none") {
    GW_ASSIGN(travelled_, memory_.places.device.allocate(MemoryClass::kOther, own.size_bytes()));
    own = floats(travelled_);
    lies = travelled_.device();
    GW_TRY(layers_->visit([&](int index) {
      return device().copy(layout_.in_whole(memory_.parameters.all(), index),
                           layout_.in_shard(own, index));
    }));
  }
  parts.emplace();
  for (int index = 0; index < layout_.tensors(); ++index) {
    const TensorSlice& slice = layout_.slices()[static_cast<std::size_t>(index)];
    if (slice.elems == 0) continue;
    parts->push_back({slice.name, memory_.table[static_cast<std::size_t>(index)].shape, slice.begin,
                      ConstTensorView(view(layout_.in_shard(own, index), lies))});
  }
  return parts;
}

Status ShardedHook::load_state(States by_old_rank) {
  if (by_old_rank.empty()) return {Code::kInvalidArgument, "no rank's state was given"};
  Communicator& communicator = replicas_.communicator();
  for (const NamedTensor& own : own_slices()) {
    GW_TRY(join_slices(own, by_old_rank, communicator.rank(), communicator.size()));
  }
  GW_TRY(copy_whole({kSteps, view_of(std::span(&saved_steps_, 1))}, by_old_rank.front()));
  if (saved_steps_ < 0) {
    return {Code::kInvalidArgument, format("state '%s': %lld (expected 0 or more)", kSteps,
                                           static_cast<long long>(saved_steps_))};
  }
  inner_->set_steps(saved_steps_);
  steps_ = saved_steps_;
  GW_TRY(reduce_->load_state(behind(kReduce, by_old_rank)).with_context(kReduce));
  if (gather_) GW_TRY(gather_->load_state(behind(kGather, by_old_rank)).with_context(kGather));
  loaded_ = true;
  return {};
}

}  // namespace gradwire
