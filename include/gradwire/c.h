/* The C API of gradwire, for C and for languages that call C. Compiles as C11 and as C++. Link
 * libgradwire.so (pkg-config or CMake: gradwire); its symbols have the version node GRADWIRE_1.
 *
 * Conventions
 *   Errors    A function that can fail returns a gw_status: GW_OK (0), or the kind of failure; then
 *             gw_last_error() of the calling thread has a sentence. A null or wrong handle, a null
 *             pointer, or a number out of range is GW_INVALID_ARGUMENT, with the argument's name,
 *             the value and what was expected; comments below do not repeat that. A full host
 *             memory is GW_OUT_OF_MEMORY. No exception leaves a function, and no error ends the
 *             process.
 *   Owner     The caller frees a handle that it received, with the function named after its type.
 *             Freeing NULL does nothing. To use or free a handle again after that is undefined, as
 *             with free(). Works, aggregators, groups and communicators may be freed in any order.
 *             Strings and arrays that the caller passes are read during the call. Returned strings
 *             are valid as long as the handle that returned them, those of gw_last_error() until
 *             the thread's next call.
 *   Tensors   Contiguous elements in host memory, or, where a gw_stream says so, in the memory of a
 *             CUDA device. They are lent from the call that starts an operation until its work is
 *             done.
 *   Threads   Any thread may call any function at any time, except that no thread may free what
 *             another one uses. Operations of a communicator are numbered in the order of the
 *             calls, and all ranks must start the same operations in the same order; a program that
 *             calls from several threads must ensure that.
 *   Structs   Option structs begin with struct_size: initialise them with GW_..._INIT, so that
 *             fields of later versions are zero. Zero or NULL means the default.
 *   Units     Times are seconds, as doubles; counts are elements unless they are called bytes.
 *
 * Two time limits. liveness_seconds bounds the time for which the end or stop of a rank goes
 * unnoticed (ranks exchange heartbeats, also while no operation runs): GW_PEER_LOST on all other
 * ranks. timeout_seconds bounds an operation whose ranks are all alive: GW_TIMED_OUT. A rank that
 * is alive but late is not reported as failed before the timeout. Either ends all operations of the
 * communicator, and of all that were split from the same root, within 1 second; later calls return
 * the same error, and gw_comm_shrink() continues with the survivors.
 *
 * Environment: gw_init_...() reads the GRADWIRE_* variables that the option fields name;
 * gw_init_env() also those of launchers (torchrun, Open MPI, PMI, PALS, Slurm). */
#ifndef GRADWIRE_C_H
#define GRADWIRE_C_H

#include "gradwire/c/aggregator.h"
#include "gradwire/c/communicator.h"
#include "gradwire/c/operations.h"
#include "gradwire/c/values.h"

#endif
