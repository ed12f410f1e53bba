// PyTorch's devices and streams as gradwire takes them: those of CUDA, and of devices whose streams
// are CUDA's. Written against PyTorch's device-generic interfaces, so that one extension serves
// PyTorch with CUDA and without.
#pragma once

#include <c10/core/Stream.h>

#include <optional>
#include <vector>

#include "adapters/torch/elements.h"
#include "gradwire/c.h"

namespace gradwire::torch_backend {

// The device on which the tensors are that are not in host memory; nullopt if all are. ValueError
// for two devices.
std::optional<at::Device> device_of(const std::vector<at::Tensor>& tensors, const char* operation);

// The stream on which this thread works with a device; nullopt for the host. A device without a
// number is the thread's current one.
std::optional<c10::Stream> current_stream(const std::optional<at::Device>& device);

// The stream as gradwire takes it; nullopt is host memory. ValueError for a PyTorch that does not
// tell what a stream is to CUDA.
gw_stream native_of(const std::optional<c10::Stream>& stream);

// What `later` is given from now on runs after what `earlier` holds now. Nothing for equal streams.
void order(const c10::Stream& earlier, const c10::Stream& later);

// A stream of the device that is not the caller's, for what is to follow other work; it may be one
// of PyTorch's pool, which others have too.
c10::Stream another_stream(const at::Device& device);

// The tensor's memory, when it is let go, is given to others after what the stream holds then.
void used_on(const at::Tensor& tensor, const c10::Stream& stream);

}  // namespace gradwire::torch_backend
