// Memory of the emulated devices for PyTorch's tensors, given and freed in the order of streams,
// and copies from and to it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <functional>

namespace gradwire::emulated_torch {

c10::Allocator* allocator();
// Memory that is freed from now on is freed after what the stream holds.
void used_on(const c10::DataPtr& data, const c10::Stream& stream);
// The call, while no thread frees memory: of what begins a capture.
void between_frees(const std::function<void()>& call);

// Enqueues `to` = `from` on the current stream; both are of one device.
void copy_there(void* to, const void* from, std::size_t bytes);
// The same of tensors of one type and shape, which may have gaps.
void copy_parts(const at::Tensor& from, const at::Tensor& to);
// The tensor's elements on the host, after what the current stream holds, for which the host waits.
at::Tensor host_copy(const at::Tensor& tensor);
// Enqueues the elements of `host`, which is contiguous and of the tensor's shape and type.
void write(const at::Tensor& host, const at::Tensor& tensor);

}  // namespace gradwire::emulated_torch
