/* gradwire for C, and for whatever calls C. Compiles as C11 and as C++. Link libgradwire.so
 * (pkg-config or CMake: gradwire); its symbols have the version node GRADWIRE_1.
 *
 * Conventions
 *   Outcome   Whatever can fail returns a gw_status, GW_OK (0) or why not, and leaves a sentence in
 *             gw_last_error() of the calling thread. A null handle where one is wanted or one of
 *             another type, a null pointer, a number out of range: GW_INVALID_ARGUMENT with the
 *             name, the value seen and the value wanted. Nothing is thrown, and nothing of this
 *             ends the process.
 *   Owner     Who is given a handle frees it with the function named after its type. Freeing NULL
 *             does nothing. A handle that was freed is gone: to use or free it again is undefined,
 *             as with free(). Works, aggregators, groups and communicators may go in any order.
 *             Strings and arrays that are given are read during the call. Strings that are returned
 *             live as long as the handle that was asked, those of gw_last_error() until the
 *             thread's next call.
 *   Tensors   Contiguous elements in the host's memory. They are lent from the call that starts an
 *             operation until its work is done (an aggregator says so itself).
 *   Threads   Every function may be called from any thread at any time, but that nobody frees what
 *             another still uses. A communicator's operations are numbered in the order in which
 *             the calls come in, and all ranks must start the same ones in the same order: who
 *             calls from several threads sees to that.
 *   Structs   Options begin with struct_size: set it with the GW_..._INIT of the struct, so that
 *             fields that a later version adds are zero. A zero or NULL means the default.
 *   Times     Seconds, as doubles.
 *
 * Two clocks. liveness_seconds bounds how long a rank that died or was stopped goes unnoticed
 * (ranks hear each other's heartbeats, also while nothing is under way): GW_PEER_LOST on all
 * others. timeout_seconds bounds an operation whose ranks all live: GW_TIMED_OUT. A rank that lives
 * and is late is never called lost before an operation's timeout. Either ends all operations of
 * that communicator and of all that were split from the same root, within a second after the
 * clock, and every later call on them returns the same error; gw_comm_shrink() goes on with the
 * survivors.
 *
 * Environment: gw_init_...() reads GRADWIRE_* variables for what its options leave open, as each
 * field says, and gw_init_env() the launchers' (torchrun, Open MPI, PMI, PALS, Slurm).
 */
#ifndef GRADWIRE_C_H
#define GRADWIRE_C_H

#include "gradwire/c/aggregator.h"
#include "gradwire/c/communicator.h"
#include "gradwire/c/operations.h"
#include "gradwire/c/values.h"

#endif
