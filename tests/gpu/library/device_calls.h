/* Memory and streams of the emulated CUDA devices, for programs in C and Python that give them to
 * the library over which the emulator lies. What is enqueued runs when the device comes to it. */
#ifndef TESTS_GPU_LIBRARY_DEVICE_CALLS_H
#define TESTS_GPU_LIBRARY_DEVICE_CALLS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Before all others: so many devices. */
void test_play_devices(int count);
/* Zeros; NULL where there is no memory. */
void* test_device_alloc(size_t bytes, int device);
void test_device_free(void* memory, int device);
/* A stream that waits for no other one; NULL where there is no such device. */
void* test_stream_create(int device);
/* Waits for its work. */
void test_stream_destroy(void* stream);
/* Keeps the work of the stream back, or lets it go on. */
void test_stream_hold(void* stream, int held);
/* Enqueued on the stream: `from` lives until it has run. 0, or -1. */
int test_copy_to_device(void* to, const void* from, size_t bytes, int device, void* stream);
/* For how many points of streams the library has waited on the host, or looked, on any thread, and
 * how many kernels it has launched there. */
size_t test_host_waits(void);
size_t test_launches(int device);
/* After what the stream holds, whose end it waits for. 0, or -1. */
int test_copy_to_host(void* to, const void* from, size_t bytes, int device, void* stream);

#ifdef __cplusplus
}
#endif

#endif
