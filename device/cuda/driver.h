// What CUDA's driver is asked directly, since its runtime does not say it. Where there is no driver
// nothing is current, and nothing happens.
#pragma once

#include <cstdint>

namespace gradwire::cuda {

// Of the calling thread; null: none yet. Asking makes none.
void* current_context();
// Null: as in a thread that has not called CUDA.
void set_current_context(void* context);
// Whether another process can open the memory at this address of a device by the handles of
// cudaIpcGetMemHandle(), which memory of pools has not.
bool has_ipc_handle(const void* data);
// The number of the device whose memory is at this address; -1 for memory of the host, pinned or
// not, and for addresses that CUDA does not know.
int device_of_memory(const void* data);

// What `stream` (of the thread's device) is given from now on waits until set_word() of that word,
// 0 now, of pinned memory. False, and nothing is enqueued, where the driver has no such call.
bool wait_for_word(void* stream, const std::uint32_t* word);
void set_word(std::uint32_t* word);

}  // namespace gradwire::cuda
