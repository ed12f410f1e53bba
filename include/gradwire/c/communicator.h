/* Communicators of the C API: how ranks meet, groups, failures. gradwire/c.h, which includes this,
 * has the conventions. */
#ifndef GRADWIRE_C_COMMUNICATOR_H
#define GRADWIRE_C_COMMUNICATOR_H

#include <stddef.h>
#include <stdint.h>

#include "gradwire/c/values.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): names of C */

/* A group of ranks that start the same operations in the same order. Freed by gw_comm_free(). */
typedef struct gw_comm gw_comm;

/* Options of the gw_init_...() functions. A NULL pointer to the struct means all defaults. Equal on
 * all ranks, except interface_name, log_level, log, log_context and rank. */
typedef struct gw_comm_options {
  size_t struct_size;         /* bytes of this struct; set by GW_COMM_OPTIONS_INIT */
  double liveness_seconds;    /* within how many seconds a dead or stopped rank is noticed, at least
                                 0.5; 0: GRADWIRE_DEADLINE, else 15 */
  double timeout_seconds;     /* time limit of operations that set none, seconds; 0: 300 */
  double rendezvous_seconds;  /* how long to wait for the slowest rank, seconds; 0: 60 */
  const char* transport;      /* "auto" (shared memory inside hosts; UCX between hosts, or TCP if a
                                 rank has no UCX), "shm", "ucx", "tcp", "nccl", "nccl:N"; NULL:
                                 GRADWIRE_TRANSPORT, else "auto" */
  const char* interface_name; /* network interface; NULL: GRADWIRE_IFNAME, else the first usable */
  const char* algorithm;      /* of reductions that name none; NULL: "auto". "canonical" sums in
                                 rank order */
  const char* links;          /* the link parameters by which "auto" selects algorithms: "default",
                                 "cached" or "measured"; NULL: GRADWIRE_LINKS, else "default" */
  const char* job;            /* the job's id, different from that of other jobs; NULL: the
                                 launcher's */
  const char* secret;        /* authenticates connections; NULL: GRADWIRE_SECRET, else the file that
                                GRADWIRE_SECRET_FILE names, else none */
  const char* flight_folder; /* folder for a failed rank's last operations; NULL: GRADWIRE_FLIGHT,
                                else none */
  int checksums;             /* 1: every message carries a checksum; 0: as GRADWIRE_CHECKSUM says */
  gw_log_level log_level;    /* `log` receives lines of this level and of all more severe ones */
  gw_log_fn log;             /* receives log lines until the job's last handle is freed, or NULL */
  void* log_context;         /* passed to `log` */
  /* The rest is for gw_init_env(), and takes precedence over the launcher. */
  int rank;               /* this rank, if size is above 0 */
  int size;               /* number of ranks; 0: rank and size are the launcher's */
  const char* rendezvous; /* "host:port" of rank 0, or "file://DIR" with a folder that all ranks
                             see; NULL: GRADWIRE_RENDEZVOUS, else the launcher's */
} gw_comm_options;
/* The initial value: all defaults. */
#define GW_COMM_OPTIONS_INIT \
  { sizeof(gw_comm_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, GW_LOG_ERROR, 0, 0, 0, 0, 0 }

/* What the environment says about this process. */
typedef struct gw_launch {
  int rank;             /* this rank */
  int size;             /* number of ranks in the job */
  int local_rank;       /* rank among those of this host; rank if the launcher does not say */
  char source[32];      /* the launcher: "GRADWIRE_*", "torchrun", "Open MPI", "PMI", "PALS",
                           "Slurm", "RANK/WORLD_SIZE" or "alone" */
  char rendezvous[256]; /* "host:port", "file://DIR", ...; "" if the launcher names none */
} gw_launch;
/* Reads rank, size and rendezvous from the environment; opens no connection. Errors:
 * GW_INVALID_ARGUMENT if a group of variables is incomplete or malformed. */
gw_status gw_launch_from_env(gw_launch* launch);

/* The gw_init_...() functions create the communicator of all ranks, with a transport of its own.
 * They are collective, and block until all ranks have called, at most rendezvous_seconds. On GW_OK
 * *comm is the communicator, which the caller frees; otherwise it is NULL. Errors of all
 * gw_init_...(): GW_INVALID_ARGUMENT for an option out of range; GW_UNSUPPORTED for a transport
 * that this build or machine lacks (for UCX it names the library and the path tried);
 * GW_RANK_MISMATCH if ranks differ in options that must be equal; GW_TIMED_OUT or GW_PEER_LOST if a
 * rank does not appear in time. */

/* Takes rank, size and rendezvous from the options, else from the environment; without any, the job
 * has one rank. Errors: as all gw_init_...(), and as gw_launch_from_env(). */
gw_status gw_init_env(const gw_comm_options* options, gw_comm** comm);

/* A function of the caller's that fills out (size * bytes bytes) with every rank's in (bytes
 * bytes), in rank order, and blocks until it has. Returns 0, or another number for a failure. */
typedef int (*gw_all_gather_fn)(void* context, const void* in, void* out, size_t bytes);
/* For ranks that can communicate already (MPI, a store, sockets): they meet by the given function.
 * It is called by this thread, during this call, with 512 bytes, as often on all ranks. Rank 0
 * listens on a TCP port while ranks meet. `rank`: this rank; `size`: number of ranks. Errors: as
 * all gw_init_...(), and GW_INTERNAL if the function returns a failure. */
gw_status gw_init_all_gather(gw_all_gather_fn all_gather, void* context, int rank, int size,
                             const gw_comm_options* options, gw_comm** comm);

/* A key-value store of the caller's that all ranks see. Keys are printable strings of at most 256
 * bytes, values have at most 1 MiB. Each key is set once, by one rank. Both functions return 0, or
 * another number for a failure, and are called by the thread that calls gw_init_store(), during
 * that call. */
typedef struct gw_store {
  void* context; /* passed to both functions */
  /* Stores `bytes` bytes from `value` on under `key`. */
  int (*set)(void* context, const char* key, const void* value, size_t bytes);
  /* Waits until a rank has set `key`, at most `seconds` seconds, then passes a value of `bytes`
   * bytes to give(receiver, value, bytes), and returns. */
  int (*get)(void* context, const char* key, double seconds,
             void (*give)(void* receiver, const void* value, size_t bytes), void* receiver);
} gw_store;
/* For ranks that share a key-value store. Keys begin with "gradwire/" and the options' job: a store
 * that outlives a communicator needs another job id (or prefix) for the next one. `rank`: this
 * rank; `size`: number of ranks. Errors: as all gw_init_...(), and the store's failures
 * (GW_INTERNAL, GW_TIMED_OUT). */
gw_status gw_init_store(const gw_store* store, int rank, int size, const gw_comm_options* options,
                        gw_comm** comm);

/* An id by which ranks meet. The process that becomes rank 0 creates it, and the program copies it
 * to the others. It is used once. The process that created it listens on a TCP port until
 * gw_init_unique_id() has returned or the id is released. */
typedef struct gw_unique_id {
  char bytes[512]; /* opaque */
} gw_unique_id;
/* Creates an id and starts to listen. Not collective. Errors: GW_INVALID_ARGUMENT for an option out
 * of range, or if no port or interface can be used. */
gw_status gw_unique_id_create(const gw_comm_options* options, gw_unique_id* id);
/* Stops listening, for an id of this process that was not used. Errors: GW_INVALID_ARGUMENT for any
 * other id. */
gw_status gw_unique_id_release(const gw_unique_id* id);
/* Meets the ranks that have the same id. `rank`: this rank, 0 where the id was created; `size`:
 * number of ranks. Errors: as all gw_init_...(). */
gw_status gw_init_unique_id(const gw_unique_id* id, int rank, int size,
                            const gw_comm_options* options, gw_comm** comm);

/* Creates communicators for `size` ranks that are threads of this process, for tests: comms[r] is
 * that of rank r, and all are freed by the caller. Of the options only timeout_seconds, algorithm,
 * checksums and the log apply. Not collective. Errors: GW_INVALID_ARGUMENT for a size or an option
 * out of range. */
gw_status gw_init_threads(int size, const gw_comm_options* options, gw_comm** comms);

/* Closes and frees a communicator, within 2 seconds. Operations in progress end with GW_CANCELLED,
 * and all communicators of the same root become unusable then; other ranks that need this one
 * receive GW_PEER_LOST, "closed". Groups that were split off, works and aggregators may be freed
 * later; the transport is destroyed with the last of them. Never fails. */
void gw_comm_free(gw_comm* comm);

/* gw_comm_rank(): this rank in the group; gw_comm_size(): the number of its ranks. Both are -1 for
 * a null or freed handle. */
int gw_comm_rank(const gw_comm* comm);
int gw_comm_size(const gw_comm* comm);
/* The rank in the job of the group's rank r; -1 if r is out of range. */
int gw_comm_job_rank(const gw_comm* comm, int r);
/* GW_OK, or the error that made the communicator unusable (any of gw_status), whose sentence
 * gw_last_error() then has. */
gw_status gw_comm_status(const gw_comm* comm);
/* One line for people: ranks, transport, versions. Valid as long as the handle. */
const char* gw_comm_describe(const gw_comm* comm);

/* Counters of this rank since the communicator was created. Those of the job count all
 * communicators of the transport, with headers and heartbeats. */
typedef struct gw_comm_stats {
  size_t struct_size;             /* bytes of this struct; set by GW_COMM_STATS_INIT */
  uint64_t bytes_sent;            /* bytes of messages of this communicator's operations */
  uint64_t job_bytes_sent;        /* bytes */
  uint64_t job_bytes_received;    /* bytes */
  uint64_t job_messages_sent;     /* number of messages */
  uint64_t job_messages_received; /* number of messages */
} gw_comm_stats;
/* The initial value, with all counters 0. */
#define GW_COMM_STATS_INIT \
  { sizeof(gw_comm_stats), 0, 0, 0, 0, 0 }
/* Fills *stats, as much of it as stats->struct_size says. Errors: GW_INVALID_ARGUMENT only. */
gw_status gw_comm_get_stats(const gw_comm* comm, gw_comm_stats* stats);

/* Ends all operations of this rank, on this communicator and on all of the same root, with
 * GW_CANCELLED. Those of the other ranks end, too, with an error that names this rank and `reason`
 * (NULL: a default). Also while other threads wait. Does nothing after a failure. Errors:
 * GW_INVALID_ARGUMENT only. */
gw_status gw_comm_abort(gw_comm* comm, const char* reason);

/* Divides the group: ranks with equal `color` form a communicator, ordered by `key`, then by old
 * rank. A rank with a negative color takes part and receives NULL. Collective. Errors: GW_PEER_LOST
 * or GW_TIMED_OUT if a rank does not take part; GW_INTERNAL if the job has too many communicators
 * (4,095). */
gw_status gw_comm_split(gw_comm* comm, int color, int key, gw_comm** group);
/* Forms a communicator of `count` ranks of comm, in the order of `ranks`. Collective over ALL ranks
 * of comm, with equal arguments; ranks that are not listed receive NULL. Errors:
 * GW_INVALID_ARGUMENT for a rank that is out of range or listed twice; those of gw_comm_split(). */
gw_status gw_comm_group(gw_comm* comm, const int* ranks, int count, gw_comm** group);

/* After a failure or gw_comm_abort(): a new communicator of the surviving ranks, in the old order.
 * Collective over the survivors. Blocks at most `seconds` seconds (0: the timeout) and 1 more;
 * ranks that have not called by then are excluded. If several communicators were split from one
 * another, all ranks shrink the same one, once. Errors: GW_PEER_LOST if this rank was excluded or
 * is isolated; GW_INVALID_ARGUMENT if nothing has failed; GW_UNSUPPORTED if the transport cannot
 * recover. */
gw_status gw_comm_shrink(gw_comm* comm, double seconds, gw_comm** survivors);

/* Allocates `bytes` zeroed bytes for tensors of this communicator's operations: in memory that the
 * host's ranks share, if they do; operations on it need fewer copies. NULL on failure
 * (gw_last_error() says why). Freed by gw_memory_free(); may outlive the communicator. */
void* gw_memory_alloc(gw_comm* comm, size_t bytes);
/* Frees memory of gw_memory_alloc(), given the pointer that it returned. Never fails. */
void gw_memory_free(void* memory);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif
