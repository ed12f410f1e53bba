/* How ranks meet, and their communicators. See gradwire/c.h, which includes this, for conventions.
 */
#ifndef GRADWIRE_C_COMMUNICATOR_H
#define GRADWIRE_C_COMMUNICATOR_H

#include <stddef.h>
#include <stdint.h>

#include "gradwire/c/values.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): names of C */

typedef struct gw_comm gw_comm;

/* NULL for the whole struct: all defaults. Equal on all ranks but for names, interface and log. */
typedef struct gw_comm_options {
  size_t struct_size;
  double liveness_seconds;   /* 0: GRADWIRE_DEADLINE, else 15. At least 0.5 */
  double timeout_seconds;    /* of operations that name none; 0: 300 */
  double rendezvous_seconds; /* how long to wait for the slowest rank; 0: 60 */
  const char* transport;     /* "auto" (shared memory inside hosts; between them UCX, or TCP where a
                                rank has no UCX), "shm", "ucx", "tcp", "nccl", "nccl:N"; NULL:
                                GRADWIRE_TRANSPORT, else "auto" */
  const char* interface_name; /* of the network; NULL: GRADWIRE_IFNAME, else the first that fits */
  const char* algorithm;      /* of reductions that name none; NULL: "auto". "canonical": in rank
                                 order */
  const char* links;          /* what "auto" chooses by: "default", "cached", "measured"; NULL:
                                 GRADWIRE_LINKS, else "default" */
  const char* job;           /* a name that ranks of other jobs do not have; NULL: the launcher's */
  const char* secret;        /* proves connections; NULL: GRADWIRE_SECRET or GRADWIRE_SECRET_FILE */
  const char* flight_folder; /* where a failure leaves what this rank did last; NULL:
                                GRADWIRE_FLIGHT, else nowhere */
  int checksums;             /* 1: every message carries one; 0: as GRADWIRE_CHECKSUM says */
  gw_log_level log_level;    /* of log: this and what is more urgent; 0: errors alone */
  gw_log_fn log;             /* may be NULL; called until the last handle of the job is freed */
  void* log_context;
  /* Of gw_init_env(), before what any launcher says. */
  int rank;               /* counts where size is given */
  int size;               /* 0: rank and size are the launcher's */
  const char* rendezvous; /* "host:port" of rank 0, or "file://DIR", a folder that all ranks see;
                             NULL: the launcher's */
} gw_comm_options;
#define GW_COMM_OPTIONS_INIT \
  { sizeof(gw_comm_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, GW_LOG_ERROR, 0, 0, 0, 0, 0 }

/* What the environment says about this process. */
typedef struct gw_launch {
  int rank;
  int size;
  int local_rank;
  char source[32];      /* "GRADWIRE_*", "torchrun", "Open MPI", "PMI", "PALS", "Slurm",
                           "RANK/WORLD_SIZE", "alone" */
  char rendezvous[256]; /* "host:port", "file://DIR", or "" where the launcher names none */
} gw_launch;
gw_status gw_launch_from_env(gw_launch* launch);

/* All gw_init_...(): collective; block until all ranks are there, at most rendezvous_seconds. On
 * GW_OK *comm is the communicator of all ranks over an own transport, to be freed; else NULL.
 * GW_UNSUPPORTED: no such transport here; for UCX it names the library and the path tried. */

/* Rank, size and meeting place from the launcher's variables; alone without any. */
gw_status gw_init_env(const gw_comm_options* options, gw_comm** comm);

/* out (size * bytes) becomes every rank's in (bytes), in rank order; blocks. Returns 0, or anything
 * else for a failure, which ends gw_init_all_gather() with GW_INTERNAL. */
typedef int (*gw_all_gather_fn)(void* context, const void* in, void* out, size_t bytes);
/* Ranks that can talk already (MPI, a store, sockets) say how. The function is called by this
 * thread, during this call, equally often on all ranks. Rank 0 listens on a port for the meeting's
 * time. */
gw_status gw_init_all_gather(gw_all_gather_fn all_gather, void* context, int rank, int size,
                             const gw_comm_options* options, gw_comm** comm);

/* A key-value store that all ranks see. Both return 0, or anything else for a failure. Keys are
 * printable, at most 256 bytes and end with a zero; values at most 1 MiB. Every key is set once, by
 * one rank. Called by the thread that calls gw_init_store(), during that call alone. */
typedef struct gw_store {
  void* context;
  int (*set)(void* context, const char* key, const void* value, size_t bytes);
  /* Waits until somebody has set the key, at most `seconds`, then gives its value to give(receiver,
   * value, bytes) before it returns. */
  int (*get)(void* context, const char* key, double seconds,
             void (*give)(void* receiver, const void* value, size_t bytes), void* receiver);
} gw_store;
/* Keys begin with "gradwire/" and the options' job: a store that outlives a communicator needs
 * another job name (or prefix of its own) for the next. */
gw_status gw_init_store(const gw_store* store, int rank, int size, const gw_comm_options* options,
                        gw_comm** comm);

/* Made by the process that will be rank 0, brought to the others by any means, used once. The
 * process that made it listens on a port from then on, until gw_init_unique_id() has met all or the
 * id is given back. */
typedef struct gw_unique_id {
  char bytes[512];
} gw_unique_id;
gw_status gw_unique_id_create(const gw_comm_options* options, gw_unique_id* id);
/* For an id that was made here and not used. */
gw_status gw_unique_id_release(const gw_unique_id* id);
gw_status gw_init_unique_id(const gw_unique_id* id, int rank, int size,
                            const gw_comm_options* options, gw_comm** comm);

/* `size` ranks as threads of this process: comms[r] is rank r's. Of the options the timeout, the
 * algorithm and the log count. Not collective. */
gw_status gw_init_threads(int size, const gw_comm_options* options, gw_comm** comms);

/* Says goodbye and frees, within two seconds. What is under way ends with GW_CANCELLED, and then so
 * do all relatives; other ranks that wait for this one hear that it closed. Groups that were split
 * off, works and aggregators may be freed later; the transport goes with the last of them. */
void gw_comm_free(gw_comm* comm);

/* -1 without a communicator. */
int gw_comm_rank(const gw_comm* comm);
int gw_comm_size(const gw_comm* comm);
/* The rank at the root (the job) of this group's rank r; -1 for none. */
int gw_comm_job_rank(const gw_comm* comm, int r);
/* GW_OK, or the first failure, which ended it. Its sentence: gw_last_error(). */
gw_status gw_comm_status(const gw_comm* comm);
/* One line for people: ranks, transport, versions. */
const char* gw_comm_describe(const gw_comm* comm);

typedef struct gw_comm_stats {
  size_t struct_size;
  uint64_t bytes_sent;     /* by this communicator's operations */
  uint64_t job_bytes_sent; /* by the transport below, headers and heartbeats included: all groups */
  uint64_t job_bytes_received;
  uint64_t job_messages_sent;
  uint64_t job_messages_received;
} gw_comm_stats;
#define GW_COMM_STATS_INIT \
  { sizeof(gw_comm_stats), 0, 0, 0, 0, 0 }
gw_status gw_comm_get_stats(const gw_comm* comm, gw_comm_stats* stats);

/* Ends all operations of this rank, on this communicator and its relatives, with GW_CANCELLED; the
 * others' end too, and name this rank and the reason. From any thread, also while others wait.
 * Nothing after a failure. */
gw_status gw_comm_abort(gw_comm* comm, const char* reason);

/* Collective. Ranks with equal color form a group ordered by key, then by old rank; a negative
 * color takes part and receives NULL. */
gw_status gw_comm_split(gw_comm* comm, int color, int key, gw_comm** group);
/* Collective over ALL ranks of comm: the group of these ranks of comm, in this order, equal on all;
 * ranks that are not among them receive NULL. */
gw_status gw_comm_group(gw_comm* comm, const int* ranks, int count, gw_comm** group);

/* Collective over the ranks that are left after a failure (or abort): a communicator of them, in
 * the old order. Blocks for at most `seconds` (0: the timeout) and a second. Of several that were
 * split from one another, all ranks shrink the same one, once. */
gw_status gw_comm_shrink(gw_comm* comm, double seconds, gw_comm** survivors);

/* Zeroed memory on which this communicator's operations run best: shared with the host's other
 * ranks where these share memory. NULL if there is none (gw_last_error() says why). May outlive the
 * communicator. */
void* gw_memory_alloc(gw_comm* comm, size_t bytes);
/* Exactly what gw_memory_alloc() returned. */
void gw_memory_free(void* memory);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif
