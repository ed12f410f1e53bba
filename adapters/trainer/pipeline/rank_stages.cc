#include "adapters/trainer/pipeline/rank_stages.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/elements.h"
#include "device/host_copy.h"
#include "trainer/parameters.h"
#include "trainer/precision.h"
#include "trainer/stages/stage_source.h"

namespace gradwire {
namespace {

// Names of a part's tensors, in the order in which its rank sends them.
std::vector<std::string> tensor_names(const Model<float>& part) {
  std::vector<std::string> names;
  for (const ParameterInfo& info : part.parameters()) names.push_back(info.name);
  for (const ParameterInfo& info : part.buffers()) names.push_back(info.name);
  return names;
}

TensorView tensor_of(std::span<const NamedTensor> tensors, const std::string& name) {
  return std::ranges::find(tensors, name, &NamedTensor::name)->tensor;
}

// A tensor in fp32 or 16 bits, wherever it lies.
Status read_wide(const TensorView& tensor, std::span<float> values) {
  GW_ASSIGN(const HostCopy copy, HostCopy::of(tensor));
  if (tensor.dtype() == DType::kF32) {
    std::ranges::copy(copy.bytes(), std::as_writable_bytes(values).begin());
    return {};
  }
  const auto* const halves = reinterpret_cast<const std::uint16_t*>(copy.bytes().data());
  load(precision_of(tensor.dtype()), std::span(halves, values.size()), values);
  return {};
}

}  // namespace

Result<std::unique_ptr<RankStages>> RankStages::create(const Model<float>& whole,
                                                       const PipelineSchedule& schedule,
                                                       MeshGroups& groups, bool gathers,
                                                       const Stream& stream) {
  GW_ASSIGN(Communicator* const group, groups.group(MeshScope::kPp));
  const PipelineLinks links = links_of(*group, stream.device);
  GW_ASSIGN(StagePlan plan, plan_stages(whole, schedule, group->rank(), {.links = links}, gathers));
  GW_ASSIGN(CommunicatorTransfers transfers,
            CommunicatorTransfers::create(*group, plan.schedule, links, stream));
  const int last = plan.schedule.stages() - 1;
  const bool is_end = plan.stages.front().stage == 0 || plan.stages.back().stage == last;
  Communicator* ends = nullptr;
  if (!plan.shared.empty() && is_end) {
    GW_ASSIGN(ends, groups.group(MeshScope::kEmbed));
  }
  return std::unique_ptr<RankStages>(
      new RankStages(whole, *group, ends, std::move(plan), std::move(transfers), stream));
}

SourceChoice RankStages::source() {
  return {[this](const SourceParts& parts) {
            return StageSource::create(
                parts, plan_, transfers_, [this](const TensorView& sum) -> Status {
                  const OpOptions behind{.deadline = {}, .stream = stream_};
                  GW_ASSIGN(Work work, ends_->all_reduce(sum, ReduceOp::kSum, behind));
                  tied_bytes_ += sum.bytes().size();  // between two ranks
                  return work.wait().with_context("tied parameters");
                });
          },
          plan_.at_a_time};
}

TrafficBytes RankStages::traffic_bytes() const {
  TrafficBytes all = transfers_.sent();
  bytes_of(all, TrafficClass::kGradients) += tied_bytes_;
  return all;
}

Model<float> RankStages::part_of(int rank) const {
  std::vector<LayerRange> ranges;
  const std::vector<int>& rank_of = plan_.schedule.rank_of.front();
  for (std::size_t stage = 0; stage < plan_.cuts.size(); ++stage) {
    if (rank_of[stage] == rank) ranges.push_back(plan_.cuts[stage]);
  }
  return whole_.part(ranges);
}

WholeModel RankStages::whole_model() const {
  WholeModel all;
  all.parameters.resize(static_cast<std::size_t>(parameter_elems(whole_.parameters())));
  all.buffers.resize(static_cast<std::size_t>(parameter_elems(whole_.buffers())));
  all.tensors = named_tensors(whole_.parameters(), all.parameters);
  for (NamedTensor& buffer : named_tensors(whole_.buffers(), all.buffers)) {
    all.tensors.push_back(std::move(buffer));
  }
  return all;
}

Status RankStages::spread(Communicator& world, const WholeModel& whole,
                          std::span<const NamedTensor> own) const {
  std::vector<float> memory;  // of one tensor at a time
  for (const ParameterTable* table : {&whole_.parameters(), &whole_.buffers()}) {
    for (const ParameterInfo& info : *table) {
      if (world.rank() != 0) memory.resize(static_cast<std::size_t>(info.shape.elems()));
      const TensorView sent =
          world.rank() == 0 ? tensor_of(whole.tensors, info.name) : view_of(std::span(memory));
      GW_ASSIGN(Work work, world.broadcast(sent, 0));
      GW_TRY(work.wait().with_context("stages: " + info.name));
      const auto mine = std::ranges::find(own, info.name, &NamedTensor::name);
      if (mine == own.end()) continue;
      GW_TRY(write_from_host(ConstTensorView(sent).bytes(), mine->tensor));
    }
  }
  return {};
}

Result<WholeModel> RankStages::gather(std::span<const NamedTensor> own) {
  std::vector<float> values;  // of one tensor at a time
  if (group_.rank() != 0) {
    for (const std::string& name : tensor_names(part_)) {
      const TensorView tensor = tensor_of(own, name);
      values.resize(static_cast<std::size_t>(tensor.elems()));
      GW_TRY(read_wide(tensor, values));
      GW_ASSIGN(Work work, group_.send(view_of(std::span(values)), 0));
      GW_TRY(work.wait().with_context("stages: " + name));
    }
    return WholeModel();
  }
  WholeModel all = whole_model();
  for (const NamedTensor& mine : own) {
    GW_TRY(read_wide(mine.tensor, elements<float>(tensor_of(all.tensors, mine.name))));
  }
  for (int rank = 1; rank < group_.size(); ++rank) {
    const Model<float> part = part_of(rank);
    for (const std::string& name : tensor_names(part)) {
      GW_ASSIGN(Work work, group_.recv(tensor_of(all.tensors, name), rank));
      GW_TRY(work.wait().with_context("stages: " + name));
    }
  }
  return all;
}

}  // namespace gradwire
