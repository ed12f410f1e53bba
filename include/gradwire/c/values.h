/* Versions, outcomes, log and elements. See gradwire/c.h, which includes this, for conventions. */
#ifndef GRADWIRE_C_VALUES_H
#define GRADWIRE_C_VALUES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): names of C */

#define GW_API_VERSION 1

/* "0.1.0": of the library that was loaded. */
const char* gw_version(void);
/* GW_API_VERSION of that library: functions are added to it, none is taken away or changed. */
int gw_api_version(void);

typedef enum gw_status {
  GW_OK = 0,
  GW_INVALID_ARGUMENT = 1, /* the caller's input; retrying cannot help */
  GW_UNSUPPORTED = 2,      /* valid, but not in this build or on this machine */
  GW_OUT_OF_MEMORY = 3,
  GW_PEER_LOST = 4,       /* a rank died, stopped or closed; the communicator is finished */
  GW_TIMED_OUT = 5,       /* an operation's timeout: the communicator is finished; a wait's: not */
  GW_CANCELLED = 6,       /* gw_comm_abort(), here or on another rank, or the handle's end */
  GW_CORRUPT_PAYLOAD = 7, /* received bytes contradict their own header or checksum */
  GW_RANK_MISMATCH = 8,   /* ranks disagree about operation, size or type */
  GW_INTERNAL = 9,        /* a bug in gradwire */
  GW_IN_PROGRESS = 10     /* of gw_work_status() alone: not done yet */
} gw_status;

/* "peer lost", ...; "?" for a number that is none. */
const char* gw_status_name(gw_status status);
/* Why this thread's last call that returned a gw_status other than GW_OK did; "" before any. */
const char* gw_last_error(void);

typedef enum gw_log_level {
  GW_LOG_ERROR = 0,
  GW_LOG_WARN = 1,
  GW_LOG_INFO = 2,
  GW_LOG_DEBUG = 3,
  GW_LOG_TRACE = 4
} gw_log_level;
/* From any thread, one line at a time and never two at once; must not call gradwire. */
typedef void (*gw_log_fn)(void* context, gw_log_level level, const char* line);

typedef enum gw_dtype {
  GW_F64 = 0,
  GW_F32 = 1,
  GW_F16 = 2,
  GW_BF16 = 3,
  GW_I64 = 4,
  GW_I32 = 5,
  GW_I8 = 6,
  GW_U8 = 7 /* also bytes that are only moved, and truth values */
} gw_dtype;

typedef enum gw_reduction {
  GW_SUM = 0,
  GW_MEAN = 1, /* the sum, then one multiplication by 1/size; floating types */
  GW_MAX = 2,
  GW_MIN = 3,
  GW_PRODUCT = 4,
  GW_PRE_MUL_SUM = 5, /* each rank's elements times gw_op_options.factor, then the sum; floating */
  GW_BIT_AND = 6,     /* the last three: integers */
  GW_BIT_OR = 7,
  GW_BIT_XOR = 8
} gw_reduction;

/* Bytes per element; 0 for a number that is no type. */
size_t gw_dtype_size(gw_dtype dtype);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif
