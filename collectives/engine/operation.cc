#include "collectives/engine/operation.h"

namespace gradwire {

Signature signature_of(const Operation& operation) {
  return {.name = operation.name,
          .dtype = operation.dtype,
          .reduce = operation.reduce,
          .elems = operation.elems,
          .root = operation.root};
}

}  // namespace gradwire
