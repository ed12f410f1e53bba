/* The C API without other processes: versions, refusals of what is no argument, states, specs, and
 * ranks that are threads as far as one thread can play them. */
#define _DEFAULT_SOURCE
#include <gradwire/c.h>
#include <stdlib.h>

#include "checks.h"

static void versions_and_names(void) {
  GW_CHECK_THAT(gw_api_version() == GW_API_VERSION);
  GW_CHECK_THAT(strchr(gw_version(), '.') != NULL);
  GW_CHECK_THAT(strcmp(gw_status_name(GW_PEER_LOST), "peer lost") == 0);
  GW_CHECK_THAT(strcmp(gw_status_name(GW_IN_PROGRESS), "in progress") == 0);
  GW_CHECK_THAT(strcmp(gw_status_name((gw_status)99), "?") == 0);
  GW_CHECK_THAT(gw_dtype_size(GW_F64) == 8 && gw_dtype_size(GW_BF16) == 2);
  GW_CHECK_THAT(gw_dtype_size(GW_U8) == 1 && gw_dtype_size((gw_dtype)42) == 0);
}

static void nothing_is_refused(void) {
  gw_comm* comm = NULL;
  gw_work* work = NULL;
  int number = 0;
  float value = 1;
  GW_CHECK_REFUSED(gw_init_env(NULL, NULL), GW_INVALID_ARGUMENT, "comm is NULL");
  GW_CHECK_REFUSED(gw_init_store(NULL, 0, 1, NULL, &comm), GW_INVALID_ARGUMENT, "store is NULL");
  GW_CHECK_REFUSED(gw_init_all_gather(NULL, NULL, 0, 2, NULL, &comm), GW_INVALID_ARGUMENT,
                   "all_gather is NULL");
  GW_CHECK_REFUSED(gw_barrier(NULL, NULL, NULL), GW_INVALID_ARGUMENT, "comm is NULL");
  GW_CHECK_REFUSED(gw_all_reduce(NULL, &value, &value, 1, GW_F32, GW_SUM, NULL, &work),
                   GW_INVALID_ARGUMENT, "gw_all_reduce: comm is NULL");
  GW_CHECK_REFUSED(gw_work_test(NULL, &number), GW_INVALID_ARGUMENT, "work is NULL");
  GW_CHECK_REFUSED(gw_work_wait(NULL, 1), GW_INVALID_ARGUMENT, "work is NULL");
  GW_CHECK_REFUSED(gw_work_status(NULL), GW_INVALID_ARGUMENT, "work is NULL");
  GW_CHECK_REFUSED(gw_comm_split(NULL, 0, 0, &comm), GW_INVALID_ARGUMENT, "comm is NULL");
  GW_CHECK_REFUSED(gw_comm_abort(NULL, "why"), GW_INVALID_ARGUMENT, "comm is NULL");
  GW_CHECK_REFUSED(gw_aggregator_flush(NULL), GW_INVALID_ARGUMENT, "aggregator is NULL");
  GW_CHECK_REFUSED(gw_state_add(NULL, NULL), GW_INVALID_ARGUMENT, "state is NULL");
  GW_CHECK_THAT(gw_comm_rank(NULL) == -1 && gw_comm_size(NULL) == -1);
  GW_CHECK_THAT(strcmp(gw_work_error(NULL), "") == 0 && gw_work_source(NULL) == -1);
  GW_CHECK_THAT(comm == NULL && work == NULL);
  gw_comm_free(NULL);
  gw_work_free(NULL);
  gw_aggregator_free(NULL);
  gw_state_free(NULL);
  gw_memory_free(NULL);
}

static void bad_options_are_refused(void) {
  gw_comm* comm = NULL;
  gw_comm_options options = GW_COMM_OPTIONS_INIT;
  options.struct_size = 3;
  GW_CHECK_REFUSED(gw_init_env(&options, &comm), GW_INVALID_ARGUMENT, "struct_size is 3");
  options.struct_size = sizeof options;
  options.transport = "pigeons";
  GW_CHECK_REFUSED(gw_init_env(&options, &comm), GW_INVALID_ARGUMENT,
                   "unknown transport 'pigeons'");
  options.transport = "nccl:first";
  GW_CHECK_REFUSED(gw_init_env(&options, &comm), GW_INVALID_ARGUMENT, "transport: 'nccl:first'");
  options.transport = "tcp";
  options.liveness_seconds = 0.1;
  GW_CHECK_REFUSED(gw_init_env(&options, &comm), GW_INVALID_ARGUMENT, "liveness_seconds");
  options.liveness_seconds = 0;
  options.links = "guessed";
  GW_CHECK_REFUSED(gw_init_env(&options, &comm), GW_INVALID_ARGUMENT, "guessed");
  GW_CHECK_REFUSED(gw_init_unique_id(&(gw_unique_id){"gw1 what"}, 0, 1, NULL, &comm),
                   GW_INVALID_ARGUMENT, "malformed");
}

static int set_nothing(void* context, const char* key, const void* value, size_t bytes) {
  (void)context, (void)key, (void)value, (void)bytes;
  return 0;
}

static int get_nothing(void* context, const char* key, double seconds,
                       void (*give)(void* receiver, const void* value, size_t bytes),
                       void* receiver) {
  (void)context, (void)key, (void)seconds, (void)give, (void)receiver;
  return 1;
}

/* However a rank joins (PyTorch's ranks do by a store), the rule for a rank that is left alone is
 * that of its environment. */
static void the_rule_for_a_lone_survivor_is_read(void) {
  const gw_store store = {NULL, set_nothing, get_nothing};
  gw_comm* comm = NULL;
  GW_CHECK_THAT(setenv("GRADWIRE_ALLOW_LONE_SURVIVOR", "maybe", 1) == 0);
  GW_CHECK_REFUSED(gw_init_env(NULL, &comm), GW_INVALID_ARGUMENT, "GRADWIRE_ALLOW_LONE_SURVIVOR");
  GW_CHECK_REFUSED(gw_init_store(&store, 0, 1, NULL, &comm), GW_INVALID_ARGUMENT,
                   "GRADWIRE_ALLOW_LONE_SURVIVOR");
  GW_CHECK_THAT(setenv("GRADWIRE_ALLOW_LONE_SURVIVOR", "1", 1) == 0);
  GW_CHECK_THAT(gw_init_store(&store, 0, 1, NULL, &comm) == GW_OK);
  gw_comm_free(comm);
  GW_CHECK_THAT(unsetenv("GRADWIRE_ALLOW_LONE_SURVIVOR") == 0);
}

