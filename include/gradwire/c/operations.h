/* Operations of a communicator and the works that they are. See gradwire/c.h, which includes this,
 * for conventions. */
#ifndef GRADWIRE_C_OPERATIONS_H
#define GRADWIRE_C_OPERATIONS_H

#include <stddef.h>
#include <stdint.h>

#include "gradwire/c/communicator.h"
#include "gradwire/c/values.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): names of C */

typedef struct gw_work gw_work;

/* An operation under way. Functions that start one take a gw_work**: with NULL they wait for its
 * end and return its outcome. */

/* *done: whether it has ended, well or not. Never blocks. */
gw_status gw_work_test(gw_work* work, int* done);
/* Waits for the end, at most `seconds` (below 0: as long as the operation may take), and returns
 * the outcome; GW_TIMED_OUT while gw_work_test() says 0: the wait's end, the operation goes on.
 * Drives the operation meanwhile, so a thread that waits saves a switch of threads. Several threads
 * may wait for one work. In a child of fork(): GW_UNSUPPORTED at once while that says 0. */
gw_status gw_work_wait(gw_work* work, double seconds);
/* GW_IN_PROGRESS, or the outcome. Never blocks. */
gw_status gw_work_status(gw_work* work);
/* The outcome's sentence, naming rank, operation and elapsed time; "" while in progress or when all
 * is well. Lives as long as the work. */
const char* gw_work_error(gw_work* work);
/* Of a recv that has ended: the group rank that it came from; else -1. */
int gw_work_source(gw_work* work);

typedef void (*gw_done_fn)(void* context, gw_status status);
/* done(context, outcome) exactly once, when the work has ended; at once, in this call, if it has
 * ended already. At most one for a work (GW_INVALID_ARGUMENT for a second). It runs on whichever
 * thread found the end, often the one that drives all operations, so it must be short, must not
 * block or take a lock that is held around calls of gradwire, and of gradwire may call only
 * gw_work_test, _status, _error, _source and _free: hand everything else to a thread of one's
 * own. The work need not be kept for it: gw_work_free() right after this call is fine. */
gw_status gw_work_on_done(gw_work* work, gw_done_fn done, void* context);

/* Gives the handle back. One that is under way goes on, and its tensors stay lent until its end,
 * which gw_work_on_done() tells. */
void gw_work_free(gw_work* work);

typedef struct gw_op_options {
  size_t struct_size;
  double timeout_seconds; /* 0: the communicator's */
  const char* algorithm;  /* NULL: the communicator's */
  double factor;          /* of GW_PRE_MUL_SUM */
  int tag;                /* of send and recv: 0 to 32767. Messages match by tag, in order for each
                             pair of ranks and tag */
} gw_op_options;
#define GW_OP_OPTIONS_INIT \
  { sizeof(gw_op_options), 0, 0, 1.0, 0 }

/* count: elements of one row, n below; size: of the group. `out` may be `in`, or the row of it that
 * the operation names for in place; any other overlap is refused. Options may be NULL, and so may
 * what is said of root alone elsewhere, and the memory of 0 elements. What ranks get is
 * bit-identical on all of them. */

/* Every rank's buffer (n) becomes root's. */
gw_status gw_broadcast(gw_comm* comm, void* buffer, int64_t count, gw_dtype dtype, int root,
                       const gw_op_options* options, gw_work** work);
/* root's out (n): the reduction of all in (n). */
gw_status gw_reduce(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                    gw_reduction op, int root, const gw_op_options* options, gw_work** work);
/* Every out (n): the reduction of all in (n). Exact up to the type's rounding, always. */
gw_status gw_all_reduce(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                        gw_reduction op, const gw_op_options* options, gw_work** work);
/* In place, of many tensors at once, as if they lay one after another: as many messages as for
 * one. */
gw_status gw_all_reduce_many(gw_comm* comm, void* const* tensors, const int64_t* counts,
                             size_t tensor_count, gw_dtype dtype, gw_reduction op,
                             const gw_op_options* options, gw_work** work);
/* in (size, n), out (n): the reduction of row rank. In place: out is row rank of in. */
gw_status gw_reduce_scatter(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                            gw_reduction op, const gw_op_options* options, gw_work** work);
/* The same with rows of counts[r] elements, equal on all ranks. */
gw_status gw_reduce_scatter_v(gw_comm* comm, const void* in, void* out, const int64_t* counts,
                              gw_dtype dtype, gw_reduction op, const gw_op_options* options,
                              gw_work** work);
