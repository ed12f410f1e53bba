#include "collectives/engine/device_fill.h"

#include "device/ops.h"

namespace gradwire {

Status DeviceFill::enqueue() {
  const Stream stream = lane_->copies().to_device();
  GW_ASSIGN(point_, lane_->copies().make_point());
  untracked_ = true;
  GW_TRY(fill_neutral(op_, out_, stream));
  GW_TRY(point_->record(stream));
  untracked_ = false;
  return {};
}

Result<bool> DeviceFill::advance(Transport& /*transport*/, ScratchPool& /*pool*/) {
  const bool first = point_ == nullptr;
  if (first) GW_TRY(enqueue());
  GW_ASSIGN(passed_, point_->passed());
  return first || passed_;
}

// Work that has failed has ended.
bool DeviceFill::settled(Transport& /*transport*/) {
  if (untracked_) return false;
  if (point_ == nullptr || passed_) return true;
  const Result<bool> passed = point_->passed();
  passed_ = !passed.has_value() || passed.value();
  return passed_;
}

}  // namespace gradwire
