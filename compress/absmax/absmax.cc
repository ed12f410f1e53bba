#include "compress/absmax/absmax.h"

#include "compress/uniform/uniform_compressor.h"

namespace gradwire {

Registry::Method absmax_method() {
  return {
      "absmax",
      "each element as a level of a grid about zero that ends at its bucket's largest magnitude",
      "bits", uniform_keys(), [](const Spec& spec) { return make_uniform("absmax", true, spec); }};
}

}  // namespace gradwire