/* in (n), out (size, n): row r is rank r's in. In place: in is row rank of out. */
gw_status gw_all_gather(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                        const gw_op_options* options, gw_work** work);
gw_status gw_all_gather_v(gw_comm* comm, const void* in, void* out, const int64_t* counts,
                          gw_dtype dtype, const gw_op_options* options, gw_work** work);
/* As gw_all_gather, for root's out alone. */
gw_status gw_gather(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                    int root, const gw_op_options* options, gw_work** work);
gw_status gw_gather_v(gw_comm* comm, const void* in, void* out, const int64_t* counts,
                      gw_dtype dtype, int root, const gw_op_options* options, gw_work** work);
/* root's in (size, n), out (n): row rank of it. In place at root: out is row root of in. */
gw_status gw_scatter(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                     int root, const gw_op_options* options, gw_work** work);
gw_status gw_scatter_v(gw_comm* comm, const void* in, void* out, const int64_t* counts,
                       gw_dtype dtype, int root, const gw_op_options* options, gw_work** work);
/* in, out (size, n): row r of in goes to rank r, row r of out comes from it. */
gw_status gw_all_to_all(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                        const gw_op_options* options, gw_work** work);
/* send_counts[r] elements of in to rank r, recv_counts[r] of out from it, in rank order. */
gw_status gw_all_to_all_v(gw_comm* comm, const void* in, const int64_t* send_counts, void* out,
                          const int64_t* recv_counts, gw_dtype dtype, const gw_op_options* options,
                          gw_work** work);
/* out (n) on rank r: the reduction of ranks 0 .. r - 1; on rank 0 the neutral element. No GW_MEAN.
 */
gw_status gw_exclusive_scan(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                            gw_reduction op, const gw_op_options* options, gw_work** work);
gw_status gw_barrier(gw_comm* comm, const gw_op_options* options, gw_work** work);

/* Point to point, beside collectives. A peer is a rank of the group other than this one. A send may
 * be done before its recv begins. */
gw_status gw_send(gw_comm* comm, const void* buffer, int64_t count, gw_dtype dtype, int peer,
                  const gw_op_options* options, gw_work** work);
#define GW_ANY_SOURCE (-1)
/* peer GW_ANY_SOURCE: the first sender of such a tag that is heard of; gw_work_source() names it.
 * It gives way to recvs of that tag that name their peer. count and dtype are the sender's, else
 * GW_RANK_MISMATCH. */
gw_status gw_recv(gw_comm* comm, void* buffer, int64_t count, gw_dtype dtype, int peer,
                  const gw_op_options* options, gw_work** work);
/* Waits until a peer (GW_ANY_SOURCE: any) has sent something with the options' tag that no recv of
 * this rank has taken, at most `seconds`: *source is that peer, or -1 when the time is up, which
 * harms nothing and is GW_OK. Receives nothing. */
gw_status gw_probe(gw_comm* comm, int peer, double seconds, const gw_op_options* options,
                   int* source);

/* Any operation as a value, for batches. Fields that a kind does not name are not looked at. */
typedef enum gw_kind {
  GW_OP_BROADCAST = 0, /* in place: out */
  GW_OP_REDUCE = 1,
  GW_OP_ALL_REDUCE = 2,
  GW_OP_REDUCE_SCATTER = 3,
  GW_OP_REDUCE_SCATTER_V = 4,
  GW_OP_ALL_GATHER = 5,
  GW_OP_ALL_GATHER_V = 6,
  GW_OP_GATHER = 7,
  GW_OP_GATHER_V = 8,
  GW_OP_SCATTER = 9,
  GW_OP_SCATTER_V = 10,
  GW_OP_ALL_TO_ALL = 11,
  GW_OP_ALL_TO_ALL_V = 12,
  GW_OP_EXCLUSIVE_SCAN = 13,
  GW_OP_BARRIER = 14,
  GW_OP_SEND = 15, /* in */
  GW_OP_RECV = 16  /* out; a peer, not GW_ANY_SOURCE */
} gw_kind;
typedef struct gw_op {
  gw_kind kind;
  gw_dtype dtype;
  gw_reduction reduction;
  int peer; /* the root, the receiver or the sender */
  int tag;
  const void* in;
  void* out;
  int64_t count;
  const int64_t* counts;      /* of _V; of GW_OP_ALL_TO_ALL_V what is sent */
  const int64_t* recv_counts; /* of GW_OP_ALL_TO_ALL_V */
} gw_op;
/* Starts several, all or none, as one work that is done when all are. They are in flight together,
 * so sends and receives may be listed in any order; collectives in the same on all ranks. The
 * options' tag is not looked at: each operation has its own. No operations: done at once. */
gw_status gw_start_all(gw_comm* comm, const gw_op* ops, size_t count, const gw_op_options* options,
                       gw_work** work);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif
