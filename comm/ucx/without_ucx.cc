#include "comm/ucx/inspection.h"
#include "comm/ucx/ucx_transport.h"

namespace gradwire {
namespace {

Status no_ucx() {
  return {Code::kUnsupported, "ucx: this build has no UCX (meson setup -Ducx=enabled)"};
}

}  // namespace

extern const bool kHaveUcx = false;

Result<std::unique_ptr<Transport>> make_ucx_transport(const Rendezvous&, const UcxOptions&) {
  return no_ucx();
}

Status ucx::load() { return no_ucx(); }

Result<ucx::Inspection> ucx::inspect(const std::string&) { return no_ucx(); }

}  // namespace gradwire
