#include "compress/minmax/minmax.h"

#include "compress/uniform/uniform_compressor.h"

namespace gradwire {

Registry::Method minmax_method() {
  return {"minmax", "each element as a level between its bucket's smallest and largest", "bits",
          uniform_keys(), [](const Spec& spec) { return make_uniform("minmax", false, spec); }};
}

}  // namespace gradwire
