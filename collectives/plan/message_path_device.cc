// What becomes of an operation whose tensors are on a device (staging.h).
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/plan/message_path.h"
#include "device/ops.h"
#include "device/rank_device.h"

namespace gradwire {
namespace {

bool on_cuda(Device device) { return device.space == MemorySpace::kCuda; }

// Fused tensors are pieces of one, scaled where they are.
void fuse_on_device(MessageCall& planned, const OpCall& call, double factor) {
  std::vector<TensorView> tensors;
  for (const TensorView& tensor : call.tensors) {
    if (tensor.empty()) continue;
    tensors.push_back(tensor);
    planned.operands.staging->out.add(tensor.data(), tensor.elems());
  }
  if (tensors.empty()) return;
  planned.operands.in = planned.operands.out = tensors.front().data();
  if (factor == 1) return;
  planned.operated.before = [tensors = std::move(tensors), factor,
                             stream = planned.operands.stream] {
    for (const TensorView& tensor : tensors) GW_TRY(scale(tensor, factor, stream));
    return Status();
  };
}

void use_there(Operands& operands, Device in, Device out, const StagingLane& lane) {
  operands.in_device = on_cuda(in) ? in : Device{};
  operands.out_device = on_cuda(out) ? out : Device{};
  operands.scratch_device = on_cuda(in) ? in : operands.out_device;
  operands.stream = lane.copies().to_device();
}

void use_staged(Operands& operands, Device in, Device out, const Extent& extent) {
  Staging& staging = *operands.staging;
  operands.scratch_device = {MemorySpace::kPinnedHost, 0};
  operands.stream = {};
  // `in` is only read; its constness is set aside for the common type.
  if (on_cuda(in)) staging.in.add(const_cast<std::byte*>(operands.in), extent.in);
  if (on_cuda(out)) staging.out.add(operands.out, extent.out);
}

}  // namespace

Status MessagePath::place_on(Device device, MessageCall& planned,
                             const CheckedCall& checked) const {
  const OpCall& call = checked.call;
  const Extent& extent = checked.extent;
  Operands& operands = planned.operands;
  const Stream stream = operands.stream;  // the caller's
  GW_ASSIGN(std::shared_ptr<StagingLane> lane, group_.engine()->lanes()->of(device));
  GW_ASSIGN(std::unique_ptr<DevicePoint> ready, lane->copies().make_point());
  operands.staging = std::make_shared<Staging>(Staging{lane, std::move(ready)});
  const Device in = extent.in > 0 ? call.in.device() : Device{};
  const Device out = extent.out > 0 ? call.out.device() : Device{};
  if (call.kind == OpKind::kExclusiveScan && planned.operated.after && on_cuda(out)) {
    planned.operated.after = {};
    planned.fill = call.out;
  }
  if (call.kind == OpKind::kAllReduceFused) fuse_on_device(planned, call, checked.options.factor);
  const bool reachable = (!on_cuda(in) || others_can_reach(operands.in)) &&
                         (!on_cuda(out) || others_can_reach(operands.out));
  // What only moves needs no staging where the transport takes it.
  if (group_.engine()->takes_cuda_memory() && planned.signature.reduce.empty() && reachable) {
    use_there(operands, in, out, *lane);
  } else {
    use_staged(operands, in, out, extent);
  }
  planned.operated.before = [first = std::move(planned.operated.before), staging = operands.staging,
                             stream] {
    if (first) GW_TRY(first());
    return staging->ready->record(stream);
  };
  return {};
}

}  // namespace gradwire
