/* The operations of a communicator, and works. gradwire/c.h, which includes this, has the
 * conventions. */
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

/* An operation that was started. Functions that start one take a gw_work**, and return at once with
 * the work, which the caller frees with gw_work_free(). With NULL instead, they wait for the
 * operation and return its outcome. */
typedef struct gw_work gw_work;

/* *done: 1 if the operation has ended, with success or an error, else 0. Never blocks. Errors:
 * GW_INVALID_ARGUMENT only. */
gw_status gw_work_test(gw_work* work, int* done);
/* Waits until the operation has ended, at most `seconds` seconds (below 0: until the operation's
 * own time limit), and returns the outcome. The waiting thread drives the operation, which saves a
 * switch of threads. Several threads may wait for one work. Errors: those of the operation;
 * GW_TIMED_OUT when the wait ends first (gw_work_test() then says 0, and the operation continues);
 * GW_UNSUPPORTED in a child of fork(), for a work that is not done. */
gw_status gw_work_wait(gw_work* work, double seconds);
/* Orders the operation before what is enqueued on `stream` from now on: the stream waits, and the
 * call returns at once. Where a stream cannot wait for the host (an old driver), and for a stream
 * of the host, it is gw_work_wait() without a limit of its own. The stream goes on when the
 * operation ends, with an error too: gw_work_status() tells. Results are visible to work on that
 * stream then; gw_work_wait() makes them visible to all. Errors: those of gw_work_wait(), or of the
 * operation so far; GW_INVALID_ARGUMENT for a stream that does not exist, or of the host, for an
 * operation over NCCL. */
gw_status gw_work_wait_on(gw_work* work, const gw_stream* stream);
/* GW_IN_PROGRESS, or the operation's outcome (any of gw_status). Never blocks. */
gw_status gw_work_status(gw_work* work);
/* The sentence of the outcome, with rank, operation and elapsed time; "" while in progress and
 * after success. Valid as long as the handle. */
const char* gw_work_error(gw_work* work);
/* The group rank of the sender, for a recv that has ended; -1 otherwise. */
int gw_work_source(gw_work* work);

/* A function of the caller's that receives a work's outcome. */
typedef void (*gw_done_fn)(void* context, gw_status status);
/* Has done(context, outcome) called once, when the work has ended; during this call if it has ended
 * already. It often runs on the progress thread, so it must be short, must not block, and must not
 * take a lock that is held around calls of gradwire. Of gradwire it may call only gw_work_test,
 * _status, _error, _source and _free. The handle may be freed right after this call. Errors:
 * GW_INVALID_ARGUMENT for a second function of one work. */
gw_status gw_work_on_done(gw_work* work, gw_done_fn done, void* context);

/* Frees the handle. An operation in progress continues, and its tensors stay lent until it ends.
 * Never fails. */
void gw_work_free(gw_work* work);

/* Options of one operation. */
typedef struct gw_op_options {
  size_t struct_size;     /* bytes of this struct; set by GW_OP_OPTIONS_INIT */
  double timeout_seconds; /* time limit of the operation, seconds; 0: the communicator's */
  const char* algorithm;  /* "ring", "canonical", ...; NULL: the communicator's */
  double factor;          /* for GW_PRE_MUL_SUM: factor of this rank's elements, a ratio */
  int tag;                /* of a send or recv: a number from 0 to 32767. Messages between two ranks
                             match by tag, in order */
  gw_stream stream; /* where all tensors of the operation are. On a CUDA device it starts after
                       the work that the stream holds at the call, and the host does not wait
                       for that. All ranks' tensors are on devices, or all on hosts */
} gw_op_options;
/* The initial value: all defaults, the factor 1, and tensors in host memory. */
#define GW_OP_OPTIONS_INIT                                 \
  {                                                        \
    sizeof(gw_op_options), 0, 0, 1.0, 0, { GW_HOST, 0, 0 } \
  }

