#include "comm/ucx/ucx_transport.h"

namespace gradwire {

Result<std::unique_ptr<Transport>> make_ucx_transport(const Rendezvous&, const UcxOptions&) {
  return Status(Code::kUnsupported, "ucx: this build has no UCX (meson setup -Ducx=enabled)");
}

}  // namespace gradwire
