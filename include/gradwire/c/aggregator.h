/* Compressed averaging of gradients, its state, and specs. gradwire/c.h, which includes this, has
 * the conventions. */
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

/* Averages gradients over ranks, exactly or by a compressor spec, with error feedback per tensor.
 * In a step every tensor is submitted once, in any grouping, order and memory (an equal order on
 * all ranks is the fastest). When the work of a submit is done, its tensors hold the averaged
 * gradients, bit-identical on all ranks. The step ends with its last work; the next submit begins
 * the next step. Encoding, exchanges and decoding run on a thread and a communicator of the
 * aggregator's own. Freed by gw_aggregator_free(). */
typedef struct gw_aggregator gw_aggregator;

/* The description of a tensor. */
typedef struct gw_tensor_info {
  const char* name; /* "layer1.weight": rules match it, and state is saved under it; unique */
  gw_dtype dtype;   /* a floating-point type; GW_F16 and GW_BF16 are averaged as GW_F32 and rounded
                       once */
  int dimensions;   /* number of dimensions, 0 (one element) to 4; combine further ones */
  int64_t shape[4]; /* elements along each dimension, row-major; matrix methods see shape[0] rows */
} gw_tensor_info;

/* What a step leaves in the tensors. */
typedef enum gw_form {
  GW_FORM_ALL_REDUCE = 0,     /* the averaged gradient, on all ranks */
  GW_FORM_REDUCE_SCATTER = 1, /* the averaged gradient in the rank's own shard (gw_shard()); the
                                 other elements are unspecified */
  GW_FORM_ALL_GATHER = 2      /* every rank's shard, on all ranks */
} gw_form;

/* What the tensors are; it decides which methods are allowed. */
typedef enum gw_traffic {
  GW_TRAFFIC_GRADIENTS = 0,  /* gradients: all methods */
  GW_TRAFFIC_PARAMETERS = 1, /* parameters: methods whose output keeps the input's magnitude */
  GW_TRAFFIC_OPTIMIZER = 2,  /* optimizer state: no majority vote, no second momentum */
  GW_TRAFFIC_STATISTICS = 3  /* losses, counts, norms: exact methods */
} gw_traffic;

/* What happens when a gradient has an element that is not finite. */
typedef enum gw_nonfinite {
  GW_NONFINITE_FAILS = 0, /* the step fails, if the compressor cannot encode the element */
  GW_NONFINITE_SKIPS = 1  /* for mixed precision: all ranks skip a step in which any rank has such
                             an element. All tensors become NaN on all ranks, which loss scalers
                             notice; residuals and other state are not changed. Costs one small
                             exchange per step; no exchange starts before the step's last submit.
                             Gradients on a device are copied to the host to be looked at */
} gw_nonfinite;

/* Options of an aggregator; equal on all ranks except threads. NULL: all defaults. */
typedef struct gw_aggregator_options {
  size_t struct_size;     /* bytes of this struct; set by GW_AGGREGATOR_OPTIONS_INIT */
  const char* compressor; /* a spec, "topk:ratio=0.01,ef=ef14", or rules by name and size,
                             "*.bias=none;*=powersgd:rank=4,ef=ef14"; NULL: "none", exact */
  const char* algorithm;  /* of exact sums; NULL: "auto" */
  int64_t bucket_bytes;   /* bytes of gradient that are exchanged together; 0: 4 MiB */
  uint64_t seed;          /* seed of the random numbers */
  int threads;            /* number of threads that encode and decode; 0: 1 */
  int allow_unsafe;       /* 1: combinations that fail or may diverge cause a warning only */
  gw_form form;           /* what a step leaves in the tensors */
  gw_traffic traffic;     /* what the tensors are */
  gw_nonfinite nonfinite; /* what happens to elements that are not finite */
  const double* momentum; /* the momentum factor of the optimizer that uses the averaged gradients,
                             a ratio; 0: none; NULL: not known. Methods with a momentum of their own
                             (dgc) are refused if it is above 0, and cause a warning if it is not
                             known */
  gw_space space;         /* where all tensors are, in all steps */
  int device;             /* GW_CUDA: number of the device; GW_HOST: 0 */
} gw_aggregator_options;
/* The initial value: all defaults. */
#define GW_AGGREGATOR_OPTIONS_INIT                                                             \
  {                                                                                            \
    sizeof(gw_aggregator_options), 0, 0, 0, 0, 0, 0, GW_FORM_ALL_REDUCE, GW_TRAFFIC_GRADIENTS, \
        GW_NONFINITE_FAILS, 0, GW_HOST, 0                                                      \
  }

