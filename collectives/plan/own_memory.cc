#include "collectives/plan/own_memory.h"

#include <utility>

namespace gradwire {

Result<std::shared_ptr<std::byte>> OwnMemory::lend(std::size_t bytes, Device device) {
  if (bytes == 0) return std::shared_ptr<std::byte>();
  const std::lock_guard lock(mutex_);
  GW_ASSIGN(Buffer taken, pool_.take(bytes, device));
  std::byte* const data = taken.bytes().data();
  auto give_back = [self = shared_from_this(),
                    buffer = std::make_shared<Buffer>(std::move(taken))](std::byte*) {
    const std::lock_guard back(self->mutex_);
    self->pool_.give_back(std::move(*buffer));
  };
  return std::shared_ptr<std::byte>(data, std::move(give_back));
}

}  // namespace gradwire
