#include "base/text.h"
#include "gradwire/transport.h"

namespace gradwire {

Result<Tag> Tag::make(std::uint32_t communicator, std::uint64_t operation, std::uint32_t channel) {
  if ((communicator >> 12) != 0 || (channel >> 8) != 0) {
    return Status(
        Code::kInvalidArgument,
        format("tag: communicator %u (expected below 4096), channel %u (expected below 256)",
               communicator, channel));
  }
  return Tag((std::uint64_t{communicator} << 28) | ((operation & 0xfffff) << 8) | channel);
}

}  // namespace gradwire
