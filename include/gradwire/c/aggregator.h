/* Compressed averaging, its state, and specs. See gradwire/c.h, which includes this, for
 * conventions. */
#ifndef GRADWIRE_C_AGGREGATOR_H
#define GRADWIRE_C_AGGREGATOR_H

#include <stddef.h>
#include <stdint.h>

#include "gradwire/c/communicator.h"
#include "gradwire/c/operations.h"
#include "gradwire/c/values.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): names of C */

/* Turns every rank's gradients into their mean over ranks, exactly or by a compressor spec, with
 * error feedback kept per tensor by name. A step is: each tensor submitted once, in any grouping
 * and order (equal on all ranks is quickest, not needed), each with any address; when a submit's
 * work is done, its tensors hold the mean, bit-identical on all ranks. The step ends with the last
 * work; the next submit begins the next one. All encoding, exchanges (of as many rounds as a method
 * needs) and decoding happen inside, on a thread and a communicator of the aggregator's own. */
typedef struct gw_aggregator gw_aggregator;

typedef struct gw_tensor_info {
  const char* name; /* "layer1.weight": rules match it, state is kept under it; no two alike */
  gw_dtype dtype;   /* floating; GW_F16 and GW_BF16 are averaged as GW_F32 and rounded once */
  int dimensions;   /* 0 (one element) to 4; fold further ones together */
  int64_t shape[4]; /* row-major; methods of matrices see shape[0] rows */
} gw_tensor_info;

typedef enum gw_form {
  GW_FORM_ALL_REDUCE = 0,     /* the mean, on all ranks */
  GW_FORM_REDUCE_SCATTER = 1, /* the mean in the rank's own shard (gw_shard()) of each tensor, the
                                 rest unspecified */
  GW_FORM_ALL_GATHER = 2      /* rank r's shard of rank r's tensor, in every rank's */
} gw_form;

typedef enum gw_traffic {
  GW_TRAFFIC_GRADIENTS = 0,
  GW_TRAFFIC_PARAMETERS = 1,
  GW_TRAFFIC_OPTIMIZER = 2,
  GW_TRAFFIC_STATISTICS = 3
} gw_traffic;

typedef enum gw_nonfinite {
  GW_NONFINITE_FAILS = 0, /* an element that is no finite number ends the step with an error under
                             a compressor that cannot carry it */
  GW_NONFINITE_SKIPS = 1  /* mixed precision: a step in which any rank has one is left out on all.
                             All tensors become NaN on all ranks, so that every loss scaler sees it,
                             and residuals and all other state stay. Costs one small exchange a
                             step, and nothing travels before the step's last submit */
} gw_nonfinite;

typedef struct gw_aggregator_options {
  size_t struct_size;
  const char* compressor; /* a spec, "topk:ratio=0.01,ef=ef14", or rules by name and size,
                             "*.bias=none;*=powersgd:rank=4,ef=ef14"; NULL: "none", exact */
  const char* algorithm;  /* of dense sums; NULL: "auto" */
  int64_t bucket_bytes;   /* of gradient that travels together; 0: 4 MiB */
  uint64_t seed;          /* equal on all ranks */
  int threads;            /* that encode and decode; 0: 1 */
  int allow_unsafe;       /* 1: pairs that fail or may diverge are warned of, not refused */
  gw_form form;
  gw_traffic traffic;
  gw_nonfinite nonfinite;
  const double* momentum; /* of the optimizer that takes the means, 0 for none; NULL: not known.
                             Methods that keep a momentum themselves (dgc) are refused beside one
                             above 0, and warned of where it is not known */
} gw_aggregator_options;
#define GW_AGGREGATOR_OPTIONS_INIT                                                             \
  {                                                                                            \
    sizeof(gw_aggregator_options), 0, 0, 0, 0, 0, 0, GW_FORM_ALL_REDUCE, GW_TRAFFIC_GRADIENTS, \
        GW_NONFINITE_FAILS, 0                                                                  \
  }

/* Collective over comm, with equal tensors and options. GW_INVALID_ARGUMENT names a bad spec or an
 * illegal pair, the reason and what to write instead. */
gw_status gw_aggregator_create(gw_comm* comm, const gw_tensor_info* tensors, size_t count,
                               const gw_aggregator_options* options, gw_aggregator** aggregator);
/* In the middle of a step it ends that step's works, and the communicator's relatives. */
void gw_aggregator_free(gw_aggregator* aggregator);

typedef struct gw_gradient {
  int index;  /* of the tensors given to gw_aggregator_create() */
  void* data; /* its elements; lent until the work is done */
} gw_gradient;
/* Hands over some of this step's tensors: a bucket, one of them, or all. Returns at once; *work is
 * done when these hold the mean. (With NULL it waits; tensors that share an exchange with others
 * arrive when those are submitted too, so wait so only for a whole step.) GW_INVALID_ARGUMENT, and
 * nothing is handed over: an index that is out of range or was submitted in this step. If the last
 * step failed: its error. */
gw_status gw_aggregator_submit(gw_aggregator* aggregator, const gw_gradient* gradients,
                               size_t count, gw_work** work);