/* One rank alone: everything is its own. */
static void one_rank(void) {
  gw_comm* comm = NULL;
  gw_work* work = NULL;
  float values[3] = {1, 2, 3};
  int done = 0;
  int source = 0;
  GW_CHECK_THAT(gw_init_threads(1, NULL, &comm) == GW_OK);
  GW_CHECK_THAT(gw_comm_rank(comm) == 0 && gw_comm_size(comm) == 1 &&
                gw_comm_job_rank(comm, 0) == 0);
  GW_CHECK_THAT(gw_comm_job_rank(comm, 1) == -1);
  GW_CHECK_THAT(gw_all_reduce(comm, values, values, 3, GW_F32, GW_MEAN, NULL, &work) == GW_OK);
  GW_CHECK_THAT(gw_work_wait(work, -1) == GW_OK && gw_work_status(work) == GW_OK);
  GW_CHECK_THAT(gw_work_test(work, &done) == GW_OK && done == 1);
  GW_CHECK_THAT(values[2] == 3 && gw_work_source(work) == -1);
  /* A handle of another type is noticed. */
  GW_CHECK_REFUSED(gw_work_test((gw_work*)(void*)comm, &done), GW_INVALID_ARGUMENT,
                   "no live handle");
  GW_CHECK_REFUSED(gw_all_reduce(comm, NULL, values, 3, GW_F32, GW_SUM, NULL, NULL),
                   GW_INVALID_ARGUMENT, "in is NULL (expected 3 elements)");
  GW_CHECK_REFUSED(gw_all_reduce(comm, values, values, -1, GW_F32, GW_SUM, NULL, NULL),
                   GW_INVALID_ARGUMENT, "count -1");
  GW_CHECK_REFUSED(gw_all_reduce(comm, values, values, 3, (gw_dtype)9, GW_SUM, NULL, NULL),
                   GW_INVALID_ARGUMENT, "dtype 9");
  GW_CHECK_REFUSED(gw_all_reduce(comm, values, values, 3, GW_F32, (gw_reduction)77, NULL, NULL),
                   GW_INVALID_ARGUMENT, "reduction 77");
  GW_CHECK_REFUSED(gw_all_reduce(comm, values, values, 3, GW_F32, GW_BIT_OR, NULL, NULL),
                   GW_INVALID_ARGUMENT, "integer type");
  GW_CHECK_REFUSED(gw_all_reduce(comm, values, values + 1, 2, GW_F32, GW_SUM, NULL, NULL),
                   GW_INVALID_ARGUMENT, "overlaps");
  GW_CHECK_REFUSED(gw_broadcast(comm, values, 3, GW_F32, 1, NULL, NULL), GW_INVALID_ARGUMENT,
                   "root 1");
  GW_CHECK_REFUSED(gw_recv(comm, values, 3, GW_F32, GW_ANY_SOURCE, NULL, NULL), GW_INVALID_ARGUMENT,
                   "any source");
  GW_CHECK_REFUSED(gw_probe(comm, 0, 0.1, NULL, &source), GW_INVALID_ARGUMENT, "this rank itself");
  GW_CHECK_THAT(gw_start_all(comm, NULL, 0, NULL, NULL) == GW_OK);
  gw_comm_free(comm);
  gw_work_free(work); /* after its communicator */
}

static void states(void) {
  gw_state* state = NULL;
  gw_state_entry entry = {0};
  const double values[2] = {0.5, -2};
  GW_CHECK_THAT(gw_state_create(&state) == GW_OK && gw_state_count(state) == 0);
  entry.name = "w.error";
  entry.dtype = GW_F64;
  entry.dimensions = 1;
  entry.shape[0] = 2;
  entry.data = values;
  entry.bytes = sizeof values;
  GW_CHECK_THAT(gw_state_add(state, &entry) == GW_OK);
  entry.bytes = 8;
  GW_CHECK_REFUSED(gw_state_add(state, &entry), GW_INVALID_ARGUMENT,
                   "'w.error' of 8 bytes (expected 16");
  entry.dimensions = 5;
  GW_CHECK_REFUSED(gw_state_add(state, &entry), GW_INVALID_ARGUMENT, "5 dimensions");
  GW_CHECK_REFUSED(gw_state_get(state, 1, &entry), GW_INVALID_ARGUMENT, "entry 1");
  GW_CHECK_THAT(gw_state_get(state, 0, &entry) == GW_OK && gw_state_count(state) == 1);
  GW_CHECK_THAT(strcmp(entry.name, "w.error") == 0 && entry.shape[0] == 2);
  GW_CHECK_THAT(memcmp(entry.data, values, sizeof values) == 0 && entry.data != values);
  gw_state_free(state);
}

