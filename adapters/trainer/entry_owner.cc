#include "adapters/trainer/entry_owner.h"

#include <cstddef>

#include "trainer/tensor_box.h"

namespace gradwire {

EntryOwner::EntryOwner(const ModelShare* share, const MeshCoordinates& at)
    : first_(at.pp == 0 && at.tp == 0) {
  if (share == nullptr) return;
  for (const ModelShare::Tensor& tensor : share->tensors) {
    const bool here = tensor.held[static_cast<std::size_t>(share->rank)].elems() > 0;
    if (here && owner_of(tensor.held, share->rank) != share->rank) others_.insert(tensor.name);
  }
}

}  // namespace gradwire