/* The operations. `count`, n below, is the number of elements of one rank's block, or of the whole
 * tensor where all ranks have all of it; size is the number of ranks of the group. `out` may be
 * `in`, or the block of it that "in place" names; other overlaps are refused. `options` may be
 * NULL, and so may arguments that are described for the root only, on other ranks, and memory of 0
 * elements. Results are bit-identical on all ranks, and exact up to the rounding of the element
 * type: GW_F16 and GW_BF16 are added and multiplied as GW_F32 and rounded once per reduction step.
 *
 * Errors of all operations: GW_INVALID_ARGUMENT for wrong counts, types, ranks or overlaps, for a
 * device that does not exist, and for a tensor that is not in the memory of the stream's device,
 * and nothing is started; GW_UNSUPPORTED for an element type that the reduction does not take, for
 * device tensors in a build without CUDA, and for bitwise reductions of device tensors. The
 * work, or the call if it waits, ends with GW_PEER_LOST if a rank failed, GW_TIMED_OUT if a rank
 * did not take part in time, GW_RANK_MISMATCH, GW_CORRUPT_PAYLOAD or GW_CANCELLED, and the
 * communicator is unusable then. */

/* Copies root's buffer (n) to every rank's buffer (n). */
gw_status gw_broadcast(gw_comm* comm, void* buffer, int64_t count, gw_dtype dtype, int root,
                       const gw_op_options* options, gw_work** work);
/* root's out (n) receives the reduction of all ranks' in (n). */
gw_status gw_reduce(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                    gw_reduction op, int root, const gw_op_options* options, gw_work** work);
/* Every rank's out (n) receives the reduction of all ranks' in (n). Never compressed. */
gw_status gw_all_reduce(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                        gw_reduction op, const gw_op_options* options, gw_work** work);
/* gw_all_reduce() in place over `tensor_count` tensors of counts[i] elements, as if they were one
 * tensor: with the messages of one. */
gw_status gw_all_reduce_many(gw_comm* comm, void* const* tensors, const int64_t* counts,
                             size_t tensor_count, gw_dtype dtype, gw_reduction op,
                             const gw_op_options* options, gw_work** work);
/* in: (size, n), one block per rank. out: (n), the reduction over ranks of this rank's block. In
 * place: out is this rank's block of in. */
gw_status gw_reduce_scatter(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                            gw_reduction op, const gw_op_options* options, gw_work** work);
/* The same with blocks of counts[r] elements; counts are equal on all ranks. */
gw_status gw_reduce_scatter_v(gw_comm* comm, const void* in, void* out, const int64_t* counts,
                              gw_dtype dtype, gw_reduction op, const gw_op_options* options,
                              gw_work** work);
/* in: (n). out: (size, n), whose block r is rank r's in. In place: in is this rank's block of
 * out. */
gw_status gw_all_gather(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                        const gw_op_options* options, gw_work** work);
/* The same with counts[r] elements of rank r, one block after another; counts are equal on all
 * ranks. */
gw_status gw_all_gather_v(gw_comm* comm, const void* in, void* out, const int64_t* counts,
                          gw_dtype dtype, const gw_op_options* options, gw_work** work);
/* gw_all_gather() for root's out only. */
gw_status gw_gather(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                    int root, const gw_op_options* options, gw_work** work);
/* gw_all_gather_v() for root's out only. */
gw_status gw_gather_v(gw_comm* comm, const void* in, void* out, const int64_t* counts,
                      gw_dtype dtype, int root, const gw_op_options* options, gw_work** work);
/* root's in: (size, n). out: (n), this rank's block of it. In place at root: out is root's block of
 * in. */
gw_status gw_scatter(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                     int root, const gw_op_options* options, gw_work** work);
/* The same with blocks of counts[r] elements; counts are equal on all ranks. */
gw_status gw_scatter_v(gw_comm* comm, const void* in, void* out, const int64_t* counts,
                       gw_dtype dtype, int root, const gw_op_options* options, gw_work** work);