/* Waits for the end of the step, all of whose tensors are submitted; GW_OK where there is none. */
gw_status gw_aggregator_flush(gw_aggregator* aggregator);

/* What state must follow; between steps, alike on all ranks. The rate of the coming update (for
 * ef_rescale_lr); what the coming gradients are multiplied by (mixed precision): residuals are
 * multiplied by this scale over the last one. Cheap where nothing changes. */
gw_status gw_aggregator_set_learning_rate(gw_aggregator* aggregator, double rate);
gw_status gw_aggregator_set_loss_scale(gw_aggregator* aggregator, double scale);
/* Collective, between steps: *skip is 1 on all ranks if any says `overflow`. The caller then leaves
 * the step out: no submit, no update; state stays. (GW_NONFINITE_SKIPS does this by itself.) */
gw_status gw_aggregator_skip(gw_aggregator* aggregator, int overflow, int* skip);

typedef struct gw_aggregator_stats {
  size_t struct_size;
  uint64_t steps;            /* finished, the skipped ones not counted */
  uint64_t skipped_steps;    /* of GW_NONFINITE_SKIPS */
  uint64_t gradient_bytes;   /* as given */
  uint64_t dense_ring_bytes; /* what a ring all-reduce of them would have sent from this rank */
  uint64_t payload_bytes;    /* encoded */
  uint64_t wire_bytes;       /* sent, headers included */
  double encode_seconds;     /* of the aggregator's thread */
  double exchange_seconds;
  double decode_seconds;
  double exposed_seconds; /* what gw_aggregator_flush() made its caller wait */
} gw_aggregator_stats;
#define GW_AGGREGATOR_STATS_INIT \
  { sizeof(gw_aggregator_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* Since creation, on this rank. struct_size says how much the caller has room for. */
gw_status gw_aggregator_get_stats(const gw_aggregator* aggregator, gw_aggregator_stats* stats);
/* Warning i of creation and, behind those, of the steps so far; NULL from their number on. A step
 * that sends more than uncompressed gradients would is told of once. */
const char* gw_aggregator_warning(const gw_aggregator* aggregator, size_t i);

/* What survives a checkpoint, as named tensors: residuals ("layer1.weight.error", ...), warm
 * starts, "aggregator.step". A value of its own: it neither sees nor changes an aggregator. */
typedef struct gw_state gw_state;
typedef struct gw_state_entry {
  const char* name;
  gw_dtype dtype;
  int dimensions;
  int64_t shape[4];
  const void* data;
  size_t bytes;
} gw_state_entry;
/* An empty one, to be filled with gw_state_add(), which copies. */
gw_status gw_state_create(gw_state** state);
gw_status gw_state_add(gw_state* state, const gw_state_entry* entry);
size_t gw_state_count(const gw_state* state);
/* What it points to lives as long as the state, and until the next gw_state_add(). */
gw_status gw_state_get(const gw_state* state, size_t i, gw_state_entry* entry);
void gw_state_free(gw_state* state);
/* A copy of this rank's; between steps. */
gw_status gw_aggregator_save(gw_aggregator* aggregator, gw_state** state);
/* From every old rank's, in rank order, any number of them, the same on all ranks; between steps.
 * As many as now: bit for bit (a rank then needs its own alone, others may be NULL). Else residuals
 * keep their average over ranks. GW_INVALID_ARGUMENT names the entry that is missing, superfluous
 * or of another shape, and nothing has changed. */
gw_status gw_aggregator_load(gw_aggregator* aggregator, const gw_state* const* by_old_rank,
                             size_t old_ranks);

/* The part of a tensor of so many elements that belongs to `rank` of `size` in the sharded forms:
 * [*begin, *end). */
gw_status gw_shard(int64_t elements, int rank, int size, int64_t* begin, int64_t* end);

/* Method i of the table: its name, one line of help and its keys, one a line: "key=default
 * meaning". GW_INVALID_ARGUMENT from the number of methods on. The strings live until the thread's
 * next call of this function. */
typedef struct gw_method {
  const char* name;
  const char* help;
  const char* keys;
} gw_method;
gw_status gw_method_get(size_t i, gw_method* method);

/* What a rule of a compressor text makes of a tensor, without any communicator. */
typedef struct gw_spec_info {
  size_t struct_size;
  char spec[256];         /* canonical */
  char path[16];          /* "dense", "sum", "gather", "oktopk", "sra" */
  uint64_t dense_bytes;   /* of the tensor */
  uint64_t payload_bytes; /* one rank encodes, at most, all rounds together */
  int rounds;
  int elementwise;
  int sparse;
  int lossless;
  int unbiased;
  int stateful;
  int error_feedback;
} gw_spec_info;
#define GW_SPEC_INFO_INIT \
  { sizeof(gw_spec_info), {0}, {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* gw_aggregator_create()'s errors; options may be NULL, and of them only compressor, allow_unsafe,
 * form and traffic count. size: ranks. */
gw_status gw_spec_inspect(const gw_aggregator_options* options, const gw_tensor_info* tensor,
                          int size, gw_spec_info* info);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif
