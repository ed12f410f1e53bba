// What CUDA's driver is asked directly, since its runtime does not say it. Where there is no driver
// nothing is current, and nothing happens.
#pragma once

namespace gradwire::cuda {

// Of the calling thread; null: none yet. Asking makes none.
void* current_context();
// Null: as in a thread that has not called CUDA.
void set_current_context(void* context);
// Whether another process can open the memory at this address of a device by the handles of
// cudaIpcGetMemHandle(), which memory of pools has not.
bool has_ipc_handle(const void* data);

}  // namespace gradwire::cuda
