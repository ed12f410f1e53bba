#include "trainer/step/read_back.h"

#include "device/host_copy.h"
#include "device/ops.h"

namespace gradwire {

Result<ReadBack> ReadBack::create(const MemoryArena& arena, std::size_t bytes) {
  ReadBack made;
  made.stream_ = arena.stream();
  GW_ASSIGN(made.there_, arena.allocate(MemoryClass::kOther, bytes));
  GW_ASSIGN(made.here_, Buffer::allocate(bytes, {MemorySpace::kPinnedHost, 0}));
  return made;
}

Status ReadBack::fetch() const {
  GW_TRY(copy_bytes(there_.bytes(), there_.device(), here_.bytes(), here_.device(), stream_));
  return wait_for(stream_);
}

Status ReadBack::send(ConstByteSpan bytes) const {
  GW_TRY(copy_bytes(bytes, Device{}, there_.bytes(), there_.device(), stream_));
  return wait_for(stream_);
}

}  // namespace gradwire