/* Creates an aggregator for `count` tensors, equal on all ranks. Collective over comm; comm may be
 * freed before the aggregator. Errors: GW_INVALID_ARGUMENT for a bad spec, for a combination that
 * fails or may diverge, with the reason and what to write instead, or for a device that does not
 * exist; GW_UNSUPPORTED for a device in a build without CUDA, and, at the latest by the first
 * submit, for a method or an element type that devices do not have (docs/gpu.md lists them); those
 * of gw_comm_split(). */
gw_status gw_aggregator_create(gw_comm* comm, const gw_tensor_info* tensors, size_t count,
                               const gw_aggregator_options* options, gw_aggregator** aggregator);
/* Frees an aggregator. Within a step it cancels the step's works, and all communicators of the same
 * root become unusable. Never fails. */
void gw_aggregator_free(gw_aggregator* aggregator);

/* A tensor of a step. */
typedef struct gw_gradient {
  int index;  /* index of the tensor in gw_aggregator_create() */
  void* data; /* its elements, replaced by the result; lent until the work is done */
} gw_gradient;
/* Submits `count` tensors of the step: one, a bucket, or all. Returns at once; *work is done when
 * these tensors hold the result. With NULL for work it waits; use that for a whole step only, since
 * tensors that share an exchange are complete only when all of them are submitted. Errors:
 * GW_INVALID_ARGUMENT, and nothing is submitted, for an index that is out of range or was submitted
 * in this step; after a failed step, its error. The work ends with the errors of all operations
 * (c/operations.h), or GW_INVALID_ARGUMENT for elements that are not finite. */
gw_status gw_aggregator_submit(gw_aggregator* aggregator, const gw_gradient* gradients,
                               size_t count, gw_work** work);
/* gw_aggregator_submit() of gradients on a CUDA device, which are final after the work that
 * `stream` holds at the call; the host does not wait for that. NULL: the default stream of the
 * aggregator's device, as gw_aggregator_submit() takes it. When the work is done, all streams see
 * the result. Errors: as gw_aggregator_submit(); GW_INVALID_ARGUMENT, and nothing is submitted, for
 * a stream of another place than the aggregator's tensors, and for a gradient in other memory. */
gw_status gw_aggregator_submit_on(gw_aggregator* aggregator, const gw_gradient* gradients,
                                  size_t count, const gw_stream* stream, gw_work** work);
/* Waits for the end of the step, whose tensors must all be submitted; GW_OK if there is no step.
 * Errors: GW_INVALID_ARGUMENT if a tensor is missing; those of the step's works. */
gw_status gw_aggregator_flush(gw_aggregator* aggregator);

/* Sets the learning rate of the next update, 0 or above; between steps, equal on all ranks. With
 * ef_rescale_lr=true it multiplies residuals by the last rate over this one. Errors:
 * GW_INVALID_ARGUMENT, and nothing is changed, within a step or for a rate that is negative or not
 * finite. */
gw_status gw_aggregator_set_learning_rate(gw_aggregator* aggregator, double rate);
/* Sets the factor of the next gradients (loss scale of mixed precision), above 0; between steps,
 * equal on all ranks. It multiplies residuals and other state by this factor over the last one.
 * Errors: as gw_aggregator_set_learning_rate(). */
gw_status gw_aggregator_set_loss_scale(gw_aggregator* aggregator, double scale);
/* *skip becomes 1 on all ranks if any rank passes overflow = 1, else 0; collective, between steps.
 * If 1 the caller skips the step: no submit, no update; the state is not changed.
 * (GW_NONFINITE_SKIPS does this by itself.) Errors: GW_INVALID_ARGUMENT within a step; those of all
 * operations. */
gw_status gw_aggregator_skip(gw_aggregator* aggregator, int overflow, int* skip);

/* Counters of an aggregator on this rank since its creation. Seconds are wall-clock time of the
 * aggregator's thread, except exposed_seconds. */
