#include "adapters/torch/streams.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace gradwire::torch_backend {

namespace {

// PyTorch 2.13 tells it; a template, so that earlier ones compile.
template <typename Stream>
void* handle_of(const Stream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return stream.native_handle();
  } else {
    TORCH_CHECK_VALUE(false, "gradwire: tensors on ", stream.device(),
                      " need a PyTorch whose streams have native_handle(), such as 2.13 (expected "
                      "tensors on cpu)");
  }
}

}  // namespace

std::optional<at::Device> device_of(const std::vector<at::Tensor>& tensors, const char* operation) {
  std::optional<at::Device> found;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.device().is_cpu()) continue;
    TORCH_CHECK_VALUE(!found || *found == tensor.device(), "gradwire: ", operation, ": tensors on ",
                      *found, " and on ", tensor.device(), " (expected one device)");
    found = tensor.device();
  }
  return found;
}

std::optional<c10::Stream> current_stream(const std::optional<at::Device>& device) {
  if (!device || device->is_cpu()) return std::nullopt;
  const c10::impl::VirtualGuardImpl guard(device->type());
  return guard.getStream(device->has_index() ? *device : guard.getDevice());
}

gw_stream native_of(const std::optional<c10::Stream>& stream) {
  if (!stream) return {GW_HOST, 0, nullptr};
  return {GW_CUDA, static_cast<int>(stream->device_index()), handle_of(*stream)};
}

void order(const c10::Stream& earlier, const c10::Stream& later) {
  if (earlier == later) return;
  c10::Event point(earlier.device_type());
  point.record(earlier);
  point.block(later);
}

// One of high priority: PyTorch gives users those of another pool unless they ask for such.
c10::Stream another_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
}

void used_on(const at::Tensor& tensor, const c10::Stream& stream) {
  if (tensor.device() != stream.device()) return;
  const c10::impl::VirtualGuardImpl guard(stream.device_type());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

}  // namespace gradwire::torch_backend