/* in and out: (size, n). Block r of in is sent to rank r; block r of out comes from rank r. */
gw_status gw_all_to_all(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                        const gw_op_options* options, gw_work** work);
/* The same with send_counts[r] elements of in for rank r and recv_counts[r] elements of out from
 * it, blocks in rank order. send_counts[r] equals rank r's recv_counts of this rank. */
gw_status gw_all_to_all_v(gw_comm* comm, const void* in, const int64_t* send_counts, void* out,
                          const int64_t* recv_counts, gw_dtype dtype, const gw_op_options* options,
                          gw_work** work);
/* out (n) on rank r receives the reduction of in (n) of ranks 0 to r - 1; on rank 0 the neutral
 * element (0 for a sum). Not for GW_MEAN. */
gw_status gw_exclusive_scan(gw_comm* comm, const void* in, void* out, int64_t count, gw_dtype dtype,
                            gw_reduction op, const gw_op_options* options, gw_work** work);
/* Is done once all ranks have called it. */
gw_status gw_barrier(gw_comm* comm, const gw_op_options* options, gw_work** work);

/* Sends buffer (n) to group rank `peer`, another rank than this one; may run beside collectives. It
 * may be done before its recv is started. */
gw_status gw_send(gw_comm* comm, const void* buffer, int64_t count, gw_dtype dtype, int peer,
                  const gw_op_options* options, gw_work** work);
/* The `peer` of a recv or probe for messages of any rank. */
#define GW_ANY_SOURCE (-1)
/* Receives a message of group rank `peer` with the options' tag into buffer (n). With GW_ANY_SOURCE
 * it takes the first message with the tag that no recv for its sender takes; gw_work_source() is
 * the sender. Count and type must be the sender's. Errors: as all operations; GW_RANK_MISMATCH for
 * another count. */
gw_status gw_recv(gw_comm* comm, void* buffer, int64_t count, gw_dtype dtype, int peer,
                  const gw_op_options* options, gw_work** work);
/* Waits, at most `seconds` seconds, until `peer` (GW_ANY_SOURCE: any rank) has sent a message with
 * the options' tag that no recv of this rank has taken. *source is the sender, or -1 (with GW_OK)
 * if there is none. Receives nothing. Errors: as all operations. */
gw_status gw_probe(gw_comm* comm, int peer, double seconds, const gw_op_options* options,
                   int* source);

/* The operation of a gw_op: that of the function of the same name. */
typedef enum gw_kind {
  /* Each takes the arguments of its function; a broadcast has its buffer in `out`. */
  GW_OP_BROADCAST = 0,
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
  GW_OP_SEND = 15, /* the buffer is `in` */
  GW_OP_RECV = 16  /* the buffer is `out`; not from GW_ANY_SOURCE */
} gw_kind;
/* An operation as a value, for gw_start_all(). Fields that the kind does not take are ignored. */
typedef struct gw_op {
  gw_kind kind;               /* which operation */
  gw_dtype dtype;             /* element type */
  gw_reduction reduction;     /* of reductions */
  int peer;                   /* group rank of the root, of a send's receiver or a recv's sender */
  int tag;                    /* of a send or recv: a number from 0 to 32767 */
  const void* in;             /* the input */
  void* out;                  /* the output */
  int64_t count;              /* elements, n of the function */
  const int64_t* counts;      /* _V: elements of each rank's block; GW_OP_ALL_TO_ALL_V: elements
                                 sent */
  const int64_t* recv_counts; /* GW_OP_ALL_TO_ALL_V: elements received from each rank */
} gw_op;
/* Starts `count` operations, or none if one is refused, as one work that is done when all are. They
 * run at the same time: sends and recvs may be listed in any order, collectives in the same order
 * on all ranks. The tags are those of the operations, not of `options`. With count 0 the work is
 * done at once. Errors: as all operations. */
gw_status gw_start_all(gw_comm* comm, const gw_op* ops, size_t count, const gw_op_options* options,
                       gw_work** work);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif
