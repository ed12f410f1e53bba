/* Versions, errors, logging and element types of the C API. gradwire/c.h, which includes this, has
 * the conventions. */
#ifndef GRADWIRE_C_VALUES_H
#define GRADWIRE_C_VALUES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): names of C */

/* The version of this interface in these headers: the number counts incompatible interfaces. */
#define GW_API_VERSION 1

/* The version of the loaded library, "0.1.0". Never fails; valid for the program's life. */
const char* gw_version(void);
/* The GW_API_VERSION number of the loaded library. Within a number functions are added, none is
 * changed or removed. */
int gw_api_version(void);

/* The outcome of a call or of an operation. */
typedef enum gw_status {
  GW_OK = 0,               /* success */
  GW_INVALID_ARGUMENT = 1, /* wrong input from the caller; the same input fails again */
  GW_UNSUPPORTED = 2,      /* valid input that this build or machine cannot serve */
  GW_OUT_OF_MEMORY = 3,    /* no memory left */
  GW_PEER_LOST = 4,        /* a rank ended, stopped or closed; the communicator is unusable */
  GW_TIMED_OUT = 5,        /* an operation timed out (the communicator is unusable), or the wait of
                              gw_work_wait() did (the operation continues) */
  GW_CANCELLED = 6,        /* gw_comm_abort() here or on another rank, or the handle was freed */
  GW_CORRUPT_PAYLOAD = 7,  /* received bytes contradict their own header or checksum */
  GW_RANK_MISMATCH = 8,    /* ranks passed different operations, sizes or element types */
  GW_INTERNAL = 9,         /* a bug in gradwire */
  GW_IN_PROGRESS = 10      /* gw_work_status() only: the operation is not done */
} gw_status;

/* "peer lost", ...; "?" for any other number. Valid for the program's life. */
const char* gw_status_name(gw_status status);
/* The sentence of this thread's last call that returned another gw_status than GW_OK; "" if there
 * is none. Valid until the thread's next call. */
const char* gw_last_error(void);

/* The severity of a log line: errors, warnings, what a user may want to know (info), and two levels
 * for debugging. A larger number includes all smaller ones. */
typedef enum gw_log_level {
  GW_LOG_ERROR = 0, /* something failed */
  GW_LOG_WARN = 1,  /* something is unsound or slower than need be */
  GW_LOG_INFO = 2,  /* what was selected, once per job */
  GW_LOG_DEBUG = 3, /* how ranks met, what was tried */
  GW_LOG_TRACE = 4  /* more */
} gw_log_level;
/* Receives a log line, valid during the call. Called from any thread, never by two at a time. It
 * must not call gradwire. */
typedef void (*gw_log_fn)(void* context, gw_log_level level, const char* line);

/* Element types. */
typedef enum gw_dtype {
  GW_F64 = 0,  /* IEEE 754 double, 8 bytes */
  GW_F32 = 1,  /* IEEE 754 single, 4 bytes */
  GW_F16 = 2,  /* IEEE 754 half, 2 bytes */
  GW_BF16 = 3, /* bfloat16, 2 bytes */
  GW_I64 = 4,  /* int64_t */
  GW_I32 = 5,  /* int32_t */
  GW_I8 = 6,   /* int8_t */
  GW_U8 = 7    /* uint8_t; also for opaque bytes and Booleans */
} gw_dtype;

/* How a reduction combines the elements of all ranks. Integers wrap around. */
typedef enum gw_reduction {
  GW_SUM = 0,         /* the sum */
  GW_MEAN = 1,        /* the sum, then one multiplication by 1/size; floating-point types */
  GW_MAX = 2,         /* the maximum; NaN if any element is */
  GW_MIN = 3,         /* the minimum; NaN if any element is */
  GW_PRODUCT = 4,     /* the product */
  GW_PRE_MUL_SUM = 5, /* the sum of each rank's elements times its gw_op_options.factor;
                         floating-point types */
  GW_BIT_AND = 6,     /* bitwise and; integers */
  GW_BIT_OR = 7,      /* bitwise or; integers */
  GW_BIT_XOR = 8      /* bitwise exclusive or; integers */
} gw_reduction;

/* Bytes per element: 1, 2, 4 or 8; 0 for any other number. */
size_t gw_dtype_size(gw_dtype dtype);

/* Where memory is. */
typedef enum gw_space {
  GW_HOST = 0, /* the host's memory, page-locked ("pinned") or not */
  GW_CUDA = 1  /* a CUDA device's own */
} gw_space;

/* A place of tensors and, on a CUDA device, the stream that orders work on them. With all fields 0
 * it is the host's memory. The caller owns the stream, and keeps it until the operations that were
 * given it are done. */
typedef struct gw_stream {
  gw_space space; /* where the tensors are */
  int device;     /* GW_CUDA: number of the device, from 0; GW_HOST: 0 */
  void* native; /* GW_CUDA: a cudaStream_t of that device, or NULL for its default stream; GW_HOST:
                   NULL */
} gw_stream;

/* *place becomes the owner of the memory at `address`, as CUDA's driver knows it, with the default
 * stream: GW_CUDA and the device, or GW_HOST, which is also the answer of a build without CUDA.
 * Errors: GW_INVALID_ARGUMENT only. */
gw_status gw_memory_place(const void* address, gw_stream* place);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif
