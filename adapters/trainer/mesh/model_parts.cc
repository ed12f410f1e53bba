#include "adapters/trainer/mesh/model_parts.h"

#include <algorithm>

#include "base/elements.h"
#include "device/host_copy.h"
#include "trainer/parameters.h"
#include "trainer/precision.h"

namespace gradwire {
namespace {

TensorView tensor_named(std::span<const NamedTensor> tensors, const std::string& name) {
  return std::ranges::find(tensors, name, &NamedTensor::name)->tensor;
}

std::span<float> floats_named(std::span<const NamedTensor> tensors, const std::string& name) {
  return elements<float>(tensor_named(tensors, name));
}

// A tensor in fp32 or 16 bits, wherever it lies, in fp32 on the host.
Status read_wide(const TensorView& tensor, std::vector<float>& values) {
  values.resize(static_cast<std::size_t>(tensor.elems()));
  GW_ASSIGN(const HostCopy copy, HostCopy::of(tensor));
  if (tensor.dtype() == DType::kF32) {
    std::ranges::copy(copy.bytes(), std::as_writable_bytes(std::span(values)).begin());
    return {};
  }
  const auto* const halves = reinterpret_cast<const std::uint16_t*>(copy.bytes().data());
  load(precision_of(tensor.dtype()), std::span(halves, values.size()), values);
  return {};
}

// The elements of a part, to or from their places among those of the whole tensor.
template <typename Move>
void for_each_run(const ParameterInfo& part, const Move& move) {
  const TensorBox box = box_of(part);
  for_each_common_run(box, TensorBox::of(box.whole, box.grid), move);
}

void put(const ParameterInfo& part, std::span<const float> from, std::span<float> whole) {
  for_each_run(part, [&](const CommonRun& run) {
    std::copy_n(from.begin() + run.in_a, run.elems, whole.begin() + run.in_b);
  });
}

void take(const ParameterInfo& part, std::span<const float> whole, std::span<float> to) {
  for_each_run(part, [&](const CommonRun& run) {
    std::copy_n(whole.begin() + run.in_b, run.elems, to.begin() + run.in_a);
  });
}

ParameterTable all_tensors(const Model<float>& model) {
  ParameterTable all = model.parameters();
  for (const ParameterInfo& info : model.buffers()) all.push_back(info);
  return all;
}

}  // namespace

Result<ModelParts> ModelParts::create(const Model<float>& whole, const ModelDivision& division,
                                      MeshGroups& groups) {
  const MeshSizes sizes = groups.sizes();
  Communicator* group = nullptr;
  if (sizes.model_ranks() > 1) {
    GW_ASSIGN(group, groups.group(MeshScope::kModel));
  }
  ModelParts made(whole, group);
  std::vector<ParameterTable> held;
  for (int pp = 0; pp < sizes.pp; ++pp) {
    for (int tp = 0; tp < sizes.tp; ++tp) {
      const Model<float>& shared =
          division.shared.empty() ? whole : division.shared[static_cast<std::size_t>(tp)];
      made.parts_.push_back(division.layers.empty()
                                ? shared
                                : shared.part(division.layers[static_cast<std::size_t>(pp)]));
      held.push_back(made.parts_.back().parameters());
    }
  }
  made.share_ = share_of_tables(whole.parameters(), held, made.rank());
  return made;
}

WholeModel ModelParts::whole_model() const {
  WholeModel all;
  all.parameters.resize(static_cast<std::size_t>(parameter_elems(whole_->parameters())));
  all.buffers.resize(static_cast<std::size_t>(parameter_elems(whole_->buffers())));
  all.tensors = named_tensors(whole_->parameters(), all.parameters);
  for (NamedTensor& buffer : named_tensors(whole_->buffers(), all.buffers)) {
    all.tensors.push_back(std::move(buffer));
  }
  return all;
}

Status ModelParts::spread(Communicator& world, const WholeModel& whole,
                          std::span<const NamedTensor> own) const {
  const ParameterTable mine = all_tensors(model());
  std::vector<float> memory;  // of one tensor at a time
  std::vector<float> part;
  for (const ParameterInfo& info : all_tensors(*whole_)) {
    memory.resize(static_cast<std::size_t>(info.shape.elems()));
    const std::span<float> sent =
        world.rank() == 0 ? floats_named(whole.tensors, info.name) : std::span(memory);
    GW_ASSIGN(Work work, world.broadcast(view_of(sent), 0));
    GW_TRY(work.wait().with_context("parts of the model: " + info.name));
    const auto here = std::ranges::find(mine, info.name, &ParameterInfo::name);
    if (here == mine.end()) continue;
    part.resize(static_cast<std::size_t>(here->shape.elems()));
    take(*here, sent, part);
    GW_TRY(write_from_host(std::as_bytes(std::span(part)), tensor_named(own, info.name)));
  }
  return {};
}

std::vector<ParameterInfo> ModelParts::handed_by(int rank) const {
  std::vector<ParameterInfo> handed;
  for (const ParameterInfo& info : all_tensors(parts_[static_cast<std::size_t>(rank)])) {
    const bool earlier = std::ranges::any_of(
        std::span(parts_).first(static_cast<std::size_t>(rank)), [&](const Model<float>& other) {
          const ParameterTable there = all_tensors(other);
          const auto same = std::ranges::find(there, info.name, &ParameterInfo::name);
          return same != there.end() && box_of(*same) == box_of(info);
        });
    if (!earlier) handed.push_back(info);
  }
  return handed;
}

Result<WholeModel> ModelParts::gather(std::span<const NamedTensor> own) const {
  const std::string what = "parts of the model: ";
  std::vector<float> memory;  // of one tensor at a time
  if (rank() != 0) {
    for (const ParameterInfo& info : handed_by(rank())) {
      GW_TRY(read_wide(tensor_named(own, info.name), memory));
      GW_ASSIGN(Work work, group_->send(view_of(std::span(memory)), 0));
      GW_TRY(work.wait().with_context(what + info.name));
    }
    return WholeModel();
  }
  WholeModel all = whole_model();
  for (int rank = 0; rank < static_cast<int>(parts_.size()); ++rank) {
    for (const ParameterInfo& info : handed_by(rank)) {
      if (rank == 0) {
        GW_TRY(read_wide(tensor_named(own, info.name), memory));
      } else {
        memory.resize(static_cast<std::size_t>(info.shape.elems()));
        GW_ASSIGN(Work work, group_->recv(view_of(std::span(memory)), rank));
        GW_TRY(work.wait().with_context(what + info.name));
      }
      put(info, memory, floats_named(all.tensors, info.name));
    }
  }
  return all;
}

}  // namespace gradwire