static void specs(void) {
  gw_method method;
  gw_spec_info info = GW_SPEC_INFO_INIT;
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  const gw_tensor_info tensor = {"layer.weight", GW_F32, 2, {100, 100, 0, 0}};
  const gw_tensor_info bias = {"layer.bias", GW_F32, 1, {100, 0, 0, 0}};
  size_t methods = 0;
  int has_topk = 0;
  int64_t begin = 0;
  int64_t end = 0;
  while (methods < 1000 && gw_method_get(methods, &method) == GW_OK) {
    has_topk |= strcmp(method.name, "topk") == 0 && strstr(method.keys, "ratio=") != NULL;
    ++methods;
  }
  GW_CHECK_THAT(methods > 10 && methods < 1000 && has_topk);
  options.compressor = "topk:ratio=0.01,ef=ef14";
  GW_CHECK_THAT(gw_spec_inspect(&options, &tensor, 4, &info) == GW_OK);
  /* 100 of 10,000 elements, each an index and a value of 4 bytes. */
  GW_CHECK_THAT(info.dense_bytes == 40000 && info.payload_bytes >= 800 &&
                info.payload_bytes < 1000);
  GW_CHECK_THAT(info.sparse == 1 && info.error_feedback == 1 && strcmp(info.path, "gather") == 0);
  GW_CHECK_THAT(gw_spec_inspect(&options, &bias, 4, &info) == GW_OK);
  GW_CHECK_THAT(strcmp(info.path, "dense") == 0 && info.payload_bytes == 400);
  options.compressor = "topk:ratio=2";
  GW_CHECK_REFUSED(gw_spec_inspect(&options, &tensor, 4, &info), GW_INVALID_ARGUMENT, "ratio");
  options.compressor = "zip";
  GW_CHECK_REFUSED(gw_spec_inspect(&options, &tensor, 4, &info), GW_INVALID_ARGUMENT, "zip");
  /* 10 elements for 4 ranks: 3, 3, 2, 2. */
  GW_CHECK_THAT(gw_shard(10, 2, 4, &begin, &end) == GW_OK && begin == 6 && end == 8);
  GW_CHECK_REFUSED(gw_shard(10, 4, 4, &begin, &end), GW_INVALID_ARGUMENT, "rank 4 of 4");
}

/* Without CUDA, without a device, and where there is one: memory of the host is never a device's.
 */
static void memory_of_the_host_on_no_device(void) {
  gw_comm* comm = NULL;
  gw_aggregator* aggregator = NULL;
  float value = 1;
  gw_stream place = {GW_CUDA, 7, NULL};
  gw_op_options options = GW_OP_OPTIONS_INIT;
  gw_aggregator_options settings = GW_AGGREGATOR_OPTIONS_INIT;
  const gw_tensor_info info = {"weight", GW_F32, 1, {1}};
  const gw_gradient gradient = {0, &value};
  GW_CHECK_THAT(gw_init_threads(1, NULL, &comm) == GW_OK);
  options.stream.space = settings.space = GW_CUDA;
  GW_CHECK_THAT(gw_all_reduce(comm, &value, &value, 1, GW_F32, GW_SUM, &options, NULL) != GW_OK);
  GW_CHECK_THAT(strstr(gw_last_error(), "CUDA device 0") != NULL);
  GW_CHECK_THAT(gw_memory_place(&value, &place) == GW_OK && place.space == GW_HOST);
  GW_CHECK_THAT(place.device == 0 && place.native == NULL);
  if (gw_aggregator_create(comm, &info, 1, &settings, &aggregator) == GW_OK) {
    GW_CHECK_REFUSED(gw_aggregator_submit(aggregator, &gradient, 1, NULL), GW_INVALID_ARGUMENT,
                     "'weight'");
  } else {
    GW_CHECK_THAT(strstr(gw_last_error(), "CUDA device 0") != NULL);
  }
  gw_aggregator_free(aggregator);
  gw_comm_free(comm);
}

int main(void) {
  memory_of_the_host_on_no_device();
  versions_and_names();
  nothing_is_refused();
  bad_options_are_refused();
  the_rule_for_a_lone_survivor_is_read();
  one_rank();
  states();
  specs();
  return failures == 0 ? 0 : 1;
}