typedef struct gw_aggregator_stats {
  size_t struct_size;        /* bytes of this struct; set by GW_AGGREGATOR_STATS_INIT */
  uint64_t steps;            /* finished steps, without skipped ones */
  uint64_t skipped_steps;    /* steps skipped by GW_NONFINITE_SKIPS */
  uint64_t gradient_bytes;   /* uncompressed gradients */
  uint64_t dense_ring_bytes; /* bytes that this rank would have sent with a ring all-reduce */
  uint64_t payload_bytes;    /* payloads that this rank encoded */
  uint64_t wire_bytes;       /* messages sent, headers included */
  double encode_seconds;     /* encoding */
  double exchange_seconds;   /* waiting for exchanges */
  double decode_seconds;     /* decoding */
  double exposed_seconds;    /* time for which gw_aggregator_flush() blocked its caller */
} gw_aggregator_stats;
/* The initial value, with all counters 0. */
#define GW_AGGREGATOR_STATS_INIT \
  { sizeof(gw_aggregator_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* Fills *stats, as much of it as stats->struct_size says. Errors: GW_INVALID_ARGUMENT only. */
gw_status gw_aggregator_get_stats(const gw_aggregator* aggregator, gw_aggregator_stats* stats);
/* Warning number i, from 0: those of the creation, then those of the steps so far; NULL if there
 * are fewer. A step that sends more bytes than uncompressed gradients causes one warning. Valid as
 * long as the handle. */
const char* gw_aggregator_warning(const gw_aggregator* aggregator, size_t i);

/* The state that a checkpoint must save, as named tensors: residuals ("layer1.weight.error", ...),
 * warm starts, "aggregator.step". A copy, independent of any aggregator. Freed by
 * gw_state_free(). */
typedef struct gw_state gw_state;
/* One tensor of a state. */
typedef struct gw_state_entry {
  const char* name; /* unique in the state */
  gw_dtype dtype;   /* element type */
  int dimensions;   /* number of dimensions, 0 to 4 */
  int64_t shape[4]; /* elements along each dimension, row-major */
  const void* data; /* its elements */
  size_t bytes;     /* length of `data` in bytes */
} gw_state_entry;
/* Creates an empty state. Errors: GW_OUT_OF_MEMORY. */
gw_status gw_state_create(gw_state** state);
/* Adds a copy of an entry. Errors: GW_INVALID_ARGUMENT for a length that does not match the
 * shape. */
gw_status gw_state_add(gw_state* state, const gw_state_entry* entry);
/* The number of entries; 0 for a null or freed handle. */
size_t gw_state_count(const gw_state* state);
/* Entry number i, from 0. Its pointers are valid as long as the state, and until the next
 * gw_state_add(). Errors: GW_INVALID_ARGUMENT if i is out of range. */
gw_status gw_state_get(const gw_state* state, size_t i, gw_state_entry* entry);
/* Frees a state. Never fails. */
void gw_state_free(gw_state* state);
/* *state becomes a copy of this rank's state; between steps. Errors: GW_INVALID_ARGUMENT within a
 * step; after a failed step, its error. */
gw_status gw_aggregator_save(gw_aggregator* aggregator, gw_state** state);
/* Restores the states of `old_ranks` ranks, in rank order; between steps, equal on all ranks. With
 * the same number of ranks the state is restored bit for bit, and a rank needs only its own state
 * (others may be NULL). With another number, residuals keep their average over ranks. Errors:
 * GW_INVALID_ARGUMENT, naming the entry that is missing, superfluous or of another shape, and
 * nothing is changed. */
gw_status gw_aggregator_load(gw_aggregator* aggregator, const gw_state* const* by_old_rank,
                             size_t old_ranks);

/* The shard of `rank` among `size` ranks in a tensor of `elements` elements, as the sharded forms
 * divide it: elements [*begin, *end). Errors: GW_INVALID_ARGUMENT only. */
gw_status gw_shard(int64_t elements, int rank, int size, int64_t* begin, int64_t* end);

/* A compression method. The strings are valid until the thread's next gw_method_get(). */
typedef struct gw_method {
  const char* name; /* as written in a spec */
  const char* help; /* one line: what it sends */
  const char* keys; /* one line per key: "key=default meaning" */
} gw_method;
/* Method number i, from 0. Errors: GW_INVALID_ARGUMENT if there are not more than i. */
gw_status gw_method_get(size_t i, gw_method* method);

/* How a compressor text sends a tensor. Numbers that say yes or no are 1 or 0. */
typedef struct gw_spec_info {
  size_t struct_size;     /* bytes of this struct; set by GW_SPEC_INFO_INIT */
  char spec[256];         /* the spec that applies, in canonical form */
  char path[16];          /* aggregation mode: "dense" (uncompressed), "sum", "gather", "oktopk",
                             "sra" */
  uint64_t dense_bytes;   /* the uncompressed tensor */
  uint64_t payload_bytes; /* the largest payload of one rank, all rounds together */
  int rounds;             /* rounds of a step */
  int elementwise;        /* 1: encodes element by element */
  int sparse;             /* 1: sends selected elements */
  int lossless;           /* 1: decodes bit for bit */
  int unbiased;           /* 1: the expected result is the input */
  int stateful;           /* 1: the method keeps state between steps */
  int error_feedback;     /* 1: the spec has error feedback */
} gw_spec_info;
/* The initial value, with everything 0. */
#define GW_SPEC_INFO_INIT \
  { sizeof(gw_spec_info), {0}, {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* Fills *info for a tensor among `size` ranks; needs no communicator. Of the options only
 * compressor, allow_unsafe, form and traffic apply; NULL: defaults. Errors: GW_INVALID_ARGUMENT, as
 * gw_aggregator_create(). */
gw_status gw_spec_inspect(const gw_aggregator_options* options, const gw_tensor_info* tensor,
                          int size, gw_spec_info* info);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif
