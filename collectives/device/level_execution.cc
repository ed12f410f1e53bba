#include "collectives/device/level_execution.h"

#include "base/text.h"
#include "collectives/engine/work_state.h"
#include "device/ops.h"
#include "device/stream_gate.h"

namespace gradwire {
namespace {

constexpr std::byte kGood{1};
constexpr Device kPinned{MemorySpace::kPinnedHost, 0};

}  // namespace

Result<std::shared_ptr<Levels>> Levels::make(OwnMemory& memory, int places, Device device) {
  std::shared_ptr<Levels> made(new Levels(places, device));
  const auto bytes = static_cast<std::size_t>(places);
  GW_ASSIGN(made->good_, memory.lend(1, kPinned));
  GW_ASSIGN(made->on_device_, memory.lend(bytes, device));
  GW_ASSIGN(made->gathered_, memory.lend(bytes, kPinned));
  *made->good_ = {};
  return made;
}

Status Levels::add_messages(Work work, const Stream& stream) {
  const std::shared_ptr<WorkState> state = work.state();
  works_.push_back(std::move(work));
  const auto note = [state, good = good_] {
    if (state == nullptr || state->status().ok()) *good = kGood;
  };
  auto closed = state == nullptr ? Status(Code::kUnsupported, "") : StreamGate::close(stream);
  if (!closed.has_value()) {
    if (closed.error().code() != Code::kUnsupported) return closed.error();
    GW_TRY(works_.back().wait());
    note();
    return {};
  }
  const std::shared_ptr<StreamGate> gate = std::move(closed).value();
  state->on_failing([gate] { gate->open(); });
  state->on_done([gate, note] {
    note();
    gate->open();
  });
  return {};
}

TensorView Levels::bytes() const {
  return {on_device_.get(), Shape::vector(places_), DType::kU8, device_};
}

Status Levels::write_byte(int place, const Stream& stream) const {
  return copy_bytes({good_.get(), 1}, kPinned, bytes().slice(place, 1).bytes(), device_, stream);
}

Status Levels::finish(const Stream& stream) {
  const auto size = static_cast<std::size_t>(places_);
  GW_TRY(copy_bytes(bytes().bytes(), device_, {gathered_.get(), size}, kPinned, stream));
  GW_ASSIGN(cuda::Event point, cuda::Event::create(device_));
  GW_TRY(point.record(stream));
  point_ = std::move(point);
  return {};
}

Result<bool> Levels::passed() const {
  for (const Work& work : works_) {
    const std::shared_ptr<WorkState>& state = work.state();
    if (state == nullptr) continue;
    if (!state->done()) return false;
    GW_TRY(state->status());
  }
  GW_ASSIGN(const bool past, point_->passed());
  if (!past) return false;
  for (int place = 0; place < places_; ++place) {
    if (gathered_.get()[place] == kGood) continue;
    return Status(Code::kPeerLost,
                  format("rank %d of this node could not reduce its part between nodes", place));
  }
  return true;
}

bool Levels::left() const {
  const Result<bool> past = point_->passed();
  return !past.has_value() || past.value();
}

Result<bool> LevelExecution::advance(Transport&, ScratchPool&) {
  GW_ASSIGN(done_, levels_->passed());
  return done_;
}

}  // namespace gradwire
